import json
import subprocess
import sys
from pathlib import Path

import pytest

from selfreminder import benchmarks, methods, selection
from selfreminder.experiment import catalogue
from selfreminder.experiment.catalogue import make_index, read_catalogue


def test_the_committed_index_is_fresh() -> None:
    """Else `make format` writes it anew."""
    written = json.loads(catalogue.INDEX.read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(make_index()))


def test_it_has_every_file() -> None:
    assert tuple(read_catalogue().methods) == methods.names()
    assert tuple(read_catalogue().benchmarks) == benchmarks.names()
    assert tuple(read_catalogue().selections) == selection.own_names()


@pytest.mark.parametrize("content", [None, "{}", '{"sha256": "of other files"}'])
def test_an_index_of_other_files_is_not_read(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "catalogue.json"
    monkeypatch.setattr(catalogue, "INDEX", index)
    if content is not None:
        index.write_text(content, encoding="utf-8")
    assert read_catalogue.__wrapped__() == read_catalogue()


def test_it_is_read_without_torch() -> None:
    code = (
        "import sys\n"
        "from selfreminder.experiment.catalogue import benchmark, uses\n"
        "from selfreminder.experiment.spec import Experiment\n"
        "Experiment(benchmark='split-mnist', method='hat', data='mnist', tasks=5, select='herding:width=2')\n"
        "assert uses('hat', 'strength') and benchmark('mixture').head_per_task\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
