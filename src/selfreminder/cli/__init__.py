"""The command line: each module parses, calls the library, prints."""

from contextvars import ContextVar

COMMAND_LINE: ContextVar[tuple[str, ...]] = ContextVar("COMMAND_LINE", default=())
"""the words after `selfreminder`, as they were typed"""
