"""The command line: the commands of `selfreminder`, and what becomes of errors. Each module has a command or a group.

A command parses, calls the library, prints.
"""

import io
import os
import sys
from contextvars import ContextVar
from pathlib import Path

from cyclopts import App, CycloptsError

from selfreminder import __version__
from selfreminder._base.errors import SelfReminderError, explain_os_error

COMMAND_LINE: ContextVar[tuple[str, ...]] = ContextVar("COMMAND_LINE", default=())
"""the words after `selfreminder`, as they were typed"""
_COMMANDS = {
    "compare": (
        "compare:compare",
        "Compare methods on a benchmark. Interrupted, the same command goes on where it was.",
    ),
    "report": ("folder:report", "Make one HTML page of a comparison, at any moment."),
    "run": ("run:run", "Run a grid of experiments from a TOML file, or go on with it."),
    "tune": ("tune:tune", "Choose strengths and step sizes on validation data."),
    "reproduce": ("reproduce:reproduce", "Redo the paper's figures, and judge its claims."),
    "status": ("folder:status", "Say how the runs of a folder stand, at any moment."),
    "budget": ("budget:budget", "What a memory costs beside EWC, in items and bytes."),
    "list": ("list:show", "List methods, benchmarks, selections, scales."),
}
_DATA = {
    "list": ("data:show", "List the data sets and what is at hand."),
    "get": ("data:get", "Fetch a data set."),
    "verify": ("data:verify", "Check the files at hand by their sha256."),
}
_MEMORY = {
    "list": ("memory:show_items", "List the items of a memory file."),
    "show": ("memory:show", "Summarise a memory file; with --html, a page of its items."),
    "export": ("memory:export_items", "Write items as images and a table."),
    "delete": ("memory:delete", "Delete items from a memory file."),
    "verify": ("memory:verify", "Check that a memory file is intact."),
}


def _make_app(name: str, about: str, commands: dict[str, tuple[str, str]]) -> App:
    made = App(name=name, help=about, result_action="return_value")
    for command, (function, line) in commands.items():
        # By name, so that `selfreminder --help` imports none of them.
        made.command(f"selfreminder.cli.{function}", name=command, help=line)
    return made


app = _make_app(
    "selfreminder", "Continual learning with few reminders: keep a handful of old samples, forget little.", _COMMANDS
)
app.version = __version__
app.command(_make_app("data", "Data sets: what there is, fetch, verify.", _DATA))
app.command(_make_app("memory", "Memory files: list, look at, export and delete what they hold.", _MEMORY))


def main(arguments: list[str] | None = None) -> int:
    """Run a command; gives the exit code: 0 done, 1 a check failed, 2 the user's mistake, 130 interrupted."""
    if sys.stdout is None:  # closed by whoever called
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    COMMAND_LINE.set(tuple(sys.argv[1:] if arguments is None else arguments))
    try:
        for command in app.parse_commands(arguments)[1]:
            if command.default_command is not None:
                command.help = None  # its own page has its docstring, the list of commands the line above
        result = app(arguments, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except (CycloptsError, SelfReminderError) as error:
        return _complain(str(error))
    except (BrokenPipeError, SystemExit):
        # The reader of our output has left (`| head`), for which rich exits: nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _complain(explain_os_error(error))
    except KeyboardInterrupt:
        return 130
    return result if isinstance(result, int) else 0


def _complain(message: str) -> int:
    print(f"selfreminder: {' '.join(message.split())}", file=sys.stderr)
    return 2
