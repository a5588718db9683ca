"""On which kinds of processor runs were made: they are the same to the byte, and paired by seed, on one kind alone."""

from collections import Counter
from collections.abc import Iterable, Mapping

NOT_RECORDED = "not recorded"
"""of runs that an earlier version made"""


def count_processors(versions: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Count the kinds of processor that the versions of runs name; those of records that name none come last.

    >>> count_processors([{"processor": "AVX512"}, {}, {"processor": "AVX2"}, {"processor": "AVX512"}])
    {'AVX2': 1, 'AVX512': 2, 'not recorded': 1}
    """
    found = Counter(each.get("processor", NOT_RECORDED) for each in versions)
    return {name: found[name] for name in sorted(found, key=lambda name: (name == NOT_RECORDED, name))}


def describe_mixed(processors: Mapping[str, int]) -> str | None:
    """Say that runs which are compared were made on several kinds of processor, and on which; None if they were not.

    Where no record names one, nothing is known to be mixed.

    >>> describe_mixed({"AVX2": 1, "AVX512": 2})
    'Several kinds of processor: 1 run on AVX2, 2 runs on AVX512. Rounding differs, so that seeds are paired less well.'
    >>> describe_mixed({"AVX512": 5}) is None and describe_mixed({"not recorded": 5}) is None
    True
    """
    if len(processors) < 2:
        return None
    counts = {name: f"{count} run{'s' if count > 1 else ''}" for name, count in processors.items()}
    unknown = counts.pop(NOT_RECORDED, None)
    said = [f"{count} on {name}" for name, count in counts.items()]
    said += [f"{unknown} whose records do not say"] if unknown else []
    are = "Several kinds of processor" if len(counts) > 1 else "Perhaps several kinds of processor"
    return f"{are}: {', '.join(said)}. Rounding differs, so that seeds are paired less well."
