"""The code of every page runs, one block after the other, as a reader would type it.

Commands that train for minutes are parsed and not run: other tests run them at smaller sizes.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from selfreminder.cli import app, main

ROOT = Path(__file__).parents[2]
BEFORE = Path(__file__).parent / "before"
"""what a page takes for granted, such as a model and data, by the page's name"""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r'^```(python|sh|toml)(?: title="(.*?)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
"""its language, the file that it is to be written to, and its code"""
LONG = {"demo", "compare", "reproduce", "tune", "run", "status", "report"}
NEEDS = {f"plugins-{name}": name for name in ("avalanche", "lightning", "skorch", "transformers")}
SLOW = {"learn", "records", "own-data", *NEEDS}
WHOLE = {"own-data"}
"""pages whose long commands are run, too: they are made for it"""
ELSEWHERE = {"update": "tests/store/test_update_page.py"}


def with_code() -> list[Any]:
    found = []
    for page in PAGES:
        if BLOCK.search(page.read_text(encoding="utf-8")) and page.stem not in ELSEWHERE:
            found.append(pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in SLOW else []))
    return found


@pytest.mark.parametrize("page", with_code())
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    framework = NEEDS.get(page.stem)
    if framework is not None and find_spec(framework) is None:
        pytest.skip(f"needs {framework}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    names: dict[str, Any] = {"__name__": "page"}
    before = BEFORE / f"{page.stem}.py"
    if before.exists():
        exec(compile(before.read_text(), str(before), "exec"), names)
    for number, (language, title, code) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        if title:
            Path(title).write_text(code)
        elif language == "python" and not code.startswith(">>>"):  # those are doctests
            exec(compile(code, f"{page.name}, block {number}", "exec"), names)
        elif language == "toml":
            tomllib.loads(code)
            if named := re.match(r"# (\w+\.toml)\n", code):
                Path(named[1]).write_text(code)
        elif language == "sh":
            for line in code.splitlines():
                type_in(line, whole=page.stem in WHOLE)


def type_in(line: str, whole: bool = False) -> None:
    """Run a line of a page, or look that it can be run."""
    words = shlex.split(line, comments=True)
    match words:
        case []:
            pass
        case ["make", target, *_]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
        case ["pip", "install", *packages]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert {name for text in packages for name in re.findall(r"\w+", text)} <= {*extras, "selfreminder"}
        case [".venv/bin/pytest", "-q", path]:
            assert (ROOT / path).exists()
        case [("python" | "torchrun"), *_, path]:
            assert (ROOT / path).exists(), path
        case [("ray" | "tensorboard" | "mlflow"), *_]:  # of others: that it is there is what we can say
            assert shutil.which(words[0], path=str(Path(sys.executable).parent))
        case [("selfreminder" | ".venv/bin/selfreminder"), command, *rest]:
            if command in LONG and not whole and "--dry-run" not in rest:
                app.parse_args([command, *rest], exit_on_error=False, print_error=False)
            else:
                assert main([command, *rest]) == 0, line
        case _:
            pytest.fail(f"who knows what this does: {line}")


@pytest.mark.slow
def test_the_tutorials_method_in_a_package_of_its_own(tmp_path: Path) -> None:
    """It is installed, found by its entry point, keeps the contract, and is compared."""
    package, site = tmp_path / "package", tmp_path / "site"
    package.mkdir()
    for _, title, code in BLOCK.findall((ROOT / "docs" / "add-a-method.md").read_text(encoding="utf-8")):
        if title:
            (package / title).write_text(code)
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site), str(package)]
    compare = [
        "compare",
        "permuted-mnist",
        "--methods",
        "l2-anchor",
        "--tasks",
        "2",
        "--epochs",
        "1",
        "--width",
        "0.06",
    ]
    for command in (
        install,
        ["-c", "from selfreminder.testing import check_method; check_method('l2-anchor')"],
        ["-m", "selfreminder", *compare, "--seeds", "1", "--json"],
    ):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["method"] == "l2-anchor"
