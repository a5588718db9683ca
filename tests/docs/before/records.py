from pathlib import Path

from selfreminder.cli import main

Path("my-grid.toml").write_text(
    'benchmark = "permuted-mnist"\nscale = "demo"\ntasks = 2\nepochs = 1\nwidth = 0.06\nseeds = 1\n'
    '[grid]\nmethod = ["adam", "fsr-logit"]\n'
)
assert main(["run", "my-grid.toml", "--jobs", "1"]) == 0
