"""Folders of features: `*_ims.npy`, written part by part, and in `features.json` the backbone that computed them."""

from __future__ import annotations

import fcntl
import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.atomic import DamagedError, storage_errors
from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.basics.sealed_json import read_json
from goal_sweep.goal_core.data.config import DataConfig
from goal_sweep.goal_core.data.formats.layout import SHIPPED_FOLDER, precomp_folder

DESCRIPTION = "features.json"


def write_features(
    path: Path, shape: tuple[int, ...], key: str, part: int, parts: Callable[[int], Iterable[NDArray[np.float32]]]
) -> None:
    """Write (N, ..., F) float32 part by part to a hidden file, which gets its name when it is whole.

    Each part is on the disk before the next is begun. Where a killed writer stopped, the next continues: at most the
    last part is torn, and it is written again.

    Args:
        path: the final name; its folder exists.
        key: identifies the rows; rows with a different key are discarded.
        part: rows of a part; the last may have fewer.
        parts: gives the parts (B, ..., F) that begin at a row, up to the last.
    """
    header, row_bytes = io.BytesIO(), 4 * math.prod(shape[1:])
    npy.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    hidden = path.with_name(f".{path.name}.{key}-{'x'.join(map(str, shape))}.partial")
    with storage_errors(path, "write"):
        for other in path.parent.glob(f".{path.name}.*.partial"):
            if other != hidden:
                other.unlink(missing_ok=True)
        hidden.touch()
        with hidden.open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Between the opening and the lock another writer may have given this very file its final name.
                ours = os.fstat(file.fileno()).st_ino == hidden.stat().st_ino
            except (BlockingIOError, FileNotFoundError):
                ours = False
            if not ours:
                raise DataError(f"another process is writing {path}")
            whole = max(0, os.fstat(file.fileno()).st_size - header.tell()) // (part * row_bytes)
            first = part * max(0, whole - 1)
            file.write(header.getvalue())
            file.truncate(file.seek(header.tell() + first * row_bytes))
            for rows in parts(first):
                file.write(np.ascontiguousarray(rows, "<f4").data)
                file.flush()
                os.fsync(file.fileno())
            hidden.replace(path)


def check_origin(config: DataConfig, names: Sequence[str]) -> None:
    """Check that tables will show precomputed features under the name of the backbone that computed them.

    A folder without `features.json` is taken at the sweep's word, except for a backbone of the features that ship with
    goal-sweep: its name would come from the shipped sweep and not from who gave the folder. Tags of weights
    (`resnet152.tv_in1k`) may be left out.

    Raises:
        DataError: the folder is missing, its `features.json` is damaged, or a name is not that of its features.
    """
    if config.image is not None or config.root is None:
        return
    folder = precomp_folder(config.root)
    origin = _backbone(folder)
    for number, name in enumerate(names):
        setting = f"--set model.backbones.{number}.name"
        # One may have the tag of its weights, and the other not.
        if origin and name not in (origin, origin.split(".")[0]) and origin != name.split(".")[0]:
            raise DataError(
                f"the features in {folder} are those of {origin} ({DESCRIPTION}), but the tables would call them "
                f"{name}; give their name: {setting}={origin}"
            )
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
