"""Seeds that depend only on what they are for, so that a position in a run is three integers."""

import hashlib


def seed_for(*parts: int | str) -> int:
    """A 63-bit seed for a purpose, such as ``seed_for(run_seed, "order", task, epoch)``.

    >>> seed_for(0, "order", 1) == seed_for(0, "order", 1) != seed_for(0, "order", 2)
    True
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def step_seed(base: int, step: int) -> int:
    """The seed of one step below a base seed: splitmix64, because a hash per step would be slow."""
    z = (base + (step + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return (z ^ (z >> 31)) >> 1
