"""`selfreminder doctor`: what is installed, what is at hand, and whether it works here."""

import json as json_format
import os
import platform
import re
import shutil
import time
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import torch

from selfreminder import __version__
from selfreminder._base.errors import SelfReminderError
from selfreminder.cli.self_test import update_digits
from selfreminder.cli.terminal import Json, print_rows
from selfreminder.data import DATASETS, source


def doctor(*, json: Json = False) -> int:
    """Say what is installed and at hand, and test in seconds whether it works here: for you, or for an issue.

    Nothing is downloaded, nothing is sent, and no path of yours is shown. Exit code 1 if the test fails.
    """
    found = {"about": _about(), "extras": _extras(), "data": _data(), "self-test": _self_test()}
    passed = found["self-test"]["result"] == "passed"
    if json:
        print(json_format.dumps({**found, "passed": passed}, indent=1))
        return 0 if passed else 1
    for title, rows in found.items():
        print_rows(title.capitalize(), [(name, str(value)) for name, value in rows.items()])
    print("All is well." if passed else "Something is wrong: paste the above into an issue.")
    return 0 if passed else 1


def _about() -> dict[str, str]:
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "selfreminder": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "torch": f"{torch.__version__}, {torch.get_num_threads()} of {os.cpu_count()} cores in one process",
        "numpy": version("numpy"),
        "devices": ", ".join(["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]),
        "precision": f"float32 (matmul {torch.get_float32_matmul_precision()}), bfloat16 {_bfloat16()}",
        "free disk here": f"{shutil.disk_usage(Path.cwd()).free / 1e9:.1f} GB",
    }


def _bfloat16() -> str:
    try:
        torch.mm(torch.ones(2, 2, dtype=torch.bfloat16), torch.ones(2, 2, dtype=torch.bfloat16))
    except RuntimeError:
        return "does not work"
    return "works"


def _extras() -> dict[str, str]:
    """Each extra with what of it is installed, or how to get it."""
    wanted: dict[str, list[str]] = {}
    for line in requires("selfreminder") or []:
        if extra := re.search(r"extra == ['\"]([\w-]+)['\"]", line):
            package = re.match(r"[\w.-]+", line)
            wanted.setdefault(extra[1], []).append(package[0] if package else line)
    return {name: _state(name, packages) for name, packages in wanted.items() if name not in ("dev", "docs")}


def _state(extra: str, packages: list[str]) -> str:
    have, missing = [], []
    for package in packages:
        try:
            have.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        return f"without {', '.join(missing)}: pip install 'selfreminder[{extra}]'"
    return ", ".join(have)


def _data() -> dict[str, str]:
    states = {}
    for data in DATASETS.values():
        if data.files:
            here = len(source.find(data, None))
            how = "" if here else f": selfreminder data get {data.name}"
            states[data.name] = f"{here} of {len(data.files)} files at hand{how}"
    return states


def _self_test() -> dict[str, Any]:
    """Train a small network on real digits, update it with and without a reminder, save and load the memory."""
    begin = time.monotonic()
    try:
        seen = update_digits()
    except (SelfReminderError, RuntimeError, OSError) as error:
        return {"result": f"failed: {' '.join(str(error).split())}"}
    kept = seen["kept"] > seen["lost"] + 0.05
    return {
        "result": "passed" if kept else "failed: a reminder held nothing",
        "old digits after an update": f"{seen['lost']:.0%} without a reminder, {seen['kept']:.0%} with one",
        "time": f"{time.monotonic() - begin:.1f} s",
    }
