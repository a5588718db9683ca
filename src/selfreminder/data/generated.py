"""Made-up images, to try the CIFAR benchmarks without a download: whether they run, not how well methods do."""

import numpy as np

CLASSES = {"generated-10": 10, "generated-100": 100}
_TRAIN, _TEST = 500, 200


def arrays(classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test images (n, 3, 32, 32) and labels: a smooth pattern for each class, under noise."""
    random = np.random.default_rng(classes)
    coarse = random.uniform(0, 255, (classes, 3, 4, 4))
    patterns = coarse.repeat(8, axis=2).repeat(8, axis=3)

    def part(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % classes
        noisy = patterns[labels] + random.normal(0, 40, (count, 3, 32, 32))
        return noisy.clip(0, 255).astype(np.uint8), labels.astype(np.uint8)

    return *part(_TRAIN), *part(_TEST)
