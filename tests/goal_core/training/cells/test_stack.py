"""Cells whose heads train as one stack: as each cell by itself but for rounding, and each fails and resumes alone."""

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from goal_sweep.goal_core.checkpoints import LAST
from goal_sweep.goal_core.data.config import PrecompConfig
from goal_sweep.goal_core.models.config import TextConfig
from goal_sweep.goal_core.models.stacked_gru import PrefixTree, stacked_gru
from goal_sweep.goal_core.models.systems.vsepp import VseppHeads
from goal_sweep.goal_core.objectives import PairWeights, Triplets, pair_weights
from goal_sweep.goal_core.training import UnitPlan
from goal_sweep.goal_core.training.cells import optim
from goal_sweep.goal_core.training.cells import stack as cell_stack_module
from goal_sweep.goal_core.training.cells.stack import CellStack
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers import training_cases as cases
from tests.helpers.few import few
from tests.helpers.pretended_gpu import pretended_gpu
from tests.helpers.vector_files import write_vectors

GRID = ["con/con", "con/nca", "lin/con", "lin-ms/cir", "sig-ms/con", "sig-ms/nca"]
STEPS = 5
"""Of an epoch: 80 captions in batches of 16."""


def heads_unit(*names: str, **changes: Any) -> UnitPlan:
    return cases.unit_of(*names, **{"sharing": "heads", **changes})


def trained(unit: UnitPlan, root: Path) -> dict[str, cases.PlainFolder]:
    train_unit(unit, folders := cases.folders_of(unit, root))
    return folders


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest distance between two weights of the same name, relative to their norm."""
    assert one.keys() == other.keys()
    names = [name for name in one if name.startswith("heads.")]
    return max(float((one[name] - other[name]).norm() / other[name].norm().clamp(min=1e-12)) for name in names)


CAPTIONS = torch.tensor([[3, 4, 5, 0], [3, 4, 5, 6], [3, 0, 0, 0], [5, 4, 5, 0], [3, 4, 5, 0], [3, 4, 5, 0]])
"""Padded with 0, which the last one has as a word: equal ones, beginnings of others, and equal ends."""
LENGTHS = torch.tensor([3, 4, 1, 3, 3, 4])


@pytest.mark.parametrize(("device", "words"), [("cpu", 8), ("cuda", 18)])
def test_stacked_encoders_are_each_cells_own(device: str, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captions that begin alike share states, but not on a GPU."""
    model = replace(cases.VECTORS, text=TextConfig(word_dim=5), embed_dim=6)
    cells = [VseppHeads(model, num_features=7, vocab_size=11, seed=seed) for seed in range(3)]
    named = [dict(cell.named_parameters()) for cell in cells]
    generator = torch.Generator().manual_seed(0)
    features, factors = torch.randn(6, 7, generator=generator), torch.randn(2, 3, 6, 6, generator=generator)
    with pretended_gpu(monkeypatch) if device == "cuda" else nullcontext():
        stacks = {name: torch.stack([own[name].detach() for own in named]).to(device) for name in named[0]}
        stacked = cells[0].stacked({name: stack.requires_grad_() for name, stack in stacks.items()})
        tokens = CAPTIONS.to(device)
        made = torch.stack((stacked.encode_images(features.to(device)), stacked.encode_texts(tokens, LENGTHS)))
        given = torch.autograd.grad((made * factors.to(device)).sum(), [*stacks.values()])
        ours, gradients = made.to("cpu"), {name: one.to("cpu") for name, one in zip(stacks, given, strict=True)}
        assert len(PrefixTree.of(tokens, LENGTHS).words) == words
    for number, cell in enumerate(cells):
        own = torch.stack((cell.encode_images(features), cell.encode_texts(CAPTIONS, LENGTHS)))
        (own * factors[:, number]).sum().backward()
        assert (ours[:, number] - own).abs().max() <= 1e-5
        for name, parameter in cell.named_parameters():
            assert parameter.grad is not None
            assert (gradients[name][number] - parameter.grad).norm() <= 1e-5 * parameter.grad.norm(), name


def test_a_recurrence_has_the_gradient_of_its_differences() -> None:
    generator, tree = torch.Generator().manual_seed(0), PrefixTree.of(CAPTIONS, LENGTHS)
    shapes = [(2, 8, 3), (2, 12, 3), (2, 12, 4), (2, 12), (2, 12)]
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda words, *weights: stacked_gru(words, tree, *weights), inputs)


def test_a_step_is_each_cells_own_but_for_rounding(tmp_path: Path) -> None:
    """After one step from equal weights no weight differs by more than 2 % of the step's length.

    Adam divides the gradient by its own size in the first step, so that a rounding of a small gradient shows in full;
    the gradients themselves agree to 1e-5 (above, and in tests/goal_core/objectives).
    """
    stage = replace(cases.FROZEN, checkpoint_every=1, warmup_epochs=0, lr_drops=(), epochs=1)
    states: dict[str, list[dict[str, Tensor]]] = {}
    for sharing in ("none", "heads"):
        unit = heads_unit(*GRID, stage=stage, sharing=sharing)
        folders = cases.folders_of(unit, tmp_path / sharing)
        with pytest.raises(cases.StoppedError):
            train_unit(unit, folders, cases.StopAt(1))
        states[sharing] = [load_file(folder.path(LAST)) for folder in folders.values()]
    for ours, own in zip(states["heads"], states["none"], strict=True):
        assert ours.keys() == own.keys()
        for name in own:
            if name.startswith("heads."):
                assert (ours[name] - own[name]).abs().max() <= 0.02 * stage.lr, name
            if name.startswith("optimizer.") and name.endswith(".exp_avg"):
                assert (ours[name] - own[name]).norm() <= 1e-5 * own[name].norm(), name


def test_precomputed_vectors_and_short_last_batches_stack_too(tmp_path: Path) -> None:
    data = PrecompConfig(name="tiny", root=str(write_vectors(tmp_path / "data")), min_word_count=1)
    stage = replace(cases.FROZEN, batch_size=8)  # 30 captions: the last batch has 6
    unit = heads_unit(*GRID[:3], model=cases.VECTORS, data=data, stage=stage)
    ours, alone = (trained(replace(unit, sharing=sharing), tmp_path / sharing) for sharing in ("heads", "none"))
    for key, folder in ours.items():
        assert apart(load_file(folder.best()), load_file(alone[key].best())) < 0.02
        assert folder.numbers()[0]["train/hinge"] == pytest.approx(alone[key].numbers()[0]["train/hinge"], rel=1e-4)


def test_on_a_cpu_a_cell_has_the_same_bits_in_every_stack(tmp_path: Path) -> None:
    """Where its widths are multiples of 32, so that no vector instruction spans two cells."""
    data = PrecompConfig(name="tiny", root=str(write_vectors(tmp_path / "data")), min_word_count=1)
    model = replace(cases.VECTORS, text=TextConfig(word_dim=32), embed_dim=32)
    stage = replace(cases.FROZEN, batch_size=7, epochs=3, warmup_epochs=1)  # the last batch has 2
    stacks = {"all": GRID, "three": GRID[2:5], "one": GRID[4:5], "other": GRID[5:]}
    units = {name: heads_unit(*cells, model=model, data=data, stage=stage) for name, cells in stacks.items()}
    trained_in = {name: trained(unit, tmp_path / name) for name, unit in units.items()}
    for name in ("three", "one", "other"):
        for key, folder in trained_in[name].items():
            assert cases.same_weights(folder, trained_in["all"][key]), (name, key)
            assert folder.numbers() == trained_in["all"][key].numbers()


def test_cells_that_learn_the_same_are_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In warm-up epochs, with equal margins: one, beside itself for its rounding."""
    unit, trained_at_once, hinge = heads_unit("con/con", "lin/con", "sig-ms/con"), list[int](), optim.sum_hinge
    objective = replace(unit.trainings[1].objective, params={"margin": 0.1})
    plans = (unit.trainings[0], replace(unit.trainings[1], objective=objective), unit.trainings[2])

    def noted(images: Tensor, *others: Any) -> Tensor:
        trained_at_once.append(len(images))
        return hinge(images, *others)

    monkeypatch.setattr(optim, "sum_hinge", noted)
    trained(replace(unit, trainings=plans), tmp_path)
    assert trained_at_once == STEPS * [2, 2]


class DyingFolder(cases.PlainFolder):
    """Ends the process before one of its operations, counted over all folders."""

    left = 0

    def _count(self) -> None:
        DyingFolder.left -= 1
        if DyingFolder.left == 0:
            raise cases.StoppedError

    def save_with(self, name: str, write: Any) -> None:
        self._count()
        super().save_with(name, write)

    def discard(self, name: str) -> None:
        self._count()
        super().discard(name)

    def write_metrics(self, records: Any) -> None:
        self._count()
        super().write_metrics(records)


@pytest.mark.parametrize("kills", [pytest.param(1000, marks=pytest.mark.exhaustive), 1])
def test_a_stack_killed_at_any_operation_on_files_ends_with_the_same_bits(tmp_path: Path, kills: int) -> None:
    """Also where some cells have saved an epoch and the others have not; with the quickstart's widths."""
    model = replace(cases.MODEL, text=TextConfig(word_dim=48), embed_dim=96)
    stage = replace(cases.FROZEN, checkpoint_every=3)
    unit = heads_unit("con/con", "lin-ms/cir", "sig/nca", model=model, stage=stage)
    whole = trained(unit, tmp_path / "whole")
    DyingFolder.left = operations = 10_000
    counted = {key: DyingFolder(tmp_path / "counted" / key) for key in whole}
    train_unit(unit, counted)
    operations -= DyingFolder.left
    for kill in [*range(1, operations, max(1, operations // kills)), operations]:
        folders = {key: DyingFolder(tmp_path / f"{kill}" / key) for key in whole}
        for left in (kill, max(1, kill // 2), 10_000):
            DyingFolder.left = left
            unfinished = (plan for plan in unit.trainings if not (folders[plan.key].root / "result.json").exists())
            with suppress(cases.StoppedError):
                train_unit(replace(unit, trainings=tuple(unfinished)), folders)
        for key, folder in folders.items():
            assert cases.same_weights(folder, whole[key]), kill
            assert folder.numbers() == whole[key].numbers(), kill


def test_a_cell_that_resumed_later_joins_the_stack_when_the_others_arrive(tmp_path: Path, monkeypatch):
    unit = heads_unit(*GRID[:3])
    folders = cases.folders_of(unit, tmp_path)
    ahead = replace(unit, trainings=unit.trainings[:1])
    with pytest.raises(cases.StoppedError):
        train_unit(ahead, folders, cases.StopAt(2 * STEPS + 1))
    formed: list[int] = []
    make = CellStack.__init__

    def noted(self: CellStack, cells: Any) -> None:
        formed.append(len(set(cells)))
        make(self, cells)

    monkeypatch.setattr(CellStack, "__init__", noted)
    train_unit(unit, folders)
    assert formed == [2, 2, 3]  # in the warm-up epoch, after it, and with the third


CALLS: list[int] = []


@pytest.fixture(params=["nan", "raises", "misfit", "nan, then raises"])
def poisoned(request: pytest.FixtureRequest) -> Iterator[str]:
    """A pair weight that after some calls gives NaN, raises, or has a wrong shape; the kind of its cell's failure."""
    CALLS.clear()
    how = str(request.param)

    @pair_weights.register("poisoned", source="test")
    def weight(triplets: Triplets) -> PairWeights:
        CALLS.append(1)
        one = torch.ones_like(triplets.pos)
        if len(CALLS) > 7:
            if how == "raises" or (how.endswith("raises") and len(CALLS) > 8):
                raise ZeroDivisionError("a bad weight")
            one = one * torch.nan if how.startswith("nan") else torch.ones(3)
        return PairWeights(one, one)

    yield "diverged" if how.startswith("nan") else "error"
    del pair_weights["poisoned"]


@pytest.mark.parametrize(
    ("sharing", "names"),
    few(
        [
            ("heads", ["con/con", "poisoned/con", "sig-ms/cir"]),
            ("heads", ["poisoned/con", "lin-ms/con"]),
            ("trunk", ["con/con", "poisoned/con"]),
        ]
    ),
    ids=["two go on", "one goes on", "unstacked"],
)
def test_a_cell_that_fails_leaves_the_others_as_they_were(tmp_path, poisoned: str, sharing: str, names: list[str]):
    stage = replace(cases.FROZEN, warmup_epochs=0)
    unit = heads_unit(*names, stage=stage, sharing=sharing)
    folders = cases.folders_of(unit, tmp_path / "with")
    outcomes = {outcome.key: outcome for outcome in train_unit(unit, folders)}
    failed = outcomes.pop("poisoned-con")
    assert len(CALLS) <= 9  # what the device computes is read a step later
    assert getattr(failed, "kind", "") == poisoned
    assert not folders["poisoned-con"].path("result.json").exists()
    healthy = [name for name in names if "poisoned" not in name]
    siblings = trained(heads_unit(*healthy, stage=stage, sharing=sharing), tmp_path / "without")
    for key, folder in siblings.items():
        assert outcomes[key].result["status"] == "done"  # type: ignore[union-attr]
        assert apart(load_file(folders[key].best()), load_file(folder.best())) < 0.02
        assert sharing == "heads" or cases.same_weights(folders[key], folder)


def test_embeddings_that_do_not_fit_into_memory_are_made_by_each_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    unit = heads_unit(*GRID[:2])
    whole = trained(unit, tmp_path / "whole")

    def no_memory(*_: Any, **__: Any) -> None:
        tried.append(1)
        raise torch.cuda.OutOfMemoryError("as if")

    tried: list[int] = []
    monkeypatch.setattr(cell_stack_module, "embed_split", no_memory)
    folders = trained(unit, tmp_path / "stacked")
    for key, folder in folders.items():
        assert cases.same_weights(folder, whole[key])
    assert tried


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gpu_trains_the_stack(tmp_path: Path, precision: str) -> None:
    unit = heads_unit(*GRID, device="cuda", precision=precision)
    ours, alone = (trained(replace(unit, sharing=sharing), tmp_path / sharing) for sharing in ("auto", "trunk"))
    assert "path heads: sharing auto on a GPU" in (ours["con-con"].root / "log.txt").read_text()
    for key, folder in ours.items():
        first, own = folder.numbers()[0], alone[key].numbers()[0]
        assert first["train/hinge"] == pytest.approx(own["train/hinge"], rel=1e-3 if precision == "fp32" else 5e-2)
    killed = cases.folders_of(unit, tmp_path / "killed")
    cases.train_killed(unit, killed, 3, STEPS + 3)
    for key, folder in killed.items():
        ends, own = folder.numbers()[0], ours[key].numbers()[0]
        assert ends["train/hinge"] == pytest.approx(own["train/hinge"], rel=1e-3 if precision == "fp32" else 5e-2)
