"""Pages of what the code says of itself: the public names, the commands, the methods with their equations."""

import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import selfreminder
from selfreminder import methods
from selfreminder.cli import HELP_ALL
from selfreminder.cli.examples import EXAMPLES

MODULES = {
    "In your own loop": ("selfreminder", ["Reminder", "Report"]),
    "A memory": (
        "selfreminder",
        ["Memory", "MemoryBatch", "open_memory", "save_memory", "change_memory", "memory_hash", "Size"],
    ),
    "A deployed model": ("selfreminder", ["Store"]),
    "Experiments": ("selfreminder", ["Experiment", "run", "records"]),
    "Mistakes": ("selfreminder", ["SelfReminderError"]),
    "Losses": ("selfreminder.reminder.losses", ["logit_match", "distill", "cross_entropy"]),
    "Methods of your own": ("selfreminder.methods.base", ["Method", "MemoryMethod", "Batch", "Step"]),
}
"""the public names by what they are for"""


def api_page() -> str:
    """The public names, each with its signature, its docstring and its public methods."""
    lines = ["# Python reference", "What is imported from `selfreminder`, or from the module that a heading names.", ""]
    for title, (module, names) in MODULES.items():
        lines += [f"## {title}", ""]
        for name in names:
            found = getattr(import_module(module), name, None)
            if found is not None:
                lines += [*_entry(f"{module}.{name}", found, "###"), ""]
    return "\n".join(lines)


def _entry(name: str, found: Any, level: str) -> Iterator[str]:
    short = name.rpartition(".")[2]
    yield f"{level} {short}"
    yield ""
    yield f"```python\n{_signature(name, found)}\n```"
    yield ""
    yield _prose(inspect.getdoc(found) or "")
    if inspect.isclass(found):
        for own, value in vars(found).items():
            function = inspect.unwrap(getattr(value, "__func__", value))
            if not own.startswith("_") and inspect.isfunction(function):
                yield ""
                yield from _entry(f"{short}.{own}", function, level + "#")


def _signature(name: str, found: Any) -> str:
    """A call, a parameter a line where it would be long."""
    name = name.removeprefix("selfreminder.")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return name
    shown, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        shown.append(_parameter(parameter))
    returned = signature.return_annotation
    arrow = "" if inspect.isclass(found) or returned is inspect.Signature.empty else f" -> {_type(returned)}"
    line = f"{name}({', '.join(shown)}){arrow}"
    return line if len(line) < 90 else "\n".join([f"{name}(", *(f"    {each}," for each in shown), f"){arrow}"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    of = "" if parameter.annotation is inspect.Parameter.empty else f": {_type(parameter.annotation)}"
    default = parameter.default
    if default is inspect.Parameter.empty:
        return f"{stars}{parameter.name}{of}"
    plain = isinstance(default, str | int | float | tuple | type(None))
    return f"{stars}{parameter.name}{of} = {repr(default) if plain else '…'}"


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:selfreminder|torch|pathlib|collections|typing)(?:\.\w+)*\.(?=\w)", "", text)


def _prose(docstring: str) -> str:
    """A docstring as Markdown: arguments as a list, examples as code."""
    out: list[str] = []
    for part in re.split(r"\n(?=(?:Args|Returns|Raises|Yields):\n)", docstring):
        head, _, body = part.partition("\n")
        if head in ("Args:", "Returns:", "Raises:", "Yields:"):
            rest, after = re.match(r"((?:[ \n].*\n?)*)((?:.|\n)*)", body).groups()  # type: ignore[union-attr]
            items = re.split(r"\n(?=\S)", textwrap.dedent(rest).strip())
            rows = [re.sub(r"^(\*{0,2}\w+): ", r"`\1`: ", " ".join(item.split())) for item in items]
            title = {"Args:": "Arguments", "Returns:": "Gives", "Raises:": "Raises", "Yields:": "Yields"}[head]
            out += ["", f"**{title}**", "", *(f"- {row}" for row in rows), "", _examples(after)]
        else:
            out.append(_examples(part))
    return "\n".join(out).strip()


def _examples(text: str) -> str:
    """Doctests as blocks of code."""
    return re.sub(r"((?:^>>>.*\n?|(?<=\n)\.\.\..*\n?|(?<=\n)(?!>>>)\S.*\n?)+)", _fenced, text, flags=re.MULTILINE)


def _fenced(match: re.Match[str]) -> str:
    return f"\n```pycon\n{match[0].rstrip()}\n```\n" if match[0].startswith(">>>") else match[0]


def commands_page() -> str:
    """Every command's --help."""
    lines = [
        "# Commands",
        "What `--help-all` says of each, at a width of 100 columns. Results are printed to standard output, progress",
        "and complaints to standard error; `NO_COLOR=1` leaves colours out; `selfreminder --install-completion` lets",
        "Tab complete commands and options in bash, zsh and fish.",
        "",
        "| exit code | |",
        "|---|---|",
        "| 0 | done; a version was promoted; data has drifted |",
        "| 1 | a run or a check failed, the gate refused, or nothing was found |",
        "| 2 | a mistake in the command, or a file that cannot be read: one line says what, where, and what to do |",
        "| 3 | nothing to do: no new data, no drift, no such items in a store |",
        "| 130 | interrupted; the same command goes on |",
        "",
    ]
    all_words = ["", *EXAMPLES]
    with ThreadPoolExecutor(2) as pool:  # each is a process: what is shown is settled when a command is imported
        for words, said in zip(all_words, pool.map(_help, all_words)):
            lines += [f"## {f'selfreminder {words}'.strip()}", "```text", said, "```", ""]
    return "\n".join(lines)


def _help(words: str) -> str:
    command = [sys.executable, "-m", "selfreminder", *words.split(), HELP_ALL]
    wide = {**os.environ, "COLUMNS": "100"}
    said = subprocess.run(command, env=wide, capture_output=True, text=True, check=True).stdout
    return "\n".join(line.rstrip() for line in said.rstrip().splitlines())


def methods_page() -> str:
    """Each method: its equation, beside the code that computes it."""
    lines = [
        "# The methods",
        "Each method is one file: its equation, and the code that computes it. *f* is the network, *L* the loss, *z*",
        "its logits, *z^(t)* those recorded when task *t* ended, λ the strength; *θ* are the weights.",
        "",
    ]
    for name in methods.names():
        cls = methods.method_class(name)
        module = inspect.getmodule(cls)
        path = Path(inspect.getfile(cls)).relative_to(Path(selfreminder.__file__).parent)
        head, _, equation = (module.__doc__ or "").strip().partition("\n")
        lines += [f"## {name}", head, ""]
        for paragraph in filter(None, textwrap.dedent(equation).split("\n\n")):
            is_formula = bool(re.search(r"[=Σ∂]|^min ", paragraph)) and not paragraph.strip().endswith(".")
            lines += ["```text", paragraph.strip(), "```", ""] if is_formula else [paragraph.strip(), ""]
        code = inspect.getsource(cls).rstrip()
        if len(code.splitlines()) > 60:
            code = inspect.getsource(cls.loss).rstrip()
            code = textwrap.dedent(code)
        lines += ["```python", code, "```", f"[{path.name}](../src/selfreminder/{path})", ""]
    return "\n".join(lines)
