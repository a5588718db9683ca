"""The store: versions of a deployed model, each whole and never edited, and one pointer to the current one.

    shop/
      selfreminder.toml          the user's own file: which code builds the model, where new data is, what the gate asks
      store/
        current.json             the pointer, and how it moved; replaced in one step
        versions/1/              model.safetensors  memory.safetensors  heldout.safetensors  items.json
                                 manifest.json  report.html  README.md
        work/KEY/                an update on its way; the same command goes on with it
        .lock, holder.json       one process at a time writes, and says who it is

A store names no code to run: `selfreminder.toml` does, which is beside it and not in it.
"""

from selfreminder.store.store import Store
from selfreminder.store.version import Version

__all__ = ["Store", "Version"]
