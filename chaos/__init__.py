"""A campaign against selfreminder: faults are tried by the thousand, and a table says what came of them.

`python -m chaos` tries all of them and writes `chaos/table.json` and `docs/trust.md`; `--short` tries a few of each.
A fault is a function that yields outcomes; a module has the faults of one kind.
"""
