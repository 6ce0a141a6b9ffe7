"""A sweep into its cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from goal_core.data.config import DataConfig
from goal_core.errors import ConfigError
from goal_core.models.config import ModelConfig
from goal_core.objectives import ObjectiveConfig
from goal_core.training.config import Precision, StageConfig
from sweeps.identity import cell_id, stage_key
from sweeps.schema import DataSection, SweepConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStage:
    """One stage of one cell."""

    config: StageConfig
    """How the stage trains."""
    key: str
    """16 hex digits: the cell and the settings of the stages up to and including this one."""
    precision: Precision = "fp32"
    """Arithmetic of the training steps."""

    @property
    def name(self) -> str:
        """`frozen` or `finetune`."""
        return self.config.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One model to train: data, model, objective and seed."""

    id: str
    """16 hex digits of the content; the same for the same model in any sweep."""
    data: DataSection
    model: ModelConfig
    objective: ObjectiveConfig
    seed: int
    stages: tuple[CellStage, ...]
    """The stages that this sweep trains, in order."""

    @property
    def block_label(self) -> str:
        """Dataset, framework and backbone: `coco vsepp resnet152`. With a stage it names a block."""
        return f"{self.data.name} {self.model.framework} {self.model.backbone.name}"

    @property
    def label(self) -> str:
        """Objective, backbone and seed: `sig-ms/cir resnet152 seed 1`."""
        return f"{self.objective.name} {self.model.backbone.name} seed {self.seed}"

    def name(self, stage: CellStage | str) -> str:
        """The cell in one of its stages, as people read it: `sig-ms/cir resnet152 seed 1 (frozen)`."""
        return f"{self.label} ({stage if isinstance(stage, str) else stage.name})"


def expand(config: SweepConfig, data_fingerprint: str, weights_id: Mapping[str, str]) -> list[Cell]:
    """All cells of a sweep.

    Args:
        config: the sweep.
        data_fingerprint: hash of the dataset's images and captions.
        weights_id: what the first weights of each backbone are, by the backbone's name.

    Returns:
        backbones x seeds x objectives, the objective changing fastest. Backbones and seeds come in the order of the
        sweep file, objectives in the order of the table, row by row (each pair weight with every triplet weight).

    Raises:
        ConfigError: `weights_id` lacks a backbone.
    """
    lacking = [item.name for item in config.model.backbones if item.name not in weights_id]
    if lacking:
        raise ConfigError(f"the identity of the first weights is not known for {', '.join(lacking)}")
    return [
        _cell(config, data_fingerprint, model, weights_id[model.backbone.name], objective, seed)
        for model in config.model.models
        for seed in config.seeds
        for objective in config.objectives.configs
    ]


def _cell(
    config: SweepConfig,
    data_fingerprint: str,
    model: ModelConfig,
    weights_id: str,
    objective: ObjectiveConfig,
    seed: int,
) -> Cell:
    data: DataConfig = config.data
    identity = cell_id(
        data=data,
        data_fingerprint=data_fingerprint,
        model=model,
        weights_id=weights_id,
        objective=objective,
        seed=seed,
    )
    stages = tuple(
        CellStage(
            config=stage,
            key=stage_key(identity, config.stages[: index + 1], config.precision),
            precision=config.precision,
        )
        for index, stage in enumerate(config.stages)
    )
    return Cell(id=identity, data=data, model=model, objective=objective, seed=seed, stages=stages)
