"""`selfreminder`: its commands, and what becomes of errors."""

import io
import os
import sys
from pathlib import Path

from cyclopts import App, CycloptsError

from selfreminder import __version__
from selfreminder._base.errors import SelfReminderError, explain_os_error
from selfreminder.cli import COMMAND_LINE

app = App(
    name="selfreminder",
    help="Continual learning with few reminders: keep a handful of old samples, forget little.",
    version=__version__,
    result_action="return_value",
)
# By name, so that `selfreminder --help` imports none of them.
app.command(
    "selfreminder.cli.compare:compare",
    name="compare",
    help="Compare methods on a benchmark. Interrupted, the same command goes on where it was.",
)
app.command("selfreminder.cli.report:report", name="report", help="Make one HTML page of a comparison, at any moment.")
app.command(
    "selfreminder.cli.run:run", name="run", help="Run a grid of experiments from a TOML file, or go on with it."
)
app.command("selfreminder.cli.tune:tune", name="tune", help="Choose strengths and step sizes on validation data.")
app.command(
    "selfreminder.cli.reproduce:reproduce", name="reproduce", help="Redo the paper's figures, and judge its claims."
)
app.command("selfreminder.cli.status:show", name="status", help="Say how the runs of a folder stand, at any moment.")
app.command("selfreminder.cli.budget:budget", name="budget", help="What a memory costs beside EWC, in items and bytes.")
app.command("selfreminder.cli.list:show", name="list", help="List methods, benchmarks, selections, scales.")

_data = App(name="data", help="Data sets: what there is, fetch, verify.", result_action="return_value")
_data.command("selfreminder.cli.data:show", name="list", help="List the data sets and what is at hand.")
_data.command("selfreminder.cli.data:get", name="get", help="Fetch a data set.")
_data.command("selfreminder.cli.data:verify", name="verify", help="Check the files at hand by their sha256.")
app.command(_data)

_memory = App(
    name="memory", help="Memory files: list, look at, export and delete what they hold.", result_action="return_value"
)
_memory.command("selfreminder.cli.memory:show_items", name="list", help="List the items of a memory file.")
_memory.command(
    "selfreminder.cli.memory:show", name="show", help="Summarise a memory file; with --html, a page of its items."
)
_memory.command("selfreminder.cli.memory:export_items", name="export", help="Write items as images and a table.")
_memory.command("selfreminder.cli.memory:delete", name="delete", help="Delete items from a memory file.")
_memory.command("selfreminder.cli.memory:verify", name="verify", help="Check that a memory file is intact.")
app.command(_memory)


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
