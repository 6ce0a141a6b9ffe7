"""What a part of one's own must keep, as functions to call in one's own tests. Each raises `AssertionError` if not.

Parts are given by name: their plugin has run, or their module is imported.

from goal_sweep.testing import check_training, check_weights


def test_my_weight(tmp_path):
    check_weights(pair="mine")
    check_training(tmp_path, pair="mine")
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.checkpoints import weights_in
from goal_sweep.goal_core.checkpoints.initial_model import check_initial_weights
from goal_sweep.goal_core.data.config import ImageConfig, ScenesConfig, SourceConfig
from goal_sweep.goal_core.data.formats.opening import check_data, open_dataset
from goal_sweep.goal_core.models import BackboneConfig, ModelConfig, TextConfig
from goal_sweep.goal_core.objectives import ObjectiveConfig
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective, StackedObjectives
from goal_sweep.goal_core.objectives.trial import try_objective
from goal_sweep.goal_core.objectives.weights import Value
from goal_sweep.goal_core.training import Callback, FolderFiles, StageConfig, TrainingPlan, UnitPlan
from goal_sweep.goal_core.training.plan import TrainingEvent, TrainingFailed
from goal_sweep.goal_core.training.train import train_unit

_PAIRS, _DIM = 8, 16
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6
"""How far float32 may round where kernels of other shapes compute the same."""


def check_weights(*, pair: str = "con", triplet: str = "con", **params: Value) -> None:
    """Check a pair or triplet weight on a small batch.

    Shapes, dtypes, finite and repeatable numbers; that the gradient follows the scale of what reaches it and the order
    of the pairs; that it is the same in double precision; and that a cell beside it in a stack changes nothing.
    ``params`` are the parameters of both.
    """
    config = ObjectiveConfig(pair=pair, triplet=triplet, params=params)
    try:
        try_objective(config, shipped=True)
    except GoalError as error:
        raise AssertionError(str(error)) from error
    name, objective = config.name, config.build()
    generator = torch.Generator().manual_seed(0)
    batch = [torch.nn.functional.normalize(torch.randn(_PAIRS, _DIM, generator=generator)) for _ in range(2)]
    whole = _gradient(objective, batch)
    _close(_gradient(objective, batch, scale=2.0), 2 * whole, f"{name}: the gradient does not follow a loss's scale")
    order = torch.randperm(_PAIRS, generator=generator)
    turned = _gradient(objective, [rows[order] for rows in batch])
    _close(turned, whole[:, order], f"{name}: the gradient depends on the order of the pairs")
    double = _gradient(objective, [rows.double() for rows in batch])
    _close(double.float(), whole, f"{name}: single and double precision differ")
    stack = StackedObjectives([GradientObjective(pair="con", triplet="con"), objective])
    leaves = [torch.stack([rows, rows]).requires_grad_() for rows in batch]
    scalars, stats = stack.forward_with_stats(*leaves)
    if stats.errors:
        raise AssertionError(f"{name}: fails beside another cell: {next(iter(stats.errors.values()))}")
    together = torch.autograd.grad(scalars.sum(), leaves)
    _close(torch.stack([part[1] for part in together]), whole, f"{name}: alone and beside another cell differ")


def check_importer(name: str, root: Path) -> None:
    """Check an importer on the data at ``root``: images can be read, no split is empty, and it gives the same twice."""
    first, second = (check_data(SourceConfig(name=name, root=str(root), importer=name)) for _ in range(2))
    if wrong := [one.found for one in first.findings if one.state != "ok"]:
        raise AssertionError(f"{name}: {'; '.join(wrong)}")
    if first.fingerprint != second.fingerprint:
        raise AssertionError(f"{name}: gives other rows when it is called again")


def check_training(
    folder: Path,
    *,
    pair: str = "con",
    triplet: str = "con",
    backbone: str = "test_resnet",
    text: str = "",
    framework: str = "vsepp",
    image_size: int = 32,
    **params: Value,
) -> None:
    """Train a tiny cell: alone, beside another cell, and killed and continued. All must end with the same bits.

    The backbone is fine-tuned from random weights. Before, the model is tried: its shapes, its seed, its gradient, and
    that no image and no caption depends on the others of its batch, or on padding.

    Args:
        folder: an empty folder.
        image_size: pixels per side that the backbone gets.
        text: name of the text encoder; empty: a GRU.
        params: parameters of the pair and the triplet weight.
    """
    objective = ObjectiveConfig(pair=pair, triplet=triplet, params=params)
    own = TrainingPlan(key="own", cell_id="own", objective=objective, init=None)
    other = replace(own, key="other", cell_id="other", objective=ObjectiveConfig(pair="con", triplet="con"))
    images, words = BackboneConfig(name=backbone, weights="random"), TextConfig(word_dim=8, encoder=text)
    pixels = ImageConfig(size=image_size, resize=image_size, augment="none")
    unit = UnitPlan(
        trainings=(own,),
        data=ScenesConfig(num_train=16, num_val=8, num_test=8, image=pixels),
        model=ModelConfig(framework=framework, backbone=images, text=words, embed_dim=16),
        seed=1,
        stage=StageConfig(name="finetune", epochs=2, lr=1e-3, batch_size=16),
    )
    try:
        check_initial_weights(unit.model, unit.data, open_dataset(unit.data), strict=True)
    except Exception as error:
        raise AssertionError(f"{backbone}, {text or 'GRU'}, {framework}: {error}") from error
    alone = _train(unit, folder / "alone")
    shared = _train(replace(unit, trainings=(own, other), sharing="trunk"), folder / "shared")
    resumed = _train(unit, folder / "resumed", kill_at=8)
    for how, weights in (("beside another cell", shared), ("killed and continued", resumed)):
        if names := [name for name in alone if not torch.equal(alone[name], weights[name])]:
            parts = f"{pair}/{triplet}, {backbone}, {framework}"
            raise AssertionError(f"{parts}: {how}, the training ends otherwise: {names[0]}")


class _KilledError(BaseException):
    """Stands for a kill, which nothing catches."""


class _Watch(Callback):
    def __init__(self, kill_at: int) -> None:
        self._left = kill_at

    def events(self, events: Sequence[TrainingEvent]) -> None:
        for failed in (one for one in events if isinstance(one, TrainingFailed)):
            raise AssertionError(failed.reason)

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise _KilledError


def _train(unit: UnitPlan, root: Path, kill_at: int = 0) -> dict[str, Tensor]:
    """The best weights of a unit's first training, killed once after so many steps if they are not 0."""
    folders = {training.key: FolderFiles(root / training.key) for training in unit.trainings}
    if kill_at:
        with suppress(_KilledError):
            train_unit(unit, folders, _Watch(kill_at))
            raise AssertionError(f"the training ended before step {kill_at}")
    train_unit(unit, folders, _Watch(0))
    weights: dict[str, Tensor] = load_file(weights_in(folders[unit.trainings[0].key].root))
    return weights


def _gradient(objective: GradientObjective, batch: Sequence[Tensor], scale: float = 1.0) -> Tensor:
    """The gradient of both embeddings, (2, N, D)."""
    leaves = [rows.clone().requires_grad_() for rows in batch]
    return torch.stack(torch.autograd.grad(objective(*leaves) * scale, leaves))


def _close(got: Tensor, wanted: Tensor, complaint: str) -> None:
    if not torch.allclose(got, wanted, rtol=_RELATIVE, atol=_ABSOLUTE):
        raise AssertionError(f"{complaint}, by up to {float((got - wanted).detach().abs().max()):.3g}")
