"""Every example runs by itself and shows what it promises; so does the notebook."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FRAMEWORKS = ("avalanche", "lightning", "skorch", "timm", "transformers")
"""an example's name begins with the one that it needs"""
SECONDS = 400
"""most of them need ten on one idle core"""


def environment(example: Path) -> dict[str, str]:
    """One thread, no network; and where the example's framework is, if it is not beside torch."""
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    framework = example.stem.split("_")[0]
    if framework in FRAMEWORKS and find_spec(framework) is None:
        apart = Path(sys.prefix) / "apart"  # see tests/apart
        if not (apart / framework).is_dir():
            pytest.skip(f"needs {framework}")
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests" / "apart"), str(apart)])
    return variables


def run(example: Path, folder: Path) -> str:
    """What it prints."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if example.stem.startswith("torchrun") else []
    process = subprocess.Popen(
        [sys.executable, *launcher, str(example)],
        cwd=folder,
        env=environment(example),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
        process.communicate()
        pytest.fail(f"{example.name} took more than {SECONDS} s")
    assert process.returncode == 0, errors
    return printed


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_forgets_less_and_learns_as_well(example: Path, tmp_path: Path) -> None:
    printed = run(example, tmp_path)
    print(printed)  # shown with a failure
    *table, last = printed.strip().splitlines()
    result = json.loads(last)
    assert len(table) >= 3
    assert result["old_with"] >= result["old_without"] + 0.10
    assert result["new_with"] >= result["new_without"] - 0.10
    assert result["old_with"] <= 1
    assert not list(tmp_path.iterdir()) or example.stem.startswith(FRAMEWORKS)  # frameworks may leave logs


@pytest.mark.slow
def test_the_report_of_the_page_is_what_the_example_prints(tmp_path: Path) -> None:
    """But for numbers, whose last digits are the processor's."""
    section = (ROOT / "docs" / "own-training.md").read_text().partition("## The report\n")[2].partition("\n## ")[0]
    printed = run(ROOT / "examples" / "own_loop_digits.py", tmp_path)
    blocks = re.findall(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for block in blocks:
        assert _without_numbers(block) in _without_numbers(printed)


def _without_numbers(text: str) -> str:
    return re.sub(r" *\d[\d.]*", " #", text)


def test_examples_are_listed() -> None:
    """Each has a row in examples/README.md, and says how it is run."""
    listed = re.findall(r"\]\((\w+\.py)\)", (ROOT / "examples" / "README.md").read_text())
    assert sorted(listed) == [example.name for example in EXAMPLES]
    for example in EXAMPLES:
        assert re.search(rf"(python|torchrun --nproc-per-node 2) examples/{example.name}", example.read_text())


@pytest.mark.parametrize("page", [*EXAMPLES, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name)
def test_what_is_to_be_installed_is_in_the_clone(page: Path) -> None:
    """The package is on no index yet; its extras are those of pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for asked in re.findall(r"pip install ([^`\n]+)", page.read_text()):
        assert "selfreminder" not in asked
        assert set(re.findall(r"\[(\w+)\]", asked)) <= set(extras)


@pytest.mark.slow
def test_the_notebook_tells_its_story(tmp_path: Path) -> None:
    """In under two minutes on an idle core, from its first cell to its last."""
    notebook = tmp_path / "forgetting.ipynb"
    notebook.write_bytes((ROOT / "examples" / "forgetting.ipynb").read_bytes())
    command = [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", str(notebook)]
    subprocess.run(command, cwd=tmp_path, env=environment(notebook), check=True, capture_output=True, timeout=SECONDS)
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    printed = ["".join(output.get("text", "")) for cell in cells for output in cell["outputs"]]
    without, with_reminder = (
        [float(value) for value in re.findall(r"'(0\.\d+)'", text)] for text in printed if "on the first task" in text
    )
    assert with_reminder[-1] > without[-1] + 0.1
    assert sum("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"]) == 4
