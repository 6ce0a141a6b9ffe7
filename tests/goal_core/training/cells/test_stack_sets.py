"""Stacked heads of VSE-infinity: pooling, batch normalisation and every cell's own draws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from goal_core.checkpoints import LAST
from goal_core.data.config import RegionsConfig
from goal_core.models.sets import GeneralizedPooling
from goal_core.models.stacked.vse_infty import pooled
from goal_core.models.systems.vse_infty import VseInftyHeads
from goal_core.training import TrainingPlan, UnitPlan, train_unit
from goal_core.training.cells import stack as cell_stack_module
from goal_core.training.cells.random_stream import RandomStream
from goal_core.training.cells.trainer import CellTrainer
from goal_core.training.config import Precision
from tests.helpers.region_files import write_regions
from tests.helpers.training_cases import (
    GRID,
    GRID_DATA,
    REGIONS,
    SET_FROZEN,
    PlainFolder,
    StopAt,
    StoppedError,
    folders_of,
    same_weights,
    train_killed,
    unit_of,
)

NAMES = ["con/con", "lin-ms/cir", "sig-ms/nca"]
NO_EFFECT = ("attention.self.key.bias", "image.mlp.first.bias")
"""Softmax and batch normalisation take these away again, so that their gradients are rounding alone."""


@pytest.fixture(params=["cells", "regions"])
def kind(request: pytest.FixtureRequest) -> str:
    """Images as the cells of a backbone, some of which a cell drops itself, or as precomputed regions."""
    return str(request.param)


@pytest.fixture
def unit(kind: str, tmp_path: Path) -> UnitPlan:
    """Both kinds drop words; their steps are five an epoch and three."""
    changes: dict[str, Any] = {"model": GRID, "data": GRID_DATA}
    if kind == "regions":
        data = RegionsConfig(name="tiny", root=str(write_regions(tmp_path / "data")), min_word_count=1)
        changes = {"model": REGIONS, "data": data}
    return unit_of(*NAMES, sharing="heads", stage=replace(SET_FROZEN, batch_size=8), **changes)


def trained(unit: UnitPlan, root: Path) -> dict[str, PlainFolder]:
    folders = folders_of(unit, root)
    train_unit(unit, folders)
    return folders


def stacked_tensors(modules: list[nn.Module]) -> dict[str, Tensor]:
    """The state of equal modules, stacked; parameters carry a gradient."""
    states = [module.state_dict(keep_vars=True) for module in modules]
    return {
        name: torch.stack([state[name].detach() for state in states]).requires_grad_(one.requires_grad)
        for name, one in states[0].items()
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_stacked_encoders_are_each_cells_own(kind: str, precision: str) -> None:
    """Embeddings, gradients, the statistics that batch normalisation keeps, and what was drawn."""
    regions = kind == "regions"
    cells = [VseInftyHeads(GRID, num_features=7, vocab_size=11, regions=regions, seed=seed) for seed in range(3)]
    tensors = stacked_tensors(list(cells))
    stacked = cells[1].stacked(tensors)
    generator = torch.Generator().manual_seed(0)
    features, factors = torch.randn(6, 9, 7, generator=generator), torch.randn(2, 3, 6, 16, generator=generator)
    sizes = torch.tensor([9, 3, 7, 1, 9, 2]) if regions else None
    tokens, lengths = torch.randint(1, 11, (6, 5), generator=generator), torch.tensor([3, 4, 1, 2, 5, 5])
    bound = 1e-5 if precision == "fp32" else 5e-2
    for training in (True, False):
        torch.manual_seed(1)
        stacked.train(training)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            ours = torch.stack(
                (stacked.encode_images(features, sizes).float(), stacked.encode_texts(tokens, lengths).float())
            )
        left = torch.get_rng_state()
        if training:
            (ours * factors).sum().backward()
        for number, cell in enumerate(cells):
            torch.manual_seed(1)
            cell.train(training)
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                own = torch.stack((cell.encode_images(features, sizes).float(), cell.encode_texts(tokens, lengths)))
            assert torch.equal(left, torch.get_rng_state())
            assert (ours[:, number] - own).abs().max() <= bound
            if training:
                (own * factors[:, number]).sum().backward()
                check_gradients(cell, tensors, number, bound)
            for name, buffer in cell.state_dict().items():
                if "running" in name or "tracked" in name:
                    torch.testing.assert_close(tensors[name][number], buffer, rtol=bound, atol=bound)


def check_gradients(cell: VseInftyHeads, tensors: dict[str, Tensor], number: int, bound: float) -> None:
    for name, parameter in cell.named_parameters():
        gradient = tensors[name].grad
        assert gradient is not None
        assert parameter.grad is not None
        if not name.endswith(NO_EFFECT):
            amplified = 3 if ".pool." in name else 1  # a softmax of temperature 0.1
            assert (gradient[number] - parameter.grad).norm() <= amplified * bound * parameter.grad.norm(), name


def test_what_is_not_finite_stays_in_its_cell(kind: str) -> None:
    cells = [VseInftyHeads(GRID, num_features=7, vocab_size=11, regions=kind == "regions", seed=1) for _ in range(3)]
    generator = torch.Generator().manual_seed(0)
    features, tokens = torch.randn(6, 9, 7, generator=generator), torch.randint(1, 11, (6, 5), generator=generator)
    found = []
    for poison in (False, True):
        tensors = stacked_tensors(list(cells))
        if poison:
            for name in ("image.fc.weight", "text.bert.embeddings.word_embeddings.weight"):
                tensors[name].data[1] = torch.nan
        stacked = cells[0].stacked(tensors)
        stacked.train(True)
        torch.manual_seed(1)
        both = torch.stack((stacked.encode_images(features), stacked.encode_texts(tokens, torch.full((6,), 5))))
        both[:, :, :3].sum().backward()
        found.append([both.detach().transpose(0, 1), *(one.grad for one in tensors.values() if one.grad is not None)])
    assert not found[1][0][1].isfinite().any()
    for clean, poisoned in zip(*found, strict=True):
        assert torch.equal(clean[[0, 2]], poisoned[[0, 2]])


def test_stacked_pooling_is_each_cells_own_for_full_sets_and_padded_ones() -> None:
    torch.manual_seed(0)
    pools = [GeneralizedPooling() for _ in range(2)]
    tensors = stacked_tensors(list(pools))
    features = torch.randn(2, 4, 6, 5)
    for lengths in (torch.tensor([6, 6, 6, 6]), torch.tensor([6, 1, 3, 6]), torch.tensor([2, 4, 4, 1])):
        ours = pooled(tensors, features, lengths)
        expected = torch.stack([pool(own, lengths) for pool, own in zip(pools, features, strict=True)])
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


def test_a_step_is_each_cells_own_but_for_rounding(unit: UnitPlan, tmp_path: Path) -> None:
    """The first moments are a tenth of the gradients. The random streams and what was counted are equal."""
    stage = replace(unit.stage, checkpoint_every=1, warmup_epochs=0)
    states: dict[str, list[dict[str, Tensor]]] = {}
    for sharing in ("none", "heads"):
        plan = replace(unit, stage=stage, sharing=sharing)
        folders = folders_of(plan, tmp_path / sharing)
        with pytest.raises(StoppedError):
            train_unit(plan, folders, StopAt(1))
        states[sharing] = [load_file(folder.path(LAST)) for folder in folders.values()]
    for ours, own in zip(states["heads"], states["none"], strict=True):
        assert ours.keys() == own.keys()
        moments = [name for name in own if name.endswith(".exp_avg")]
        largest = max(float(own[name].norm()) for name in moments)
        for name in moments:
            assert (ours[name] - own[name]).norm() <= 1e-5 * max(float(own[name].norm()), 1e-2 * largest), name
        for name in own:
            if name.startswith("heads.") and not name.endswith(NO_EFFECT):
                assert (ours[name] - own[name]).abs().max() <= 0.05 * stage.lr, name
        exact = [name for name in own if name.startswith(("random.", "triplets."))]
        assert exact
        assert all(torch.equal(ours[name], own[name]) for name in exact)


def test_trained_cells_are_near_those_trained_alone(unit: UnitPlan, tmp_path: Path) -> None:
    ours, alone = (trained(replace(unit, sharing=sharing), tmp_path / sharing) for sharing in ("heads", "trunk"))
    for key, folder in ours.items():
        for row, own in zip(folder.numbers()[:-1], alone[key].numbers()[:-1], strict=True):
            assert row.keys() == own.keys()
            assert row["train/hinge"] == pytest.approx(own["train/hinge"], rel=2e-3)
        assert "path heads: sharing heads is set" in (folder.root / "log.txt").read_text()


def test_a_killed_stack_continues_bit_for_bit(unit: UnitPlan, tmp_path: Path) -> None:
    unit = replace(unit, stage=replace(unit.stage, checkpoint_every=2))
    whole = trained(unit, tmp_path / "whole")
    killed = folders_of(unit, tmp_path / "killed")
    train_killed(unit, killed, 3, 4)
    for key, folder in killed.items():
        assert same_weights(folder, whole[key])
        assert folder.numbers() == whole[key].numbers()


@pytest.mark.parametrize("place", ["clip_each", "_stacked_state"])
def test_a_stack_that_fails_leaves_draws_and_statistics_as_they_were(
    unit: UnitPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """In its first step, after the forward pass, or while it is formed: then each cell has its own numbers."""
    alone = trained(replace(unit, sharing="trunk"), tmp_path / "alone")

    def no_memory(*_: Any) -> None:
        raise torch.cuda.OutOfMemoryError("as if")

    monkeypatch.setattr(cell_stack_module, place, no_memory)
    for key, folder in trained(unit, tmp_path / "stacked").items():
        assert "3 cells do not fit into memory; each cell goes on by itself" in (folder.root / "log.txt").read_text()
        assert same_weights(folder, alone[key])
        assert folder.numbers() == alone[key].numbers()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cells"], indirect=True)
def test_a_cell_that_resumed_later_joins_with_its_own_draws(unit: UnitPlan, tmp_path: Path) -> None:
    """One has trained its first epoch by itself when the others arrive there; all end near those trained alone."""
    folders = folders_of(unit, tmp_path / "stacked")
    ahead = replace(unit, trainings=unit.trainings[:1], stage=replace(unit.stage, checkpoint_every=1))
    with pytest.raises(StoppedError):
        train_unit(ahead, folders, StopAt(2))
    outcomes = train_unit(unit, folders)
    alone = trained(replace(unit, sharing="none"), tmp_path / "alone")
    for outcome in outcomes:
        assert 0.5 < outcome.result["stacked"] <= 1  # type: ignore[union-attr]
        numbers, own = (every[outcome.key].numbers() for every in (folders, alone))
        assert numbers[0]["train/hinge"] == pytest.approx(own[0]["train/hinge"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cells"], indirect=True)
def test_a_cell_with_another_random_stream_trains_by_itself(
    unit: UnitPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One draw serves a whole stack only because its cells would draw the same."""
    build = CellTrainer.__init__

    def with_other_draws(self: CellTrainer, plan: TrainingPlan, *arguments: Any, **named: Any) -> None:
        build(self, plan, *arguments, **named)
        if plan.key == "lin-ms-cir":
            self.stream = RandomStream(7, self.encoder.device)

    monkeypatch.setattr(CellTrainer, "__init__", with_other_draws)
    folders = folders_of(unit, tmp_path / "stacked")
    stacked = {outcome.key: outcome.result.get("stacked", 0) for outcome in train_unit(unit, folders)}  # type: ignore[union-attr]
    assert stacked == {"con-con": 1, "lin-ms-cir": 0, "sig-ms-nca": 1}
    alone = trained(replace(unit, sharing="none"), tmp_path / "alone")
    assert same_weights(folders["lin-ms-cir"], alone["lin-ms-cir"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gpu_trains_the_stack(unit: UnitPlan, tmp_path: Path, precision: Precision) -> None:
    unit = replace(unit, device="cuda", precision=precision)
    ours, alone = (trained(replace(unit, sharing=sharing), tmp_path / sharing) for sharing in ("auto", "trunk"))
    for key, folder in ours.items():
        assert "goes on by itself" not in (folder.root / "log.txt").read_text()  # so that it was the stack
        first, own = folder.numbers()[0], alone[key].numbers()[0]
        assert first["train/hinge"] == pytest.approx(own["train/hinge"], rel=1e-3 if precision == "fp32" else 5e-2)
