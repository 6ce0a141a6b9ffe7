"""Every objective against the loop oracle, and what surrounds the mathematics: masks, batches, dtypes, upstream."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.objectives import VARIANTS, pair_weights, triplet_weights
from goal_sweep.goal_core.objectives import mining as similarity_module
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective, NonFiniteError, ShapeError
from tests.helpers import objective_oracle as oracle
from tests.helpers.dense_gradient import dense

PAPER_GRID = [(pair, triplet) for pair in oracle.PAIRS for triplet in oracle.TRIPLETS]
GRID = [(pair, triplet) for pair in pair_weights for triplet in triplet_weights]
"""Every registered weight, the paper's and those a reader of the docs has added."""
ATOMS = {"paper": oracle.Atoms(), "tables": oracle.tables(), "released": oracle.released()}


def batch(num_pairs: int, dim: int = 6, seed: int = 0, match: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(num_pairs, dim, generator=generator, dtype=torch.float64)
    texts = match * images + torch.randn(num_pairs, dim, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(images), torch.nn.functional.normalize(texts)


def gradients(objective: GradientObjective, images: Tensor, texts: Tensor, ids: Tensor | None = None) -> Tensor:
    """Both gradients, stacked: shape (2, N, D)."""
    images, texts = images.clone().requires_grad_(), texts.clone().requires_grad_()
    return torch.stack(torch.autograd.grad(objective(images, texts, ids), (images, texts)))


def from_oracle(
    images: Tensor, texts: Tensor, pair: str, triplet: str, atoms: oracle.Atoms, ids: Tensor | None = None
) -> Tensor:
    d_images, d_texts = oracle.embedding_gradients(
        images.tolist(), texts.tolist(), pair, triplet, atoms, None if ids is None else ids.tolist()
    )
    return torch.tensor([d_images, d_texts], dtype=torch.float64)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("pair", "triplet"), PAPER_GRID)
def test_gradient_is_the_oracles(pair: str, triplet: str, variant: str) -> None:
    objective = GradientObjective(pair=pair, triplet=triplet, variant=variant)
    for seed, (num_pairs, match) in enumerate([(1, 0.0), (2, 1.0), (3, 0.0), (13, 0.0), (13, 0.7), (13, 3.0)]):
        images, texts = batch(num_pairs, seed=seed, match=match)
        for ids in (None, torch.arange(num_pairs) // 2):
            expected = from_oracle(images, texts, pair, triplet, ATOMS[variant], ids)
            torch.testing.assert_close(gradients(objective, images, texts, ids), expected, rtol=0, atol=1e-12)
            single = gradients(objective, images.float(), texts.float(), ids)
            scale = max(1.0, float(expected.abs().max()))
            torch.testing.assert_close(single.double(), expected, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize(("pair", "triplet"), [("sig-ms", "cir"), ("lin-ms", "con"), ("sig", "nca")])
def test_every_atom_reaches_the_gradient_and_agrees_with_the_oracle(pair: str, triplet: str) -> None:
    changes: dict[str, Any] = {
        "margin": 0.35,
        "gate": False,
        "tau": 4.0,
        "cir_shift": 0.3,
        "alpha": 3.5,
        "beta": 6.0,
        "lam": 0.2,
        "eps": 0.02,
        "strict": False,
        "count_ties": False,
        "empty": "zero",
    }
    images, texts = batch(9, seed=5, match=0.6)
    images[1], texts[1] = images[0], texts[0]  # ties, for strictness and their counting
    default = gradients(GradientObjective(pair=pair, triplet=triplet), images, texts)
    for name in GradientObjective(pair=pair, triplet=triplet).params:
        objective = GradientObjective(pair=pair, triplet=triplet, **{name: changes[name]})
        actual = gradients(objective, images, texts)
        atoms = oracle.Atoms()
        setattr(atoms, name, changes[name])
        torch.testing.assert_close(
            actual,
            from_oracle(images, texts, pair, triplet, atoms),
            rtol=0,
            atol=1e-12,
            msg=partial("{}: {}".format, name),
        )
        if name not in ("strict", "empty", "count_ties"):
            assert not torch.equal(actual, default), name


def test_strictness_and_ties_decide_at_the_threshold() -> None:
    """Similarities that floats hold exactly: X = S and Y = identity, eps = 1/4."""
    S = [[0.75, 0.0, 0.0], [0.25, 0.25, 0.0], [0.0, 1.0, 0.75]]
    results = []
    for strict in (True, False):
        for count_ties in (True, False):
            objective = GradientObjective(
                pair="lin-ms", triplet="con", gate=False, eps=0.25, strict=strict, count_ties=count_ties
            )
            images, texts = torch.tensor(S, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
            G = dense(objective.forward_with_stats(images, texts)[1].gradient)
            atoms = oracle.Atoms(gate=False, eps=0.25, strict=strict, count_ties=count_ties)
            expected = torch.tensor(oracle.similarity_gradient(S, "lin-ms", "con", atoms), dtype=torch.float64)
            torch.testing.assert_close(G, expected, rtol=0, atol=1e-15)
            results.append(G)
    assert all(not torch.equal(a, b) for i, a in enumerate(results) for b in results[:i])


def test_empty_sets_give_sig_with_neutral_and_an_exponential_with_zero() -> None:
    """Other positives far above the negatives, negatives far below the positives: P and N are empty."""
    images = torch.tensor([[0.9, 0.0, 0.1], [0.1, 0.9, 0.0], [0.0, 0.1, 0.9]], dtype=torch.float64)
    texts = torch.eye(3, dtype=torch.float64)
    by_rule = {
        empty: GradientObjective(pair="sig-ms", triplet="nca", empty=empty).forward_with_stats(images, texts)[1]
        for empty in ("neutral", "zero")
    }
    assert not by_rule["zero"].set_sizes["pos_set"].any()
    assert not by_rule["zero"].set_sizes["neg_set"].any()
    sig = GradientObjective(pair="sig", triplet="nca").forward_with_stats(images, texts)[1]
    torch.testing.assert_close(by_rule["neutral"].pair_pos, sig.pair_pos)
    torch.testing.assert_close(by_rule["neutral"].pair_neg, sig.pair_neg)
    torch.testing.assert_close(by_rule["zero"].pair_pos, torch.exp(-2 * (by_rule["zero"].pos - 0.5)))
    torch.testing.assert_close(by_rule["zero"].pair_neg, torch.exp(10 * (by_rule["zero"].neg - 0.5)))


def test_embeddings_that_are_not_of_unit_length_are_told_once() -> None:
    images, texts = batch(4)
    objective = GradientObjective(pair="con", triplet="con")
    with pytest.warns(UserWarning, match="4 of 4 image embeddings"):
        objective(2 * images, texts)
    objective(2 * images, texts)
    GradientObjective(pair="con", triplet="con")(images.half(), texts.half())


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_ties_take_the_first_index_across_blocks(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setitem(similarity_module.BLOCK_ENTRIES, "cpu", rows * 4)
    S, objective = torch.full((4, 4), 0.5), GradientObjective(pair="con", triplet="con")
    G = dense(objective.forward_with_stats(S, torch.eye(4))[1].gradient)
    assert G.tolist() == [[-2, 2, 1, 1], [2, -2, 0, 0], [1, 0, -2, 0], [1, 0, 0, -2]]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("num_pairs", [1, 6])
@pytest.mark.parametrize("which", ["image", "text"])
def test_non_finite_embeddings_are_an_error(bad: float, num_pairs: int, which: str) -> None:
    images, texts = batch(num_pairs)
    (images if which == "image" else texts)[-1, 2] = bad
    with pytest.raises(NonFiniteError, match=f"1 of {num_pairs} {which}s"):
        GradientObjective(pair="con", triplet="nca")(images, texts)
    stats = GradientObjective(pair="con", triplet="nca", check_finite=False).forward_with_stats(images, texts)[1]
    assert not stats.finite
    assert issubclass(NonFiniteError, GoalError)


def test_overflowing_similarities_are_an_error() -> None:
    huge = torch.full((3, 4), 1e30)
    with pytest.raises(NonFiniteError, match="L2-normalised"):
        GradientObjective(pair="con", triplet="con")(huge, huge)


@pytest.mark.parametrize(
    ("images", "texts", "ids", "message"),
    [
        (torch.ones(3, 2), torch.ones(4, 2), None, r"equal shape \(N, D\).*\(3, 2\).*\(4, 2\)"),
        (torch.ones(3, 2), torch.ones(3, 5), None, "equal shape"),
        (torch.ones(3), torch.ones(3), None, "equal shape"),
        (torch.ones(0, 2), torch.ones(0, 2), None, "at least one pair"),
        (torch.ones(3, 2, dtype=torch.long), torch.ones(3, 2), None, "floating point"),
        (torch.ones(3, 2), torch.ones(3, 2), torch.zeros(2), r"ids must have shape \(3,\).*\(2,\)"),
    ],
)
def test_batches_that_do_not_fit_are_an_error(images: Tensor, texts: Tensor, ids: Tensor | None, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        GradientObjective(pair="con", triplet="con")(images, texts, ids)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("pair", "triplet"), GRID)
def test_half_precision_is_computed_in_float32(pair: str, triplet: str, dtype: torch.dtype) -> None:
    images, texts = (emb.to(dtype) for emb in batch(24, dim=16, match=0.5))
    objective = GradientObjective(pair=pair, triplet=triplet)
    images.requires_grad_(), texts.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scalar = objective(images, texts)
        assert scalar.dtype == torch.float32
        grads = torch.autograd.grad(scalar, (images, texts))
    half = torch.stack(grads)
    images, texts = images.detach(), texts.detach()
    single = gradients(objective, images.float(), texts.float())
    assert half.dtype == dtype
    assert torch.equal(half, single.to(dtype))


def test_works_without_gradient_and_for_one_side_only() -> None:
    images, texts = batch(7)
    objective = GradientObjective(pair="sig-ms", triplet="cir")
    with torch.no_grad():
        assert not objective(images, texts).requires_grad
    with torch.inference_mode():
        assert float(objective(images, texts)) >= 0
    both = gradients(objective, images, texts)
    images.requires_grad_()
    objective(images, texts).backward()
    assert images.grad is not None
    assert torch.equal(images.grad, both[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("pair", "triplet"), GRID)
def test_cuda_agrees_with_the_cpu(pair: str, triplet: str) -> None:
    images, texts = batch(100, dim=32, match=0.4)
    for variant in VARIANTS:
        objective = GradientObjective(pair=pair, triplet=triplet, variant=variant)
        on_device = gradients(objective, images.cuda(), texts.cuda())
        torch.testing.assert_close(on_device.cpu(), gradients(objective, images, texts), rtol=1e-10, atol=1e-10)
