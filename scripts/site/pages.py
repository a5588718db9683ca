"""The site's pages: docs/ as it is, what the code says of itself, and the files that pages point to."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from scripts.site.reference import api_page, commands_page, methods_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAVIGATION = {
    "Learn": ["index.md", "learn.md"],
    "How to": [
        "own-training.md",
        "plugins-lightning.md",
        "plugins-transformers.md",
        "plugins-skorch.md",
        "plugins-avalanche.md",
        "update.md",
        "choose.md",
        "delete.md",
        "compare.md",
        "own-data.md",
        "grids.md",
        "tuning.md",
        "cluster.md",
        "add-a-method.md",
        "add-a-benchmark.md",
        "examples/README.md",
    ],
    "Reference": ["api.md", "commands.md", "memory.md", "records.md"],
    "Explain": [
        "methods.md",
        "reproduce.md",
        "results/README.md",
        "strength.md",
        "speed.md",
        "design.md",
        "trust.md",
        "threat-model.md",
    ],
    "Project": ["CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "CHANGELOG.md"],
}
"""pages in order; those that are in docs/ and not here come at the end of How to"""
_MADE = {"api.md": api_page, "commands.md": commands_page, "methods.md": methods_page}
_LANGUAGE = {".py": "python", ".toml": "toml", ".json": "json", ".js": "js"}
"""of files that are shown as a page; what is not a page of text, and not here, is placed as it is"""
_LINK = re.compile(r"(?<=\]\()([^)#\s]+)(#[^)\s]*)?(?=\))")


def stage(folder: Path) -> str:
    """Write all pages into a folder; gives the configuration of the site."""
    folder.mkdir(parents=True)
    for name, make in _MADE.items():
        (folder / name).write_text(_relinked(make(), DOCS / name, folder), encoding="utf-8")
    for path in sorted(DOCS.glob("*")):
        _place(path, folder)
    for path in (
        "examples/README.md",
        "results/README.md",
        "CONTRIBUTING.md",
        "RELEASING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ):
        _place(ROOT / path, folder)
    return _configuration(folder)


def _where(path: Path) -> Path:
    """Where in the site a file of the repository is: those of docs/ are at its root."""
    inside = path.relative_to(DOCS) if path.is_relative_to(DOCS) else path.relative_to(ROOT)
    if inside == Path("README.md"):
        return Path("index.md")
    if path.is_dir():
        return inside / "folder.md"
    return inside.with_name(f"{inside.name}.md") if path.suffix in (*_LANGUAGE, ".ipynb") else inside


def _place(path: Path, folder: Path) -> None:
    """Write a file's page, unless it is there, and those of the files that it points to."""
    target = folder / _where(path)
    if target.exists() or path in (ROOT / "README.md", DOCS / "zensical.toml"):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        files = sorted(each for each in path.glob("*.py") if each.name != "__init__.py")
        lines = [f"# {path.relative_to(ROOT)}", "", *(f"- [{each.name}]({each.name})" for each in files)]
        target.write_text("", encoding="utf-8")
        target.write_text(_relinked("\n".join(lines), path / "folder.md", folder), encoding="utf-8")
    elif path.suffix in (".md", ".ipynb"):
        target.write_text("", encoding="utf-8")  # so that pages may point to each other
        text = path.read_text(encoding="utf-8")
        text = _show_notebook(json.loads(text)) if path.suffix == ".ipynb" else text
        target.write_text(_relinked(text, path, folder), encoding="utf-8")
    elif path.suffix not in _LANGUAGE:
        shutil.copy(path, target)
    else:
        code = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT)
        target.write_text(f"# {name.name}\n`{name}`\n````{_LANGUAGE[path.suffix]}\n{code}````\n", encoding="utf-8")


def _show_notebook(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown, with what its cells showed when it was run last."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            elif picture := output.get("data", {}).get("image/png"):
                parts.append(f'<img alt="what this cell draws" src="data:image/png;base64,{"".join(picture.split())}">')
    return "\n\n".join(parts)


def _relinked(text: str, path: Path, folder: Path) -> str:
    """The text with links to where things are in the site; what they point to is placed there."""

    def relink(match: re.Match[str]) -> str:
        link, anchor = match[1], match[2] or ""
        if link.startswith(("http://", "https://", "mailto:")):
            return match[0]
        other = (path.parent / link).resolve()
        if other.name not in _MADE or other.parent != DOCS:
            _place(other, folder)
        return os.path.relpath(_where(other), _where(path).parent) + anchor

    # Code is left alone: what looks like a link there is none.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(relink, part) for part in parts)


def _configuration(folder: Path) -> str:
    """docs/zensical.toml with the navigation of the pages that there are."""
    placed = {page for pages in NAVIGATION.values() for page in pages}
    others = sorted(path.name for path in DOCS.glob("*.md") if path.name not in placed)
    sections = []
    for title, pages in NAVIGATION.items():
        there = [page for page in [*pages, *(others if title == "How to" else ())] if (folder / page).exists()]
        sections.append(f'  {{ "{title}" = [{", ".join(f"{chr(34)}{page}{chr(34)}" for page in there)}] }},')
    navigation = "\n".join(["nav = [", *sections, "]"])
    return (DOCS / "zensical.toml").read_text(encoding="utf-8").replace("# navigation", navigation)
