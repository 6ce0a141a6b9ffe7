"""The objectives of several cells at once, against the loop oracle and against each cell's own objective."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from goal_sweep.goal_core.objectives import VARIANTS, PairWeights, Triplets, mining, pair_weights
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective, StackedObjectives
from tests.helpers import objective_oracle as oracle
from tests.helpers.statistics import numbers_of

GRID = [(pair, triplet) for pair in oracle.PAIRS for triplet in oracle.TRIPLETS]
ATOMS = {"paper": oracle.Atoms(), "tables": oracle.tables(), "released": oracle.released()}


def batches(cells: int, pairs: int, dim: int = 6, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Embeddings (C, N, D) of images and texts, another match in every cell."""
    generator = torch.Generator().manual_seed(pairs)
    images, noise = torch.randn(2, cells, pairs, dim, generator=generator, dtype=torch.float64)
    match = torch.linspace(0, 3, cells, dtype=torch.float64)[:, None, None]
    return normalize(images, dim=-1).to(dtype), normalize(match * images + noise, dim=-1).to(dtype)


def built(variant: str = "paper", names: list[tuple[str, str]] = GRID) -> list[GradientObjective]:
    return [GradientObjective(pair=pair, triplet=triplet, variant=variant) for pair, triplet in names]


def gradients(
    objectives: list[GradientObjective], images: Tensor, texts: Tensor, ids: Tensor | None, factors: Tensor
) -> Tensor:
    """Both gradients of every cell, (2, C, N, D)."""
    images, texts = images.clone().requires_grad_(), texts.clone().requires_grad_()
    scalar = (StackedObjectives(objectives)(images, texts, ids) * factors).sum()
    return torch.stack(torch.autograd.grad(scalar, (images, texts)))


@pytest.fixture(params=["together", "in blocks", "made anew"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ways in which a batch is computed: small, larger than a block, larger than what is kept."""
    if request.param != "together":
        monkeypatch.setitem(mining.BLOCK_ENTRIES, "cpu", 300)
    if request.param == "made anew":
        monkeypatch.setattr(mining, "STORED_ENTRIES", 1)
    return str(request.param)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("with_ids", [False, True])
def test_every_cells_gradient_is_the_oracles(variant: str, with_ids: bool, way: str) -> None:
    images, texts = batches(len(GRID), 9)
    ids = torch.arange(9) // 2 if with_ids else None
    factors = torch.linspace(0.5, 2, len(GRID), dtype=torch.float64)
    ours = gradients(built(variant), images, texts, ids, factors)
    for cell, (pair, triplet) in enumerate(GRID):
        rows = images[cell].tolist(), texts[cell].tolist()
        theirs = oracle.embedding_gradients(*rows, pair, triplet, ATOMS[variant], None if ids is None else ids.tolist())
        expected = torch.tensor(theirs, dtype=torch.float64) * factors[cell]
        torch.testing.assert_close(ours[:, cell], expected, rtol=1e-12, atol=1e-12)


def test_numbers_are_those_of_each_cells_own_objective(way: str) -> None:
    images, texts = (emb.float() for emb in batches(len(GRID), 33, 16))
    objectives = built()
    scalars, stats = StackedObjectives(objectives).forward_with_stats(images, texts)
    assert scalars.dtype == torch.float32
    assert stats.finite.all()
    for cell, (objective, values) in enumerate(zip(objectives, numbers_of(stats), strict=True)):
        scalar, own = objective.forward_with_stats(images[cell], texts[cell])
        torch.testing.assert_close(scalars[cell], scalar, rtol=1e-5, atol=0)
        (expected,) = numbers_of(own)
        assert values == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_in_its_cell(bad: float, way: str) -> None:
    images, texts = batches(len(GRID), 9)
    clean = gradients(built(), images, texts, None, torch.ones(len(GRID)))
    images[12, 4, 0] = bad
    dirty = gradients(built(), images, texts, None, torch.ones(len(GRID)))
    finite = StackedObjectives(built()).forward_with_stats(images, texts)[1].finite
    assert finite.logical_not().nonzero().flatten().tolist() == [12]
    others = [cell for cell in range(len(GRID)) if cell != 12]
    assert torch.equal(dirty[:, others], clean[:, others])


@pytest.fixture
def registered() -> Iterator[None]:
    """A pair weight that uses the whole batch."""

    @pair_weights.register("centred", source="test")
    def centred(triplets: Triplets) -> PairWeights:
        return PairWeights(1 - triplets.pos, triplets.neg - triplets.neg.mean() + triplets.pos.shape[0])

    yield
    del pair_weights["centred"]


@pytest.mark.usefixtures("registered")
def test_a_registered_weight_sees_one_cell_at_a_time(way: str) -> None:
    names = [("con", "con"), ("centred", "nca"), ("lin-ms", "cir"), ("centred", "con"), ("con", "nca")]
    images, texts = batches(len(names), 7)
    ours = gradients(built(names=names), images, texts, None, torch.ones(len(names)))
    for cell, objective in enumerate(built(names=names)):
        own = [emb[cell].clone().requires_grad_() for emb in (images, texts)]
        objective(own[0], own[1]).backward()
        for gradient, leaf in zip(ours[:, cell], own, strict=True):
            torch.testing.assert_close(gradient, leaf.grad, rtol=1e-12, atol=1e-12)


def test_cells_with_one_weight_have_their_own_parameters() -> None:
    mixed = [GradientObjective(pair="sig", triplet="nca", beta=beta) for beta in (10.0, 5.0, 10.0)]
    images, texts = batches(3, 7)
    values = numbers_of(StackedObjectives(mixed).forward_with_stats(images, texts)[1])
    for cell in range(3):
        (own,) = numbers_of(mixed[cell].forward_with_stats(images[cell], texts[cell])[1])
        assert values[cell] == pytest.approx(own, rel=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_the_cpu() -> None:
    images, texts = batches(len(GRID), 40, 16)
    ids, factors = torch.arange(40) // 2, torch.linspace(0.5, 2, len(GRID), dtype=torch.float64)
    here = gradients(built(), images, texts, ids, factors)
    there = gradients(built(), images.cuda(), texts.cuda(), ids.cuda(), factors.cuda())
    torch.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-12)
    on_device = numbers_of(StackedObjectives(built()).forward_with_stats(images.cuda(), texts.cuda())[1])
    in_memory = numbers_of(StackedObjectives(built()).forward_with_stats(images, texts)[1])
    for ours, own in zip(on_device, in_memory, strict=True):
        assert ours == pytest.approx(own, rel=1e-9)
