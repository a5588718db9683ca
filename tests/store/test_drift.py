import json
from statistics import NormalDist

import pytest
import torch
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder.reminder.model_call import ModelCall
from selfreminder.store.drift import Seen, compute_mmd, find_drift, listen, mmd_test, share_test


def draw(n: int, generator: torch.Generator, by: float = 0.0, classes: int = 3) -> Seen:
    """Normal features of five columns, the first moved."""
    features = torch.randn(n, 5, generator=generator) * torch.tensor([1.0, 10.0, 0.1, 1.0, 1.0])
    features[:, 0] += by
    return Seen(features, torch.randint(classes, (n,), generator=generator))


def rejected(ps: list[float], level: float) -> float:
    return sum(p <= level for p in ps) / len(ps)


def band(level: float, n: int) -> tuple[float, float]:
    """Where the share of n is but for one in a thousand times on either side, if its probability is `level`."""
    error = NormalDist().inv_cdf(0.999) * (level * (1 - level) / n) ** 0.5
    return level - error, level + error


def test_without_drift_p_values_are_uniform() -> None:
    generator = torch.Generator().manual_seed(0)
    ps = [mmd_test(draw(40, generator).features, draw(30, generator).features, 99, generator) for _ in range(400)]
    for level in (0.05, 0.2, 0.5, 0.8):
        low, high = band(level, 400)
        assert low < rejected(ps, level) < high


def test_drift_is_found() -> None:
    generator = torch.Generator().manual_seed(1)
    ps = [
        mmd_test(draw(100, generator).features, draw(100, generator, by=1).features, 99, generator) for _ in range(40)
    ]
    assert rejected(ps, 0.05) == 1
    other = [draw(100, generator).features * 2 for _ in range(40)]  # another spread, the same mean
    ps = [mmd_test(draw(100, generator).features, x, 99, generator) for x in other]
    assert rejected(ps, 0.05) > 0.9


def test_mmd_is_the_mean_over_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = draw(12, generator).features, draw(9, generator, by=1).features
    both = torch.cat([old, new]).double()
    both = (both - both.mean(0)) / both.std(0, correction=0)
    squares = (both[:, None] - both[None]).square().sum(2)
    kernel = torch.exp(-squares / squares[*torch.triu_indices(21, 21, 1)].median())
    expected = kernel[:12, :12].mean() + kernel[12:, 12:].mean() - 2 * kernel[:12, 12:].mean()
    assert compute_mmd(old, new, 3, generator)[0].item() == pytest.approx(expected.item(), rel=1e-4)


def test_classes_that_moved_are_named_and_others_are_not() -> None:
    generator = torch.Generator().manual_seed(2)
    named, false = 0, 0
    for _ in range(20):
        then, now = draw(300, generator), draw(300, generator)
        now.features[now.classes == 1] += torch.tensor([1.5, 0, 0, 0, 0])
        found = find_drift({"v1": then}, now, generator=generator, names=["a", "b", "c"], alpha=0.05, permutations=99)
        named += "b" in found.moved
        false += bool({"a", "c"} & {*found.moved})
        assert found.drifted == (found.p <= 0.05)
    assert named == 20
    assert false <= 3


def test_no_drift_names_hardly_any_class() -> None:
    generator = torch.Generator().manual_seed(3)
    found = [
        find_drift({"v1": draw(90, generator)}, draw(90, generator), generator=generator, alpha=0.1, permutations=99)
        for _ in range(100)
    ]
    assert sum(each.drifted for each in found) / 100 < band(0.1, 100)[1]
    assert sum(bool(each.moved) for each in found) / 100 < band(0.1, 100)[1]


def test_a_class_that_is_predicted_more_often_has_moved() -> None:
    generator = torch.Generator().manual_seed(4)
    then, now = draw(500, generator), draw(500, generator)
    now = Seen(now.features, torch.where(torch.rand(500, generator=generator) < 0.5, 2, now.classes))
    found = find_drift({"v1": then}, now, generator=generator, names=["a", "b", "c"])
    assert "c" in found.moved
    assert next(each for each in found.classes if each.name == "c").share_now > 0.6
    assert share_test(50, 100, 52, 100) > 0.5


def test_what_comes_back_is_no_drift_nor_is_a_mixture() -> None:
    generator = torch.Generator().manual_seed(5)
    old = {"v1": draw(200, generator), "v2": draw(200, generator, by=3)}
    again = find_drift(old, draw(200, generator, by=3), generator=generator)
    assert not again.drifted
    assert again.nearest == "v2"
    assert again.p_by_slice["v1"] < 0.01
    mixed = [draw(100, generator), draw(100, generator, by=3)]
    joined = Seen(torch.cat([each.features for each in mixed]), torch.cat([each.classes for each in mixed]))
    assert find_drift(old, joined, generator=generator).nearest == "all"
    other = find_drift(old, draw(200, generator, by=-3), generator=generator)
    assert other.drifted
    assert json.loads(json.dumps(other.to_dict()))["drifted"] is True


def test_the_same_seed_gives_the_same_and_constant_features_no_drift() -> None:
    def find() -> dict[str, object]:
        generator = torch.Generator().manual_seed(6)
        return find_drift(
            {"v1": draw(400, generator)}, draw(400, generator, by=0.1), generator=generator, most=100
        ).to_dict()

    assert find() == find()
    flat = Seen(torch.ones(50, 3), torch.zeros(50, dtype=torch.long))
    assert find_drift({"v1": flat}, flat, generator=torch.Generator().manual_seed(0)).p == 1


class Twisted(nn.Module):
    """Its layers are not in the order in which they are called."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(6, 3), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu())


def test_features_are_what_goes_into_the_last_linear_layer() -> None:
    torch.manual_seed(0)
    x, model = torch.rand(300, 4), Twisted()
    with listen(model) as heard:
        logits = ModelCall().compute_logits(model, x, 0)
    seen = Seen.of(heard, logits)
    assert torch.allclose(seen.features, model.body(x).relu(), atol=1e-6)
    assert torch.equal(seen.classes, logits.argmax(1))
    assert not any(layer._forward_pre_hooks or layer._forward_hooks for layer in model.modules())
    assert torch.equal(Seen.of([], logits).features, logits)


def test_mistakes_are_named() -> None:
    generator = torch.Generator().manual_seed(0)
    few, enough = draw(3, generator), draw(50, generator)
    with pytest.raises(SelfReminderError, match="3 new items are too few"):
        find_drift({"v1": enough}, few, generator=generator)
    with pytest.raises(SelfReminderError, match="3 held-out items are too few"):
        find_drift({"v1": few}, enough, generator=generator)
    with pytest.raises(SelfReminderError, match="takes 2 / alpha"):
        find_drift({"v1": enough}, enough, generator=generator, permutations=10)
    with pytest.raises(SelfReminderError, match="nothing is held out"):
        find_drift({}, enough, generator=generator)
    with pytest.raises(SelfReminderError, match="not finite"):
        Seen(torch.full((2, 2), float("nan")), torch.zeros(2))
    with pytest.raises(SelfReminderError, match=r"\(n, d\)"):
        Seen(torch.zeros(2), torch.zeros(2))
