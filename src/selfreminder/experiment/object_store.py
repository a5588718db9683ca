"""An object store, or whatever else fsspec reaches by a URL; with what it needs for S3 it is the extra `remote`."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from selfreminder._base.atomic import replace_file
from selfreminder._base.errors import MissingExtraError, SelfReminderError


class Store:
    """The objects below a URL, by their names from there on. What goes wrong is said in one line."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            self._system, self._root = fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            raise MissingExtraError(f"{url} needs a package: {error} (pip install 'selfreminder[remote]')") from None
        except ValueError as error:
            raise SelfReminderError(f"{url} is no place that is known: {error}") from None
        except Exception as error:
            raise self._explain(error) from None

    def list(self) -> dict[str, str]:
        """List all objects that are not hidden, each with what tells its content from another one's."""
        with self._asking():
            self._system.invalidate_cache()
            found: dict[str, dict[str, Any]] = self._system.find(self._root, detail=True)
        listed = {}
        for path, about in found.items():
            name = path[len(self._root) :].lstrip("/")
            # Somebody else may have put it there: no name leads out of the folder.
            if all(part and not part.startswith(".") and "\\" not in part for part in name.split("/")):
                tags = (about.get(key) for key in ("ETag", "etag", "md5Hash", "mtime", "created"))
                tag = next((str(tag) for tag in tags if tag), secrets.token_hex(8))
                listed[name] = f"{about['size']} {tag}"
        return listed

    def read(self, name: str) -> bytes | None:
        """Read an object; None if there is none."""
        with self._asking():
            self._system.invalidate_cache()
            try:
                return self._system.cat_file(f"{self._root}/{name}")
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write an object, whole or not at all."""
        path = f"{self._root}/{name}"
        with self._asking():
            if isinstance(self._system, LocalFileSystem):  # what stores do by themselves
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                with replace_file(path) as temporary:
                    temporary.write_bytes(content)
            else:
                self._system.pipe_file(path, content)

    def remove(self, name: str) -> None:
        """Remove an object, if there is one."""
        with self._asking(), suppress(FileNotFoundError):
            self._system.rm_file(f"{self._root}/{name}")

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each store's library has its own
            raise self._explain(error) from None

    def _explain(self, error: Exception) -> SelfReminderError:
        said = " ".join(str(error).split())[:300]
        return SelfReminderError(f"{self.url} cannot be used ({said or type(error).__name__}): see docs/cluster.md")
