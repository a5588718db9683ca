import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from selfreminder.reminder.losses import distill, logit_and_label, logit_match


def logits(seed: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(n, k, generator=generator), 3 * torch.randn(n, k, generator=generator)


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(2, 12))
def test_formulae(seed: int, n: int, k: int) -> None:
    z, old = logits(seed, n, k)
    torch.testing.assert_close(logit_match(z, old), torch.stack([(a - b).pow(2).sum() for a, b in zip(z, old)]))
    p, q = F.softmax(old / 3, 1), F.softmax(z / 3, 1)
    kl = (p * (p / q).log()).sum(1)
    torch.testing.assert_close(distill(z, old, temperature=3.0), kl, rtol=1e-4, atol=1e-5)
    assert torch.equal(logit_match(z, z), torch.zeros(n))
    assert (distill(z, old) >= -1e-6).all()


def test_logit_match_is_stronger_than_distillation() -> None:
    z, old = logits(0, 4, 5)
    shifted = old + torch.randn(4, 1)
    torch.testing.assert_close(distill(z, shifted), distill(z, old))
    assert not torch.allclose(logit_match(z, shifted), logit_match(z, old))


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 6))
def test_masked_logits_do_not_count(seed: int, narrow: int, more: int) -> None:
    """Items with fewer logits: values and gradients are those of the narrow problem."""
    z, old = logits(seed, 3, narrow + more)
    labels = torch.zeros(3, dtype=torch.long)
    mask = torch.arange(narrow + more).expand(3, -1) < narrow
    pairs = [
        (lambda a, b, m: logit_match(a, b, m)),
        (lambda a, b, m: distill(a, b, m)),
        (lambda a, b, m: logit_and_label(a, b, labels, m)),
    ]
    for loss in pairs:
        wide = z.clone().requires_grad_()
        slim = z[:, :narrow].clone().requires_grad_()
        a, b = loss(wide, old, mask), loss(slim, old[:, :narrow], None)
        torch.testing.assert_close(a, b)
        a.sum().backward()
        b.sum().backward()
        torch.testing.assert_close(wide.grad[:, :narrow], slim.grad)
        assert torch.equal(wide.grad[:, narrow:], torch.zeros(3, more))


def test_unknown_labels_have_no_label_loss() -> None:
    z, old = logits(1, 2, 4)
    both = logit_and_label(z, old, torch.tensor([-1, 2]), label_weight=0.5, logit_weight=2.0)
    expected = 2 * logit_match(z, old) + torch.tensor([0.0, 0.5 * F.cross_entropy(z[1:], torch.tensor([2]))])
    torch.testing.assert_close(both, expected)
