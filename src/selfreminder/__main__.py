"""`selfreminder` and `python -m selfreminder`."""

import signal
import sys
from contextlib import suppress
from importlib.util import find_spec


def main() -> int:
    try:
        missing = [name for name in ("cyclopts", "rich", "matplotlib") if find_spec(name) is None]
        if missing:
            print(
                f"selfreminder: the command line needs {', '.join(missing)}: pip install 'selfreminder[cli]'",
                file=sys.stderr,
            )
            return 2
        from selfreminder.cli import main as command_line  # noqa: PLC0415 - needs the extra `cli`

        return command_line()
    except KeyboardInterrupt:  # while it was starting
        return 130
    finally:
        with suppress(ValueError):  # in another thread than the main one
            # All is done. A Ctrl-C from here on ends it at once, where Python's own end would show a traceback.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
