"""What CI installs is all in the lock file, by its hash."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_lock_file_has_all_that_the_tests_need() -> None:
    command = [sys.executable, ROOT / "scripts" / "write_lock.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "nothing is missing\n", done.stdout + done.stderr
