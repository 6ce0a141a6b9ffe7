"""Known losses, differentiated by autograd, against the combinations they should equal."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from tests.helpers.dense_gradient import dense

TAU, ALPHA, BETA, LAM, MARGIN = 10.0, 2.0, 10.0, 0.5, 0.2
Loss = Callable[[Tensor, Tensor], Tensor]


def softplus(z: Tensor) -> Tensor:
    """log(1 + e^z) exactly; torch's own is linear above 20."""
    return torch.logaddexp(z, torch.zeros_like(z))


def hinge(sp: Tensor, sn: Tensor) -> Tensor:
    return (MARGIN + sn - sp).clamp(min=0)


def nt_xent(sp: Tensor, sn: Tensor) -> Tensor:
    return -torch.log((TAU * sp).exp() / ((TAU * sp).exp() + (TAU * sn).exp()))


def deviance(sp: Tensor, sn: Tensor) -> Tensor:
    return softplus(-ALPHA * (sp - LAM)) / ALPHA + softplus(BETA * (sn - LAM)) / BETA


def circle(shift: float) -> Loss:
    """Circle loss with O_p = 1, O_n = 0 and detached weights."""

    def loss(sp: Tensor, sn: Tensor) -> Tensor:
        return softplus(TAU * (sn.detach() * sn + (1 - sp).detach() * (1 - sp) - 1 + shift))

    return loss


CASES: dict[str, tuple[Loss, float, dict[str, str]]] = {
    "hinge": (hinge, 1, {"pair": "con", "triplet": "con"}),
    "linear": (lambda sp, sn: sn - sp, 1, {"pair": "con", "triplet": "con", "variant": "released"}),
    "nt_xent": (nt_xent, TAU, {"pair": "con", "triplet": "nca"}),
    "quadratic": (
        lambda sp, sn: ((1 - sp).square() + sn.square()) / 2,
        1,
        {"pair": "lin", "triplet": "con", "variant": "released"},
    ),
    "deviance": (deviance, 1, {"pair": "sig", "triplet": "con", "variant": "released"}),
    "circle_paper": (circle(0.0), TAU, {"pair": "lin", "triplet": "cir"}),
    "circle_released": (circle(0.5), TAU, {"pair": "lin", "triplet": "cir", "variant": "released"}),
}


def batch(seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(16, 8, generator=generator, dtype=torch.float64)
    texts = (seed % 4) * images + torch.randn(16, 8, generator=generator, dtype=torch.float64)
    return normalize(images).to(dtype).requires_grad_(), normalize(texts).to(dtype).requires_grad_()


def by_autograd(loss: Loss, images: Tensor, texts: Tensor) -> tuple[Tensor, ...]:
    """Gradient of the loss summed over the batch and both directions, hardest negatives."""
    S = images @ texts.t()
    off = S.masked_fill(torch.eye(len(S), dtype=torch.bool), -torch.inf)
    total = sum(loss(S.diagonal(), off.max(dim).values).sum() for dim in (0, 1))
    assert isinstance(total, Tensor)
    return torch.autograd.grad(total, (images, texts))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_loss_equals_its_combination(name: str, dtype: torch.dtype, tolerance: float) -> None:
    loss, factor, combination = CASES[name]
    objective = GradientObjective(**combination)  # type: ignore[arg-type]  # strings only
    for seed in range(60):
        images, texts = batch(seed, dtype)
        ours = torch.autograd.grad(factor * objective(images, texts), (images, texts))
        for a, b in zip(ours, by_autograd(loss, images, texts), strict=True):
            # A float32 gradient is a sum of up to 16 pushes of size `factor`; the tolerance is relative to that size.
            torch.testing.assert_close(a, b, rtol=0, atol=tolerance * max(1.0, factor))


def matrix_gradient(S: Tensor, **combination: str | float | bool) -> Tensor:
    """G(S): with X = S and Y = 1, S need not come from unit vectors."""
    objective = GradientObjective(**combination)  # type: ignore[arg-type]  # pair, triplet, variant and parameters
    return dense(objective.forward_with_stats(S, torch.eye(len(S), dtype=S.dtype))[1].gradient)


def similarities(seed: int) -> Tensor:
    images, texts = batch(seed, torch.float64)
    return (images @ texts.t()).detach()


def test_textbook_deviance_scales_pull_by_alpha_and_push_by_beta() -> None:
    for seed in range(20):
        S = similarities(seed).requires_grad_()
        off = S.masked_fill(torch.eye(16, dtype=torch.bool), -torch.inf)
        loss = sum(
            softplus(-ALPHA * (S.diagonal() - LAM)).sum() + softplus(BETA * (off.max(dim).values - LAM)).sum()
            for dim in (0, 1)
        )
        assert isinstance(loss, Tensor)
        (expected,) = torch.autograd.grad(loss, S)
        G = matrix_gradient(S.detach(), pair="sig", triplet="con", variant="released")
        diagonal = torch.eye(16, dtype=torch.float64)
        torch.testing.assert_close(G * (ALPHA * diagonal + BETA * (1 - diagonal)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("circle_margin", [0.25, 0.5, 0.7071])
def test_official_circle_loss_has_our_triplet_weight_with_other_pair_weights(circle_margin: float) -> None:
    """softplus(gamma (an (sn - m) - ap (sp - 1 + m))), ap = [1 + m - sp]+, an = [sn + m]+: T^cir with r^2 = 2 m^2."""
    shift = 1 - 2 * circle_margin**2
    for seed in range(20):
        S = similarities(seed)
        sp = S.diagonal().clone().requires_grad_()
        sn = S.masked_fill(torch.eye(16, dtype=torch.bool), -2).max(1).values.clone().requires_grad_()
        a_p, a_n = (1 + circle_margin - sp).detach().clamp(min=0), (sn + circle_margin).detach().clamp(min=0)
        loss = softplus(TAU * (a_n * (sn - circle_margin) - a_p * (sp - 1 + circle_margin))).sum()
        d_pos, d_neg = torch.autograd.grad(loss, (sp, sn))
        T = torch.sigmoid(TAU * (sn.square() - sp * (2 - sp) + shift))
        inside = sn + circle_margin > 0  # where the push is not clamped, its exponent is the circle's
        torch.testing.assert_close(d_pos[inside], (-TAU * T * a_p)[inside], rtol=0, atol=1e-11)
        torch.testing.assert_close(d_neg[inside], (TAU * T * a_n)[inside], rtol=0, atol=1e-11)
        stats = GradientObjective(pair="lin", triplet="cir", cir_shift=shift).forward_with_stats(
            S, torch.eye(16, dtype=S.dtype)
        )[1]
        torch.testing.assert_close(stats.triplet[:16], T.detach())


def ms_weights_exact(S: Tensor, i: int, eps: float = 0.1) -> tuple[Tensor, Tensor, list[int], list[int]]:
    """Derivatives of the original multi-similarity loss of image i on its selected pair (sets fixed)."""
    num_pairs = len(S)
    others = [k for k in range(num_pairs) if k != i]
    hardest = max(others, key=lambda j: float(S[i, j]))
    P = [k for k in others if S[k, k] < S[i, hardest] + eps]
    N = [j for j in others if j != hardest and S[i, j] > S.diagonal().min() - eps]
    S = S.clone().requires_grad_()
    positive = torch.stack([S[i, i], *(S[k, k].detach() for k in P)])
    negative = torch.stack([S[i, hardest], *(S[i, j] for j in N)])
    loss = (
        torch.log1p((-ALPHA * (positive - LAM)).exp().sum()) / ALPHA
        + torch.log1p((BETA * (negative - LAM)).exp().sum()) / BETA
    )
    (G,) = torch.autograd.grad(loss, S)
    return -G[i, i], G[i, hardest], P, N


def test_sig_ms_is_multi_similarity_with_a_mean_in_place_of_one_plus_a_sum() -> None:
    for seed in range(30):
        S = similarities(seed)
        stats = GradientObjective(pair="sig-ms", triplet="con").forward_with_stats(S, torch.eye(16, dtype=S.dtype))[1]
        for i in range(0, 16, 5):
            exact_pos, exact_neg, P, N = ms_weights_exact(S, i)
            sp, sn = stats.pos[i], stats.neg[i]
            pos_terms, neg_terms = (ALPHA * (sp - S.diagonal()[P])).exp(), (-BETA * (sn - S[i, N])).exp()
            torch.testing.assert_close(exact_pos, 1 / (1 + pos_terms.sum() + (ALPHA * (sp - LAM)).exp()))
            torch.testing.assert_close(exact_neg, 1 / (1 + neg_terms.sum() + (-BETA * (sn - LAM)).exp()))
            if P and N:
                torch.testing.assert_close(stats.pair_pos[i], 1 / (pos_terms.mean() + (ALPHA * (sp - LAM)).exp()))
                torch.testing.assert_close(stats.pair_neg[i], 1 / (neg_terms.mean() + (-BETA * (sn - LAM)).exp()))
