"""Strengths and step sizes chosen on validation data.

`candidates` says what to try for each method, `study` keeps the trials in Optuna's journal, `search` runs them and
chooses, `tuned` reads and writes the table of what was chosen. Only that is imported here: comparisons need it, and the
others need comparisons.
"""

from selfreminder.experiment.tuning.tuned import (
    METHOD_FIELDS,
    describe_untuned,
    find_tuned,
    join_untuned,
    locate_section,
    read_table,
    write_sections,
)

__all__ = [
    "METHOD_FIELDS",
    "describe_untuned",
    "find_tuned",
    "join_untuned",
    "locate_section",
    "read_table",
    "write_sections",
]
