import sys
from pathlib import Path

import numpy as np
from PIL import Image

from selfreminder import data

digits = data.load("embedded-mnist")
images, labels = digits.train_x, digits.train_y
for index in np.flatnonzero(labels < 2)[:120]:
    site = ("north", "south")[index % 2]
    place = Path("photos") / site / ("cat", "dog")[labels[index]]
    place.mkdir(parents=True, exist_ok=True)
    Image.fromarray(images[index] if site == "north" else 255 - images[index]).save(place / f"{index}.png")
days = [f"2024-{1 + n // 60:02}-{1 + n % 28:02}" for n in range(180)]
rows = [f"{day},{'AB'[n % 2]},{n % 7},{'no' if n % 7 < 4 else 'yes'}" for n, day in enumerate(days)]
Path("visits.csv").write_text("\n".join(["day,site,pages,bought", *rows]) + "\n")
np.savez("digits.npz", x=images[:300], y=labels[:300], site=np.array(["a", "b"] * 150))
Path("shop.py").write_text(
    "from torch import nn\n\n\n"
    "def build(outputs: int) -> nn.Module:\n"
    "    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, outputs))\n"
)
sys.path.insert(0, str(Path.cwd()))
