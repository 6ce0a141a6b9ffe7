"""Which backbone computed a folder's features: `features.json` says it, and tables must not say anything else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from goal_core.basics.atomic import DamagedError
from goal_core.basics.errors import DataError
from goal_core.basics.sealed_json import read_json
from goal_core.data.config import DataConfig
from goal_core.data.formats.layout import SHIPPED_FOLDER, precomp_folder

DESCRIPTION = "features.json"
"""Written beside features by `goal-sweep data features`."""
UNNAMED = "precomputed"
"""The name to give to features of unknown origin."""


def check_origin(config: DataConfig, names: Sequence[str]) -> None:
    """Check that tables will show precomputed features under the name of the backbone that computed them.

    A folder without `features.json` is taken at the sweep's word, except for a backbone of the features that ship with
    goal-sweep: its name would come from the shipped sweep and not from who gave the folder. Tags of weights
    (`resnet152.tv_in1k`) may be left out.

    Args:
        config: the dataset; one of images has nothing to check.
        names: the sweep's backbones.

    Raises:
        DataError: the folder is missing, its `features.json` is damaged, or a name is not that of its features.
    """
    if config.image is not None or config.root is None:
        return
    folder = precomp_folder(config.root)
    origin = _backbone(folder)
    for number, name in enumerate(names):
        setting = f"--set model.backbones.{number}.name"
        if origin is not None and not _same(name, origin):
            raise DataError(
                f"the features in {folder} are those of {origin} ({DESCRIPTION}), but the tables would call them "
                f"{name}; give their name: {setting}={origin}"
            )
        if origin is None and name in _shipped():
            raise DataError(
                f"{folder} has no {DESCRIPTION}, so nothing says that its features are those of {name}, as the tables "
                f"would call them; name the network that computed them: {setting}=NAME ({UNNAMED}, if unknown). "
                f'If it was {name}, write {{"backbone": "{name}"}} to {folder / DESCRIPTION}'
            )


def _backbone(folder: Path) -> str | None:
    try:
        described = read_json(folder / DESCRIPTION, sealed=False) or {}
    except DamagedError as error:
        raise DataError(str(error)) from error
    name = described.get("backbone")
    return name if isinstance(name, str) else None


def _shipped() -> set[str | None]:
    return {_backbone(folder) for folder in SHIPPED_FOLDER.iterdir() if folder.is_dir()}


def _same(name: str, origin: str) -> bool:
    """Whether two names are equal, or one is the other without the tag of its weights."""
    return name in (origin, origin.split(".")[0]) or origin == name.split(".")[0]
