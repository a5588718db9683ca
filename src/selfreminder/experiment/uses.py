"""Which of an experiment's settings a method has a use for, read from its file as its help is: without torch."""

import ast
from functools import cache
from pathlib import Path

from selfreminder import methods

_FOLDER = Path(methods.__file__).parent
_MODULE = f"{methods.__name__}."
_SIZE = ("per_class", "per_task", "budget")
_OWN = ("strength", "select", "codec", "logit_codec", "memory_batch", "over_tasks")


def uses(method: str, field: str) -> bool:
    """Whether a run of a method can depend on a field.

    >>> uses("adam", "per_class"), uses("fsr-logit", "per_class"), uses("adam", "epochs")
    (False, True, True)
    """
    if field not in (*_SIZE, *_OWN):
        return True
    return ("size" if field in _SIZE else field) in settings(method.replace("-", "_"))


@cache
def settings(stem: str, only: str | None = None) -> frozenset[str]:
    """The annotated names of a file's classes, or of one, with those of the methods that they derive from."""
    tree = ast.parse((_FOLDER / f"{stem}.py").read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    origin = {
        name.asname or name.name: (node.module.removeprefix(_MODULE), name.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(_MODULE)
        for name in node.names
    }
    found: set[str] = set()
    for node in [classes[only]] if only else classes.values():
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                found.add(line.target.id)
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in classes:
                found |= settings(stem, base.id)
            elif isinstance(base, ast.Name) and base.id in origin:
                found |= settings(*origin[base.id])
    return frozenset(found)
