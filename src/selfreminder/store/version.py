"""One version of a model: a folder of files, each known by its hash, that nobody edits."""

import json
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from selfreminder._base import tensor_file
from selfreminder._base.checked import DAMAGE
from selfreminder._base.errors import StoreError
from selfreminder.memory import Memory, open_memory
from selfreminder.store.heldout import HELDOUT, HeldOut
from selfreminder.store.incoming import TableForm
from selfreminder.store.items import ITEMS, Metadata, read_items
from selfreminder.store.manifest import MANIFEST, Manifest, hash_file

MODEL, MEMORY, REPORT, CARD = "model.safetensors", "memory.safetensors", "report.html", "README.md"
ENCODING = "encoding.json"
"""how the columns of a table become inputs, where there is one"""


@dataclass(frozen=True)
class Version:
    """One version: its number, its folder, and what it says of itself."""

    number: int
    folder: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: Path) -> "Version":
        """Read what a version says of itself; its files are looked at when they are wanted."""
        manifest = Manifest.read(folder)
        if str(manifest.version) != folder.name:
            raise StoreError(f"{folder} says that it is version {manifest.version}: rename it back")
        return cls(manifest.version, folder, manifest)

    @property
    def name(self) -> str:
        """As slices and tables call it."""
        return f"v{self.number}"

    def path(self, name: str) -> Path:
        """A file of the version, checked by its hash."""
        path = self.folder / name
        if name not in self.manifest.files:
            raise StoreError(f"{self.folder} has no {name}")
        if (problem := self._find_problem(name)) is not None:
            raise StoreError(f"{problem}: put {path} back from a copy, or `selfreminder rollback`")
        return path

    def verify(self) -> list[str]:
        """What is wrong with the version's files; nothing, if all is as it was written."""
        found = [problem for name in self.manifest.files if (problem := self._find_problem(name)) is not None]
        known = {*self.manifest.files, MANIFEST}
        return found + [f"{path} belongs to no version" for path in self.folder.iterdir() if path.name not in known]

    def _find_problem(self, name: str) -> str | None:
        path, facts = self.folder / name, self.manifest.files[name]
        if path.is_symlink():
            return f"{path} is a link to elsewhere"
        try:
            return None if hash_file(path) == facts else f"{path} was changed after it was written"
        except FileNotFoundError:
            return f"{path} is missing"

    def read_weights(self) -> dict[str, Tensor]:
        """The model's tensors by name."""
        return tensor_file.read_plain(self.path(MODEL))

    def read_memory(self) -> Memory:
        """What is remembered."""
        return open_memory(self.path(MEMORY))

    def read_heldout(self) -> HeldOut:
        """The slices on which later versions are judged."""
        return HeldOut.load(self.path(HELDOUT))

    def read_items(self) -> Metadata:
        """What metadata the remembered items came with."""
        return read_items(self.path(ITEMS))

    def read_form(self) -> TableForm | None:
        """How tables become inputs, where version 1 was made with one."""
        if ENCODING not in self.manifest.files:
            return None
        path = self.path(ENCODING)
        try:
            return TableForm.from_json(json.loads(path.read_text(encoding="utf-8")))
        except DAMAGE as error:
            raise StoreError(f"{path} does not say how a table becomes inputs: {error}") from None
