"""The wheel has all that is needed, and runs from where it is put."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_runs_by_itself(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("selfreminder-*.whl")
    assert wheel.stat().st_size < 3_000_000
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if not name.startswith("selfreminder")]
        archive.extractall(tmp_path / "site")
    tiny = ["--tasks", "2", "--epochs", "1", "--width", "0.06", "--methods", "fsr-logit", "--seeds", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "selfreminder", "compare", "permuted-mnist", *tiny],
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "", "HOME": str(tmp_path), "PYTHONSAFEPATH": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["results"][0]["method"] == "fsr-logit"
    where = [sys.executable, "-c", "import selfreminder; print(selfreminder.__file__)"]
    site = {"PYTHONPATH": str(tmp_path / "site")}
    found = subprocess.run(where, env=site, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(tmp_path)), "it is the wheel's code that ran"
