"""A story of updates, told by the commands that anybody would type: `init`, then `update` for each new batch of data.

Every command is printed and run in a folder. Beside each update, on a copy of that folder: what the same training gives
without interpolation; and for the first, what it gives without the reminder.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EXIT = {0: "promoted", 1: "refused"}


def arguments(about: str, *more: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of every story, and those that one has of its own."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=form, parents=more)
    parser.add_argument("--folder", type=Path, required=True, help="where all is made; a new one")
    parser.add_argument("--part", type=float, default=1.0, help="of the data, for a quick look")
    return parser.parse_args()


def tell(folder: Path, config: str, old: str, updates: Mapping[str, str]) -> list[dict[str, Any]]:
    """Write `selfreminder.toml`, make a store with the old data, and update it; gives what each update came to.

    `updates` are the data of each by name. What is told is in `story.json` in the folder too.
    """
    (folder / "selfreminder.toml").write_text(config, encoding="utf-8")
    made = command(folder, "init", "--data", old)
    if made.returncode:
        sys.exit(made.stderr)
    print(made.stdout)
    told: list[dict[str, Any]] = []
    for name, data in updates.items():
        plain = None if told else _aside(folder, data, "strength = 0\n")
        trained = _aside(folder, data, "interpolations = []\n")
        started = time.monotonic()
        result = _update(folder, data)
        result |= {"update": name, "seconds": round(time.monotonic() - started, 1), "not_interpolated": trained}
        told.append(result if plain is None else result | {"no_reminder": plain})
        (folder / "story.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        if result["outcome"] == "nothing":
            sys.exit(f"{name}: nothing was to do")
    print(command(folder, "history").stdout)
    print(show(told))
    return told


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of selfreminder in a folder, whose modules it can import."""
    print(f"$ selfreminder {shlex.join(words)}", flush=True)
    here = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "selfreminder", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": here},
        capture_output=True,
        text=True,
        check=False,
    )


def show(told: list[dict[str, Any]]) -> str:
    """A table: a row an update; accuracy on slices, and flips of earlier ones, with and without interpolation."""
    lines = [
        "| update | verdict | first slice | new, before | new, after | share | flips | not interpolated: new | flips |"
    ]
    lines.append(f"|{'---|' * 9}")
    for each in told:
        other, new = each["not_interpolated"], list(each["accuracy"])[-1]
        shown = [each["update"], each["outcome"], _show(each["accuracy"]["v1"]), _show(each["before"][new])]
        shown += [_show(each["accuracy"][new]), str(each["share"]), _show(_mean(each["flips"].values()), 4)]
        shown += [_show(list(other["accuracy"].values())[-1]), _show(_mean(other["flips"].values()), 4)]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def _aside(folder: Path, data: str, setting: str) -> dict[str, Any]:
    """What an update would give with another setting of [train], on a copy of the folder."""
    with_other = folder.with_name(f"{folder.name}-aside")
    shutil.rmtree(with_other, ignore_errors=True)
    shutil.copytree(folder, with_other)
    config = with_other / "selfreminder.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("[train]\n", f"[train]\n{setting}"), encoding="utf-8")
    found = _update(with_other, data)
    shutil.rmtree(with_other)
    return found


def _update(folder: Path, data: str) -> dict[str, Any]:
    done = command(folder, "update", "--data", data, "--json")
    if done.returncode not in EXIT:
        sys.exit(done.stderr)
    (result,) = json.loads(done.stdout)["results"]
    manifest = json.loads((Path(folder, result["folder"]) / "manifest.json").read_text(encoding="utf-8"))
    checks = [check for check in result["judgement"]["checks"] if check["scope"] == "all"]
    training = manifest["training"]
    return {
        "outcome": EXIT[done.returncode],
        "reason": result["reason"],
        "accuracy": {name: metrics["right"] for name, metrics in manifest["metrics"].items()},
        "before": {check["slice"]: check["before"] for check in checks},
        "flips": {check["slice"]: check["estimate"] for check in checks if check["rule"] == "flips"},
        "share": training["share"],
        "strength": training["strength"],
        "trials": training["trials"],
    }


def _show(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / max(len(values), 1)
