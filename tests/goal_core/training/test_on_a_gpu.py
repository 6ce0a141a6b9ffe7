"""Units on a pretended GPU: nothing is left on the CPU, and no step waits for the device."""

from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModel

from goal_sweep.goal_core.data.config import RegionsConfig
from goal_sweep.goal_core.models import BackboneConfig, ModelConfig, TextConfig, hub
from goal_sweep.goal_core.models.sizes import CAPTION_LENGTH
from goal_sweep.goal_core.training import Callback, StageConfig, TrainingDone, UnitPlan
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.few import few
from tests.helpers.pretended_gpu import PretendedGpu, pretended_gpu
from tests.helpers.region_files import write_regions
from tests.helpers.tiny_models import clip_folder, encoder_folder, siglip_folder
from tests.helpers.training_cases import (
    DATA,
    FROZEN,
    GRID,
    GRID_DATA,
    MODEL,
    REGIONS,
    SET_FROZEN,
    TRAINED,
    XVLM,
    XVLM_DATA,
    XVLM_STAGE,
    folders_of,
    unit_of,
)

NAMES = ("con/con", "sig-ms/cir")
FEW = replace(DATA, num_train=4, num_val=4, num_test=4)
SHORT = replace(FROZEN, epochs=1, batch_size=8, warmup_epochs=0, lr_drops=())
TUNED = replace(SHORT, name="finetune")
SETS = replace(SET_FROZEN, epochs=1, warmup_epochs=0, batch_size=8)
PAIRED = replace(XVLM_STAGE, epochs=1, batch_size=8)
CROPS = replace(FEW, image=replace(DATA.image, augment="crop_flip"))
CELLS = replace(FEW, image=GRID_DATA.image)
PATCHES = replace(FEW, image=XVLM_DATA.image)
CASES: dict[str, dict[str, Any]] = {
    "vsepp frozen, features once": {"data": FEW, "stage": replace(SHORT, epochs=2, warmup_epochs=1)},
    "vsepp frozen": {"data": CROPS, "stage": SHORT},
    "vsepp frozen in chunks": {"data": CROPS, "stage": replace(SHORT, micro_batch=5)},
    "vsepp finetune": {"data": CROPS, "stage": TUNED},
    "vsepp finetune in chunks": {"data": CROPS, "stage": replace(TUNED, micro_batch=5)},
    "vse_infty frozen": {"data": CELLS, "model": GRID, "stage": SETS},
    "vse_infty finetune in chunks": {
        "data": CELLS,
        "model": GRID,
        "stage": replace(TRAINED, epochs=1, batch_size=8, micro_batch=5),
    },
    "vse_infty on regions": {"model": REGIONS, "stage": SETS},
    "xvlm": {"data": PATCHES, "model": XVLM, "stage": PAIRED},
    "xvlm in chunks": {"data": PATCHES, "model": XVLM, "stage": replace(PAIRED, micro_batch=5)},
}
STACKED = ("vsepp frozen, features once", "vsepp frozen")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendedGpu]:
    with pretended_gpu(monkeypatch) as gpu:
        yield gpu


class Steps(Callback):
    """Notes what every step waited for."""

    def __init__(self, gpu: PretendedGpu) -> None:
        self._gpu = gpu
        self.waits: list[list[str]] = []

    def step(self) -> None:
        self.waits.append(list(self._gpu.waits))
        self._gpu.waits.clear()


def waits_of(unit: UnitPlan, root: Path, gpu: PretendedGpu) -> list[str]:
    """Train a unit and evaluate its cells. Returns what its second step waited for, as all others of its epoch did."""
    steps, folders = Steps(gpu), folders_of(unit, root)
    for outcome in train_unit(replace(unit, device="cuda"), folders, steps):
        assert isinstance(outcome, TrainingDone), outcome.trace
    later = steps.waits[1 : len(steps.waits) // unit.stage.epochs]
    assert all(waits == later[0] for waits in later), later
    return later[0]


def unit_for(case: str, root: Path, *names: str, **changes: Any) -> UnitPlan:
    settings = CASES[case] | changes
    if case == "vse_infty on regions":
        settings["data"] = RegionsConfig(name="tiny", root=str(write_regions(root)), min_word_count=1)
    return unit_of(*names, **settings)


@pytest.mark.parametrize("case", few(CASES))
def test_no_step_of_a_cell_waits(case: str, gpu: PretendedGpu, tmp_path: Path) -> None:
    unit = unit_for(case, tmp_path / "data", *NAMES, sharing="trunk")
    assert waits_of(unit, tmp_path, gpu) == []


class Products(TorchDispatchMode):
    """Notes the dtypes of all convolutions and other products, and how the convolutions are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.convolved: dict[str, list[tuple[torch.dtype, bool, bool]]] = {"forward": [], "backward": []}
        """Of each convolution: the dtype of its factors, whether TF32 may round them, and whether channels come last.
        """
        self.multiplied = set[torch.dtype]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if name.startswith("aten::convolution") and len(args[0]) > 1:  # one picture only shows what a backbone returns
            *gradient, images, weight = args[: 3 if name.endswith("backward") else 2]
            (dtype,) = {one.dtype for one in (*gradient, images, weight)}
            dense = [one.is_contiguous(memory_format=torch.channels_last) for one in (images, weight, *gradient)]
            # A ViT's gradient is part of one with more rows. It is copied once, in the order that it has.
            last = all(dense[:2]) and (all(dense) or gradient[0].stride(1) == 1)
            way = self.convolved["backward" if gradient else "forward"]
            way.append((dtype, torch.backends.cudnn.allow_tf32, last))
        elif name in ("aten::mm", "aten::addmm", "aten::bmm"):
            self.multiplied.add(args[-1].dtype)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("precision", "dtype"), few([("bf16", torch.bfloat16), ("tf32", torch.float32)]))
def test_backbones_alone_compute_in_a_precision_with_channels_last(
    precision: str, dtype: torch.dtype, gpu: PretendedGpu, tmp_path: Path
) -> None:
    unit = unit_for("vsepp finetune", tmp_path / "data", *NAMES[:1], precision=precision)
    with Products() as products:
        waits_of(unit, tmp_path, gpu)
    assert {one for each in products.convolved.values() for one in each} == {(dtype, precision == "tf32", True)}
    assert products.multiplied == {torch.float32}


@pytest.mark.parametrize("case", few(STACKED))
def test_no_step_of_a_stack_waits(case: str, gpu: PretendedGpu, tmp_path: Path) -> None:
    assert waits_of(unit_for(case, tmp_path / "data", *NAMES), tmp_path, gpu) == []
    assert "path heads" in (tmp_path / "con-con" / "log.txt").read_text()


@pytest.mark.parametrize(("case", "size"), few([("vsepp finetune", 8), ("vsepp finetune in chunks", 5)]))
def test_whole_batches_alone_are_launched_as_one_graph(
    case: str, size: int, gpu: PretendedGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Gradients of several chunks add up, which those in a graph's own memory cannot; the rest of a batch is none."""
    sizes, graphs = set[int](), set[bool]()

    def compiled(function: Callable[..., Any], *, options: dict[str, bool], **_: Any) -> Callable[..., Any]:
        graphs.add(options["triton.cudagraphs"])

        def program(images: torch.Tensor) -> Any:
            sizes.add(len(images))
            return function(images)

        return program

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    waits_of(unit_for(case, tmp_path / "data", *NAMES, compile="on"), tmp_path, gpu)
    assert (sizes, graphs) == ({size}, {size == 8})


class Kernels(TorchDispatchMode, Callback):
    """Counts what each step starts on the device: every operation that is more than a view or an allocation."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Counter[str]] = [Counter()]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_view = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
        if not is_view and not func.name().startswith(NO_KERNELS):
            self.steps[-1][func.name()] += 1
        return func(*args, **(kwargs or {}))

    def step(self) -> None:
        self.steps.append(Counter())


NO_KERNELS = ("aten::empty", "aten::new_empty", "aten::_unsafe_view", "aten::lift_fresh", "profiler::")
ALL = [f"{pair}/{triplet}" for pair in ("con", "lin", "sig", "lin-ms", "sig-ms") for triplet in ("con", "nca", "cir")]
KERNELS_OF_A_WORD = 18


def test_a_step_of_fifteen_stacked_cells_starts_few_kernels(gpu: PretendedGpu, tmp_path: Path) -> None:
    """At most 700 with features that are there, where the batch's longest caption has COCO's mean length."""
    unit = unit_for("vsepp frozen", tmp_path / "data", *ALL, data=FEW)
    with Kernels() as kernels:
        train_unit(replace(unit, device="cuda"), folders_of(unit, tmp_path), kernels)
    step = kernels.steps[1]
    words = step["aten::tanh_"]
    assert words > 8
    assert step.total() + KERNELS_OF_A_WORD * (CAPTION_LENGTH - words) <= 700, step.most_common()


FOLDERS = (clip_folder, encoder_folder, siglip_folder)


@pytest.mark.parametrize(("stage", "make"), few(product((TUNED, SHORT), FOLDERS), most=2))
def test_no_step_of_pretrained_towers_waits(
    stage: StageConfig, make: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """But for a text encoder of the library: it looks at its mask."""
    folder = make(tmp_path / "model")
    model = ModelConfig(framework="dual", backbone=BackboneConfig(name="tiny", weights=str(folder)), embed_dim=12)
    if make is encoder_folder:
        model = replace(MODEL, text=TextConfig(encoder=str(folder)))
    loaded = AutoModel.from_pretrained(folder)  # which a pretended GPU cannot load
    monkeypatch.setattr(hub, "_load", lambda kind, weights: deepcopy(loaded))
    with pretended_gpu(monkeypatch) as gpu:
        waits = waits_of(unit_of("con/con", "infonce/loss", model=model, data=FEW, stage=stage), tmp_path, gpu)
    of_mask = ["__bool__()"] if make is encoder_folder else []
    assert [one.split(" at ")[0] for one in waits] == of_mask * 2, waits
