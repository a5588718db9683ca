"""Write requirements.lock: every package that `.[cli,dev]` brings, as it is installed here, by the sha256 of its wheel.

    .venv/bin/python scripts/write_lock.py            asks the package index for the hashes
    .venv/bin/python scripts/write_lock.py --check    says which packages the file lacks; asks nobody

Torch is left out: see docs/threat-model.md.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
_APART = {"torch", "setuptools"}
"""torch, and what its own installation needs"""
_HEAD = """\
# What CI installs besides torch, each wheel by its sha256: `make locked`. For Python 3.11 on Linux, x86-64.
# Torch is installed before, from constraints.txt: its builds for CPUs and for each CUDA have one version and several
# hashes. `make lock` writes this file.
"""


def list_packages() -> dict[str, str]:
    """List name and installed version of all that `.[cli,dev]` brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    waiting = [Requirement(text) for text in (*project["dependencies"], *extras["cli"], *extras["dev"])]
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name == canonicalize_name(project["name"]):
            waiting += [Requirement(text) for extra in wanted.extras for text in extras[extra]]
            continue
        for extra in ("", *wanted.extras):
            if (name, extra) in seen or name in _APART:
                continue
            seen.add((name, extra))
            found[name] = metadata.version(name)
            inner = [Requirement(text) for text in metadata.requires(name) or []]
            waiting += [each for each in inner if each.marker is None or each.marker.evaluate({"extra": extra})]
    return dict(sorted(found.items()))


def find_hashes(packages: dict[str, str]) -> dict[str, str]:
    """Ask the package index for the hash of each wheel that would be installed here."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--no-deps"]
        command += ["--only-binary", ":all:", "--report", str(report)]
        subprocess.run([*command, *(f"{name}=={version}" for name, version in packages.items())], check=True)
        installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {
        canonicalize_name(each["metadata"]["name"]): each["download_info"]["archive_info"]["hashes"]["sha256"]
        for each in installed
    }


def main() -> int:
    """Write the file, or say what it lacks."""
    packages = list_packages()
    if sys.argv[1:] == ["--check"]:
        locked = re.findall(r"^(\S+)==\S+ --hash=sha256:[0-9a-f]{64}$", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
        missing = sorted(packages.keys() - {canonicalize_name(name) for name in locked})
        print(f"requirements.lock lacks {', '.join(missing)}: run `make lock`" if missing else "nothing is missing")
        return 1 if missing else 0
    hashes = find_hashes(packages)
    lines = [f"{name}=={version} --hash=sha256:{hashes[name]}\n" for name, version in packages.items()]
    LOCK.write_text(_HEAD + "".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
