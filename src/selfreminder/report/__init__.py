"""From records to tables and pictures. A figure is drawn from records alone.

`results` groups runs and names them, `folder_results` does so for a folder; `page` makes an HTML page of it, of blocks
by `html` and charts by `charts`; `figures` draws files. `gallery` shows a memory, `pictures` exports it.
"""

from selfreminder.report.folder_results import FolderResults, read_folder_results
from selfreminder.report.page import render_comparison
from selfreminder.report.results import Estimate, Result, group_runs

__all__ = ["Estimate", "FolderResults", "Result", "group_runs", "read_folder_results", "render_comparison"]
