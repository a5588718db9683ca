"""How much of a user's own data may be in memory. Nothing here needs torch."""

import os

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import parse_bytes

IN_MEMORY = "SELFREMINDER_IN_MEMORY"
"""the variable that says how many bytes"""
_IN_MEMORY = "512MB"


def get_limit() -> int:
    """Give the bytes of one's own data that may be in memory on this machine; more is read from a file.

    >>> get_limit()
    512000000
    """
    try:
        return parse_bytes(os.environ.get(IN_MEMORY) or _IN_MEMORY)
    except SelfReminderError as error:
        raise SelfReminderError(f"{IN_MEMORY}: {error}") from None
