"""`selfreminder` and `python -m selfreminder`."""

import sys
from importlib.util import find_spec


def main() -> int:
    missing = [name for name in ("cyclopts", "rich", "matplotlib") if find_spec(name) is None]
    if missing:
        print(
            f"selfreminder: the command line needs {', '.join(missing)}: pip install 'selfreminder[cli]'",
            file=sys.stderr,
        )
        return 2
    try:
        from selfreminder.cli import main as command_line  # noqa: PLC0415 - needs the extra `cli`

        return command_line()
    except KeyboardInterrupt:  # while it was starting
        return 130


if __name__ == "__main__":
    sys.exit(main())
