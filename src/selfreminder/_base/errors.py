"""Errors whose message says what is wrong, where, and what to do about it."""

import difflib
import errno
import re
from collections.abc import Iterable


class SelfReminderError(ValueError):
    """Something the caller can mend. The command line prints it in one line and exits with 2."""


class DataError(SelfReminderError):
    """A data file is missing, damaged, or not what it should be."""


class MemoryFileError(SelfReminderError):
    """A file is not a memory that this version can read whole."""


class StoreError(SelfReminderError):
    """A store is missing, damaged, held by somebody else, or not one that this version can read."""


class TrainingDivergedError(SelfReminderError):
    """The loss stopped being a finite number."""


class MissingExtraError(SelfReminderError):
    """A part of selfreminder needs a package that is not installed."""


def unknown(kind: str, name: str, known: Iterable[str]) -> SelfReminderError:
    """The error for a name that nobody knows, with the nearest one that somebody does.

    >>> print(unknown("method", "fsr-logi", ["adam", "fsr-logit"]))
    unknown method 'fsr-logi': did you mean 'fsr-logit'? Known: adam, fsr-logit
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? Known" if near else "known"
    return SelfReminderError(f"unknown {kind} '{name}': {hint}: {', '.join(known)}")


_ADVICE = {
    errno.ENOSPC: "make room, then run the same command again",
    errno.EACCES: "get access to it, or choose another place",
    errno.EROFS: "choose a place that can be written to",
}


def explain_os_error(error: OSError) -> str:
    """An error of the system in one line: where, what, and what to do.

    >>> explain_os_error(OSError(errno.ENOSPC, "No space left on device", "runs/x"))
    'runs/x: No space left on device: make room, then run the same command again'
    """
    parts = [error.filename, error.strerror or str(error), _ADVICE.get(error.errno or 0)]
    return ": ".join(str(part) for part in parts if part)


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """A text, which anybody may have put into a file, so that it moves no cursor and turns no line around.

    >>> print(printable("a" + chr(27) + "[2Jb"))
    a\\x1b[2Jb
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
