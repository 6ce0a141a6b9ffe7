"""Folders of features: `*_ims.npy`, and in `features.json` the backbone that computed them."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.atomic import DamagedError, replace_with
from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.basics.files import read_json
from goal_sweep.goal_core.data.config import DataConfig
from goal_sweep.goal_core.data.formats.layout import SHIPPED_FOLDER, precomp_folder

DESCRIPTION = "features.json"


def write_features(path: Path, shape: tuple[int, ...], rows: Callable[[], Iterable[NDArray[np.float32]]]) -> None:
    """Write (N, ..., F) float32 part by part. The file appears when it is whole."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            npy.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for part in rows():
                file.write(np.ascontiguousarray(part, "<f4").data)

    replace_with(path, write)


def check_origin(config: DataConfig, names: Sequence[str]) -> None:
    """Check that tables will show precomputed features under the name of the backbone that computed them.

    A folder without `features.json` is taken at the sweep's word, except for a backbone of the features that ship with
    goal-sweep: its name would come from the shipped sweep and not from who gave the folder. Tags of weights
    (`resnet152.tv_in1k`) may be left out.
    """
    if config.image is not None or config.root is None:
        return
    folder = precomp_folder(config.root)
    origin = _backbone(folder)
    for number, name in enumerate(names):
        setting = f"--set model.backbones.{number}.name"
        # One may have the tag of its weights, and the other not.
        if origin and name not in (origin, origin.split(".")[0]) and origin != name.split(".")[0]:
            are = f"the features in {folder} are those of {origin} ({DESCRIPTION})"
            raise DataError(f"{are}, but the tables would call them {name}; give their name: {setting}={origin}")
        if not origin and name in map(_backbone, SHIPPED_FOLDER.iterdir()):
            raise DataError(
                f"{folder} has no {DESCRIPTION}, so nothing says that its features are those of {name}, as the tables "
                f"would call them; name the network that computed them: {setting}=NAME (precomputed, if unknown). "
                f'If it was {name}, write {{"backbone": "{name}"}} to {folder / DESCRIPTION}'
            )


def _backbone(folder: Path) -> str:
    """The backbone that a folder names; empty where it names none."""
    try:
        name = (read_json(folder / DESCRIPTION, sealed=False) or {}).get("backbone")
    except DamagedError as error:
        raise DataError(str(error)) from error
    return name if isinstance(name, str) else ""
