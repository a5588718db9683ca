"""The influence of training points on a validation loss (Koh and Liang 2017, "Understanding black-box predictions").

    I(z) = −∇L_val(θ)ᵀ (H + damping·I)⁻¹ ∇L(z, θ)

How L_val, the mean validation loss, changes when a point z weighs more in training; H is the Hessian of the mean
training loss. Where I is negative, the point helps. To leave z out of n points changes L_val by about −I(z)/n.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.eval_mode import eval_mode
from selfreminder.gradients.per_sample import Inputs, LogitFunction, take_rows

SOLVERS = ("cg", "lissa")
Data = tuple[Inputs, Tensor]
"""inputs and labels (n,)"""

_RAISES = 8
"""how often damping is raised before it is hopeless"""
_LANCZOS_STEPS = 20


def estimate_influence(
    model: nn.Module,
    logits_of: LogitFunction,
    inputs: Inputs,
    labels: Tensor,
    validation: Data,
    *,
    damping: float = 0.01,
    solver: str = "cg",
    iterations: int | None = None,
    tolerance: float = 0.01,
    samples: int | None = None,
    batch_size: int = 512,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(n,) effects on the mean validation loss of up-weighting each training point, on the CPU.

    Over all parameters that require a gradient, in eval mode; the model is left as it was. A network is not convex:
    where the solver meets negative curvature, damping is raised tenfold, and it starts again.

    Args:
        model: one that has been trained on these points.
        logits_of: how to call it.
        inputs, labels: the training points.
        validation: inputs and labels that the model was not trained on.
        damping: what is added to the Hessian's diagonal: the factor of ‖θ‖²/2 in the training loss, or more.
        solver: "cg", conjugate gradients, or "lissa", a series in which each step looks at a random batch.
        iterations: the most of them; by default 100 of "cg", 500 of "lissa".
        tolerance: "cg" stops where the residual is so small a part of the validation gradient.
        samples: so many training points, drawn at random, give the Hessian; by default all.
        batch_size: samples in a pass.
        generator: for all random choice.

    >>> x, y = torch.rand(20, 4), torch.arange(20) % 3
    >>> estimate_influence(nn.Linear(4, 3), lambda model, x: model(x), x, y, (x, y)).shape
    torch.Size([20])
    """
    if solver not in SOLVERS:
        raise unknown("solver", str(solver), SOLVERS)
    _check_above_zero("damping", damping)
    _check_above_zero("tolerance", tolerance)
    _check_above_zero("iterations", iterations, whole=True)
    _check_above_zero("samples", samples, whole=True)
    if not len(labels) or not len(validation[1]):
        raise SelfReminderError(f"no influence of {len(labels)} points on {len(validation[1])} validation points")
    generator = torch.Generator() if generator is None else generator
    data = part = inputs, labels
    if samples is not None and samples < len(labels):
        part = _take(data, torch.randperm(len(labels), generator=generator, device=generator.device)[:samples])
    # Other ways of attention cannot be differentiated twice.
    with torch.enable_grad(), eval_mode(model), sdpa_kernel(SDPBackend.MATH):
        loss = _Loss(model, logits_of, batch_size)
        target = loss.gradient(validation)
        if solver == "cg":
            solve = _conjugate_gradients(loss, part, target, iterations or 100, tolerance)
        else:
            solve = _lissa(loss, part, target, iterations or 500, generator)
        return -loss.gradient_products(data, _solve_damped(solve, damping))


def _check_above_zero(name: str, value: float | None, *, whole: bool = False) -> None:
    right = isinstance(value, int if whole else int | float) and 0 < value < math.inf
    if value is not None and not right:
        raise SelfReminderError(f"influence with {name} {value!r}: it must be a {'whole ' * whole}number above 0")


def _take(data: Data, index: Tensor) -> Data:
    inputs, labels = data
    return take_rows(inputs, index), labels[index.to(labels.device)]


class _Loss:
    """Cross entropy as a function of the parameters that require a gradient. A vector holds a number for each.

    Second derivatives are by backward twice: faster here than forward mode, and more layers can do it.
    """

    def __init__(self, model: nn.Module, logits_of: LogitFunction, batch_size: int) -> None:
        self.model, self.logits_of, self.batch_size = model, logits_of, batch_size
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise SelfReminderError("no parameter of the model requires a gradient: nothing has an influence on it")

    def gradient(self, data: Data, vector: Tensor | None = None) -> Tensor:
        """The gradient of the mean loss; with a vector, that of its product with it: the Hessian times the vector."""
        first = self.parameters[0]
        total = torch.zeros(sum(p.numel() for p in self.parameters), dtype=first.dtype, device=first.device)
        for logits, labels in self._logits(data):
            loss = F.cross_entropy(logits, labels, reduction="sum")
            gradient = self._backward(loss, create_graph=vector is not None)
            total += gradient if vector is None else self._backward(gradient @ vector)
        return total / len(data[1])

    def gradient_products(self, data: Data, vector: Tensor) -> Tensor:
        """(n,) each sample's gradient times a vector, from the derivative of all logits in that direction."""
        products = []
        for logits, labels in self._logits(data):
            # With u in the logits' place, Jᵀu · vector is linear in u: its gradient is J · vector.
            u = torch.zeros_like(logits, requires_grad=True)
            (change,) = torch.autograd.grad(self._backward(logits, u, create_graph=True) @ vector, u)
            own = change.gather(1, labels[:, None])
            # As softmax minus one-hot, times the change; but nothing is taken from a probability that rounds to 1.
            products.append((logits.detach().softmax(1) * (change - own)).sum(1).cpu())
        return torch.cat(products)

    def _logits(self, data: Data) -> Iterator[tuple[Tensor, Tensor]]:
        """Of each batch the logits, and the labels beside them."""
        inputs, labels = data
        for start in range(0, len(labels), self.batch_size):
            part = slice(start, start + self.batch_size)
            logits = self.logits_of(self.model, take_rows(inputs, part))
            if not logits.requires_grad:
                raise SelfReminderError("the logits carry no gradient: call the model without torch.no_grad or detach")
            yield logits, labels[part].to(logits.device)

    def _backward(self, output: Tensor, gradient: Tensor | None = None, *, create_graph: bool = False) -> Tensor:
        gradients = torch.autograd.grad(
            output, self.parameters, gradient, create_graph=create_graph, materialize_grads=True
        )
        return torch.cat([g.flatten() for g in gradients])


# Solvers: from a damping to x with (H + damping·I) x = b, or to None where the curvature is negative. ------------

_Solver = Callable[[float], Tensor | None]


def _solve_damped(solve: _Solver, damping: float) -> Tensor:
    for _ in range(_RAISES + 1):
        solution = solve(damping)
        if solution is not None:
            return solution
        damping *= 10
    raise SelfReminderError(
        f"no influence: the curvature of the loss is negative, or not finite, also with damping {damping / 10:g}; "
        "train the model first, and look for weights and inputs that are not finite"
    )


def _conjugate_gradients(loss: _Loss, data: Data, b: Tensor, iterations: int, tolerance: float) -> _Solver:
    def solve(damping: float) -> Tensor | None:
        x, residual, direction = torch.zeros_like(b), b.clone(), b.clone()
        square = float(b @ b)
        goal = tolerance**2 * square
        for _ in range(iterations):
            if square <= goal:
                break
            change = loss.gradient(data, direction).add_(direction, alpha=damping)
            curvature = float(direction @ change)
            if not curvature > 0:
                return None
            x.add_(direction, alpha=square / curvature)
            residual.sub_(change, alpha=square / curvature)
            before, square = square, float(residual @ residual)
            direction.mul_(square / before).add_(residual)
        return x

    return solve


def _lissa(loss: _Loss, data: Data, b: Tensor, iterations: int, generator: torch.Generator) -> _Solver:
    """x ← x + (b − (H + damping·I) x) / scale, with the H of a random batch; of the last half of all x, the mean."""
    n, kept = len(data[1]), iterations - iterations // 2
    least, largest = _extreme_eigenvalues(partial(loss.gradient, data), b, generator)

    def batch() -> Data:
        if n <= loss.batch_size:
            return data
        return _take(data, torch.randint(n, (loss.batch_size,), generator=generator, device=generator.device))

    def solve(damping: float) -> Tensor | None:
        if not least + damping > 0:
            return None
        x, mean = torch.zeros_like(b), torch.zeros_like(b)
        scale = 2 * max(largest, 0) + damping  # a batch's curvature may be more than that of all
        bound = 2 * float(b.norm()) / damping  # twice the most that a solution has where the curvature is positive
        for step in range(iterations):
            x += (b - loss.gradient(batch(), x) - damping * x) / scale
            if not float(x.norm()) <= bound:
                return None
            if step >= iterations - kept:
                mean += x / kept
        return mean

    return solve


def _extreme_eigenvalues(
    times: Callable[[Tensor], Tensor], like: Tensor, generator: torch.Generator
) -> tuple[float, float]:
    """About the least and the largest eigenvalue of a symmetric matrix, by Lanczos' method from a random start."""
    start = torch.randn(like.shape, generator=generator, device=generator.device, dtype=like.dtype).to(like.device)
    vector, before = start / start.norm(), torch.zeros_like(start)
    diagonal, beside = [], [0.0]
    for _ in range(min(_LANCZOS_STEPS, len(like))):
        new = times(vector) - beside[-1] * before
        diagonal.append(float(new @ vector))
        new -= diagonal[-1] * vector
        beside.append(float(new.norm()))
        if not beside[-1] > 1e-6 * max(map(abs, diagonal)):  # all directions that the start has a part in are known
            break
        before, vector = vector, new / beside[-1]
    inner = torch.tensor(beside[1 : len(diagonal)], dtype=torch.float64)
    matrix = torch.tensor(diagonal, dtype=torch.float64).diag() + inner.diag(1) + inner.diag(-1)
    if not matrix.isfinite().all():
        return math.nan, math.nan
    values = torch.linalg.eigvalsh(matrix)
    return float(values[0]), float(values[-1])
