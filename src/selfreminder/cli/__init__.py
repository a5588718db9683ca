"""The command line: the commands of `selfreminder`, and what becomes of errors. Each module has a command or a group.

A command parses, calls the library, prints.
"""

import io
import os
import sys
from contextvars import ContextVar
from pathlib import Path

from cyclopts import App, CycloptsError, Group, Parameter

from selfreminder import __version__
from selfreminder._base.errors import SelfReminderError, explain_os_error, printable
from selfreminder.cli.examples import EXAMPLES
from selfreminder.cli.remote import with_stores

COMMAND_LINE: ContextVar[tuple[str, ...]] = ContextVar("COMMAND_LINE", default=())
"""the words after `selfreminder`, as they were typed"""
HELP_ALL = "--help-all"
_WITH_MORE = ("compare", "run", "tune", "reproduce")
"""commands with options that --help leaves out"""
_GROUPS = {
    "To begin": {
        "demo": ("demo:demo", "See a network forget, and remember: a first look within a minute."),
        "doctor": ("doctor:doctor", "Say what is installed and at hand, and test whether it works here."),
        "list": ("list:show", "List methods, benchmarks, selections, scales."),
    },
    "To compare methods": {
        "compare": ("compare:compare", "Compare methods on a benchmark; the same command goes on where it was."),
        "report": ("folder:report", "Make one HTML page of a comparison, at any moment."),
        "status": ("folder:status", "Say how the runs of a folder stand, at any moment."),
        "run": ("run:run", "Run a grid of experiments from a TOML file, or go on with it."),
        "tune": ("tune:tune", "Choose strengths and step sizes on validation data."),
        "reproduce": ("reproduce:reproduce", "Redo the paper's figures, and judge its claims."),
        "budget": ("budget:budget", "What a memory costs beside EWC, in items and bytes."),
    },
    "To update a deployed model": {
        "init": ("store:init", "Make a store of it: version 1, and what later ones are judged by."),
        "update": ("store:update", "Train on new data with a reminder of the old; promote what the gate passes."),
        "check": ("store:check", "Hold any weights to a store's gate."),
        "history": ("store_versions:history", "List a store's versions, and how right each is."),
        "diff": ("store_versions:diff", "Say which inputs two versions answer differently."),
        "rollback": ("store_versions:rollback", "Make an earlier version current again."),
        "drift": ("store_versions:drift", "Say whether new data differs from what a store holds out."),
        "delete": ("store_versions:delete", "Delete items from a store's memory and held-out slices."),
        "export": ("store_versions:export", "Write a version as ONNX, .pt2, for Hugging Face or MLflow."),
        "verify": ("store_versions:verify", "Check every file of a store by its sha256."),
    },
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
_PLAIN = Parameter(negative="")
"""there is no --no-json"""


def _make_app(name: str, about: str, groups: dict[str, dict[str, tuple[str, str]]]) -> App:
    made = App(name=name, help=about, result_action="return_value", default_parameter=_PLAIN)
    for place, (title, commands) in enumerate(groups.items()):
        group = Group(title, sort_key=place)
        for order, (command, (function, line)) in enumerate(commands.items()):
            example = EXAMPLES.get(f"{name} {command}".removeprefix("selfreminder "))
            end = f"**Example:** {example}" if example else None
            if command in _WITH_MORE:
                end = f"**More options:** selfreminder {command} {HELP_ALL}\n\n{end}"
            # By name, so that `selfreminder --help` imports none of them.
            made.command(
                f"selfreminder.cli.{function}", name=command, help=line, help_epilogue=end, group=group, sort_key=order
            )
    return made


app = _make_app(
    "selfreminder", "Continual learning with few reminders: keep a handful of old samples, forget little.", _GROUPS
)
_FILES = Group("To look after files", sort_key=len(_GROUPS))
_OPTIONS = Group("Options", sort_key=len(_GROUPS) + 1)
for _name, _about, _commands in (
    ("data", "Data sets: what there is, fetch, verify.", _DATA),
    ("memory", "Memory files: list, look at, export and delete what they hold.", _MEMORY),
):
    _part = _make_app(_name, _about, {_about.partition(":")[0]: _commands})
    _part.group = _FILES
    app.command(_part)
app.version = __version__
app.register_install_completion_command(help="Complete commands and options by Tab.", group=_OPTIONS)
for _flag in ("--help", "--version"):
    app[_flag].group = _OPTIONS


def main(arguments: list[str] | None = None) -> int:
    """Run a command; gives the exit code: 0 done, 1 a check failed, 2 the user's mistake, 130 interrupted."""
    if sys.stdout is None:  # closed by whoever called
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    COMMAND_LINE.set(tuple(sys.argv[1:] if arguments is None else arguments))
    arguments = ["--help" if word == HELP_ALL else word for word in COMMAND_LINE.get()]
    lines: list[tuple[App, str | None]] = []
    try:
        for command in app.parse_commands(arguments)[1]:
            if command.default_command is not None:
                lines.append((command, command.help))
                command.help = None  # its own page has its docstring, the list of commands the line above
        with with_stores(arguments) as words:
            result = app(words, exit_on_error=False, print_error=False)
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
    finally:
        for command, line in lines:
            command.help = line
    return result if isinstance(result, int) else 0


def _complain(message: str) -> int:
    print(f"selfreminder: {printable(' '.join(message.split()))}", file=sys.stderr)
    return 2
