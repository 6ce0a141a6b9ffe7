"""One cell of a unit: its weights, optimiser, random stream and position, and how they are saved and continued."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.basics.numerics import derive_seed
from goal_sweep.goal_core.checkpoints import LAST, best_name, file
from goal_sweep.goal_core.models.backbones import ImageBackbone
from goal_sweep.goal_core.models.heads import Encoder, Heads
from goal_sweep.goal_core.training.cells.optim import build_optimizer, parameter_groups
from goal_sweep.goal_core.training.plan import EpochRecord, TrainingFiles, TrainingPlan, UnitPlan

_VALUES: Final = (
    *("epoch", "next_step", "steps_before", "seconds", "sums", "scales", "collapse"),
    *("best_epoch", "best_rsum", "history"),
)
"""Attributes of a cell that its state has as they are."""


class RandomStream:
    """The state of torch's global generators for one cell, swapped in for its step.

    So cells side by side each draw the numbers they would draw alone: dropout, for one, cannot be given a generator.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._cuda = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(self._cuda):
            torch.manual_seed(seed)
            self.state = self._read()
        """The stream's state, uint8 tensors by device type."""

    def _read(self) -> dict[str, Tensor]:
        state = {"cpu": torch.get_rng_state()}
        return state | {device.type: torch.cuda.get_rng_state(device) for device in self._cuda}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within the block torch draws from this stream; afterwards the outer state is restored."""
        with torch.random.fork_rng(self._cuda):
            torch.set_rng_state(self.state["cpu"])
            for device in self._cuda:
                torch.cuda.set_rng_state(self.state["cuda"], device)
            try:
                yield
            finally:
                self.state = self._read()


class CellState:
    """The state of one cell.

    Args:
        backbone: the cell's own backbone; None where the unit shares a frozen one or the data consists of features.
        shared: the unit's frozen backbone, of which a baseline may take the temperature.
        keeps_shared: also save it, because its weights exist nowhere else.
        compiles: whether the text encoder is compiled; ``backbone`` says it of itself.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        unit: UnitPlan,
        heads: Heads,
        backbone: ImageBackbone | None,
        files: TrainingFiles,
        description: file.ModelDescription,
        *,
        steps_per_epoch: int,
        shared: ImageBackbone | None = None,
        keeps_shared: bool = False,
        compiles: bool = False,
    ) -> None:
        self.key, self.cell_id, self.unit, self.files = plan.key, plan.cell_id, unit, files
        self.stage = replace(unit.stage, **plan.own)
        """The stage's settings, with this cell's own."""
        self.heads, self.backbone, self._kept_backbone = heads, backbone, shared if keeps_shared else None
        self._description, self._steps_per_epoch = description, steps_per_epoch
        device = torch.device(unit.device)
        self.encoder = Encoder(
            heads=heads, backbone=backbone, precision=unit.precision, device=device, compiles=compiles
        )
        own = {} if backbone is None else backbone.own
        if shared is not None:
            own = {name: tensor.detach() for name, tensor in shared.own.items()}
        self.objective = plan.objective.build(check_finite=False, own=own)
        groups = parameter_groups(heads, backbone, self.stage)
        self.parameters = [parameter for group in groups for parameter in group.parameters]
        if not self.parameters:
            raise ConfigError(f"stage {self.stage.name} trains nothing: neither tower has a head (model.vectors)")
        self.optimizer = build_optimizer(groups, self.stage)
        self.stream = RandomStream(derive_seed(unit.seed, "train", unit.stage.name), device)
        self.collapse = 0
        """Steps in a row, up to here, whose hinge is that of collapsed embeddings."""
        self.epoch, self.next_step = 0, 0
        """The position, both counted from 0: ``epoch`` epochs and ``next_step`` steps of the next are done."""
        self._saved = (0, 0)
        """The position saved; (0, 0) needs no file."""
        self.best_epoch = 0
        self.best_rsum: float | None = None
        """Those of the best epoch so far, counted from 1; 0 and None before there is one."""
        self.history: list[EpochRecord] = []
        self.seconds = 0.0
        self.steps_before = 0
        """Steps of earlier stages."""
        self.scales: dict[str, float] = {}
        """Factors of the `objective`, and of the `hinge` in warm-up epochs, where the heads scale the objective."""
        self.sums: dict[str, tuple[float, int]] = {}
        """Sum and count of every value logged in this epoch."""

    def start(self, plan: TrainingPlan) -> bool:
        """Continue from the saved state, or start as the plan says. Whether it continues.

        A saved state that is not whole, or whose best weights are not, is logged and left. A file that the plan names
        and that is missing, damaged or another training's is a `DamagedError`.
        """
        if (path := self.files.path(LAST)).exists():
            try:
                tensors, state = file.read_of_training(path, self.key)
                if best := state["best_epoch"]:
                    _read_weights(self.files.path(best_name(best)), self.key, best)
            except DamagedError as error:
                self.files.log(f"the state {LAST} is lost: {error}")
            else:
                self._restore(tensors, state)
                # A crash may have come between the state and the files that follow it; the state is what counts.
                self.files.write_metrics(self.history)
                return True
        if plan.init is not None:  # a backbone that the stage before did not train is not in the file
            self.steps_before = self._load_weights(plan.init, plan.init_key) * self._steps_per_epoch
        return False

    def save_best(self) -> None:
        """Save the best weights, for the next stage and for `evaluate`."""
        parts = {"heads": self.heads, "backbone": self.backbone or self._kept_backbone}
        write = partial(
            file.write_model,
            tensors=file.flat({name: module.state_dict() for name, module in parts.items() if module is not None}),
            description=self._description,
            epoch=self.best_epoch,
            training=self.key,
        )
        self.files.save_with(best_name(self.best_epoch), write)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors from which training continues exactly: weights, the optimiser's state and the random stream's."""
        parts = {name: module.state_dict() for name, module in self._modules().items()}
        return file.flat(parts | {"optimizer": file.optimizer_tensors(self.optimizer), "random": self.stream.state})

    def _restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`save_last` saved."""
        for name, module in self._modules().items():
            file.load_module(module, file.take_prefix(name, tensors), self.files.path(LAST))
        file.restore_optimizer(self.optimizer, file.take_prefix("optimizer", tensors))
        self.stream.state |= file.take_prefix("random", tensors)  # of a CPU, they leave that of CUDA as it is
        for name in _VALUES:
            setattr(self, name, state[name])
        self._saved = self.epoch, self.next_step

    def _modules(self) -> dict[str, nn.Module]:
        return {"heads": self.heads} if self.backbone is None else {"heads": self.heads, "backbone": self.backbone}

    def save_last(self) -> None:
        """Save everything from which training continues exactly."""
        self._saved = self.epoch, self.next_step
        state = {file.TRAINING: self.key, **{name: getattr(self, name) for name in _VALUES}}
        self.files.save_with(LAST, partial(file.write_checkpoint, tensors=self.tensors(), state=state))

    def save_unsaved(self) -> None:
        """Save the state, unless the disk has it already. After the last epoch the weights may be the best epoch's."""
        if self._saved != (self.epoch, self.next_step):
            self.save_last()

    def finish(self, metrics: Mapping[str, float]) -> dict[str, Any]:
        """Write the result, with the metrics of the best weights, and return it."""
        result = {
            "cell": self.cell_id,
            "stage": self.stage.name,
            "status": "done",
            "best_epoch": self.best_epoch,
            "epochs": self.epoch,
            "metrics": dict(metrics),
            "seconds": self.seconds,
        }
        if self.scales:
            result["scales"] = self.scales
        self.files.finish(result)
        return result

    def _load_weights(self, path: Path, training: str, epoch: int | None = None) -> int:
        tensors, epoch = _read_weights(path, training, epoch)
        file.load_module(self.heads, file.take_prefix("heads", tensors), path)
        backbone = file.take_prefix("backbone", tensors)
        if self.backbone is not None and backbone:
            file.load_module(self.backbone, backbone, path)
        return epoch


def _read_weights(path: Path, training: str, epoch: int | None = None) -> tuple[dict[str, Tensor], int]:
    """The weights that a training saved, and their epoch, which must be the given one."""
    tensors, state = file.read_of_training(path, training)
    if epoch not in (None, state["epoch"]):
        raise DamagedError(f"{path} has the weights of epoch {state['epoch']}, not of {epoch}")
    return tensors, state["epoch"]
