"""What must hold for any batch."""

import torch
from torch import Tensor

from goal_sweep.goal_core.objectives import pair_weights, triplet_weights
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from tests.helpers import objective_oracle as oracle
from tests.helpers.dense_gradient import dense
from tests.helpers.properties import given, settings, st

combinations = st.fixed_dictionaries(
    {
        "pair": st.sampled_from(list(pair_weights)),
        "triplet": st.sampled_from(list(triplet_weights)),
        "variant": st.sampled_from(("paper", "tables", "released")),
    }
)
few = settings(max_examples=50, deadline=None, derandomize=True)


@st.composite
def batches(draw: st.DrawFn, min_pairs: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    num_pairs, dim = draw(st.integers(min_pairs, 12)), draw(st.integers(2, 6))
    match = draw(st.floats(0, 4))
    images = torch.randn(num_pairs, dim, generator=generator, dtype=torch.float64)
    texts = match * images + torch.randn(num_pairs, dim, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(images), torch.nn.functional.normalize(texts)


def gradients(combination: dict[str, str], images: Tensor, texts: Tensor, ids: Tensor | None = None) -> Tensor:
    images, texts = images.clone().requires_grad_(), texts.clone().requires_grad_()
    objective = GradientObjective(**combination)  # type: ignore[arg-type]  # strings only
    return torch.stack(torch.autograd.grad(objective(images, texts, ids), (images, texts)))


@few
@given(combinations, batches(), st.randoms(use_true_random=False))
def test_permuting_the_batch_permutes_the_gradient(combination, batch, random) -> None:
    images, texts = batch
    order = list(range(len(images)))
    random.shuffle(order)
    expected = gradients(combination, images, texts)[:, order]
    torch.testing.assert_close(gradients(combination, images[order], texts[order]), expected, rtol=1e-9, atol=1e-9)


@few
@given(combinations, batches())
def test_swapping_the_modalities_swaps_the_gradients(combination, batch) -> None:
    images, texts = batch
    swapped = gradients(combination, texts, images).flip(0)
    torch.testing.assert_close(swapped, gradients(combination, images, texts), rtol=1e-9, atol=1e-9)


@few
@given(combinations, batches(), st.floats(1e-6, 1e6))
def test_scaling_the_result_scales_the_gradient(combination, batch, factor) -> None:
    images, texts = (emb.requires_grad_() for emb in batch)
    objective = GradientObjective(**combination)
    scaled = torch.stack(torch.autograd.grad(factor * objective(images, texts), (images, texts)))
    torch.testing.assert_close(scaled, factor * gradients(combination, *batch), rtol=1e-12, atol=1e-14 * factor)


@few
@given(combinations, batches(min_pairs=3), st.data())
def test_masking_a_pair_is_removing_it_for_the_anchor(combination, batch, data) -> None:
    """Two pairs of one id: what the first one's anchors push and pull is what they do in a batch without the second."""
    images, texts = batch
    num_pairs = len(images)
    # The smallest diagonal sets the whole batch's threshold, also for anchors that may not see its pair.
    lowest = int((images * texts).sum(1).argmin())
    anchor = data.draw(st.integers(0, num_pairs - 1))
    other = data.draw(st.integers(0, num_pairs - 1).filter(lambda k: k not in (anchor, lowest)))
    ids = torch.arange(num_pairs)
    ids[other] = anchor
    keep = [k for k in range(num_pairs) if k != other]
    objective = GradientObjective(**combination)
    masked = objective.forward_with_stats(images, texts, ids)[1]
    removed = objective.forward_with_stats(images[keep], texts[keep])[1]
    here, there = anchor, keep.index(anchor)
    for direction in (0, 1):
        for name in ("neg", "triplet", "pair_pos", "pair_neg"):
            a = getattr(masked, name)[direction * num_pairs + here]
            b = getattr(removed, name)[direction * (num_pairs - 1) + there]
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@few
@given(combinations.filter(lambda c: c["pair"] in oracle.PAIRS and c["pair"] != "lin-ms"), batches())
def test_pairs_are_pulled_and_pushes_have_the_sign_of_their_weight(combination, batch) -> None:
    objective = GradientObjective(**combination)
    stats = objective.forward_with_stats(*batch)[1]
    G = dense(stats.gradient)
    assert (G.diagonal() <= 0).all()
    if combination["pair"] != "lin":
        assert (G - G.diagonal().diag() >= 0).all()
    push = stats.triplet * stats.pair_neg * stats.valid
    torch.testing.assert_close((G - G.diagonal().diag()).sum(), push.sum(), rtol=1e-9, atol=1e-9)


@few
@given(st.sampled_from(oracle.TRIPLETS), st.floats(-0.9, 0.9), st.floats(0, 0.9), st.floats(0, 0.5))
def test_triplet_weights_fall_with_the_positive_and_rise_with_the_negative(triplet, pos, neg, step) -> None:
    def weight(s_p: float, s_n: float) -> float:
        S = torch.tensor([[s_p, s_n], [-5.0, s_p]], dtype=torch.float64)
        stats = GradientObjective(pair="con", triplet=triplet).forward_with_stats(S, torch.eye(2, dtype=S.dtype))[1]
        return float(stats.triplet[0])

    assert weight(min(1, pos + step), neg) <= weight(pos, neg) <= weight(pos, neg + step)
