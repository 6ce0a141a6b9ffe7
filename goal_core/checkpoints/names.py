"""The names of the files of a training."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from goal_sweep.goal_core.basics.atomic import DamagedError, storage_errors
from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.basics.sealed_json import read_json

LAST: Final = "last.safetensors"
"""Everything from which a training continues."""
SPARE: Final = "last-spare.safetensors"
"""The same, of another moment: cells of a stack save under both names in turn, so that all have one state in common."""
BEST: Final = "best.safetensors"
"""The best epoch's weights among the files that a result states; on the disk they have the name of their epoch."""
RANKS: Final = "ranks.npz"
"""The rank of the right answer of every test query; see `goal_core.evaluation.RetrievalRanks.save`."""


def best_name(epoch: int) -> str:
    """The name of the file with the weights of an epoch, counted from 1, that was the best so far.

    Each epoch has a file of its own, so that saving a better epoch cannot destroy what the last saved state refers to.
    """
    return f"best-{epoch}.safetensors"


def weights_in(folder: Path) -> Path:
    """The file with the weights of a finished training, from its folder.

    Raises:
        WeightsError: the folder is not that of a finished training.
        DamagedError: its result is damaged, or the weights are not those that gave the result.
        StorageError: a file cannot be read.
    """
    result = read_json(folder / "result.json")
    if result is None:
        raise WeightsError(f"{folder} is not the folder of a finished training: it has no result.json")
    try:
        stated = result["files"][BEST]
        path, digest = folder / Path(stated["name"]).name, stated["sha256"]
    except (KeyError, TypeError) as error:
        message = f"{folder / 'result.json'} is damaged: it does not state the file of its weights"
        raise DamagedError(message) from error
    if path.is_file():
        with storage_errors(path, "read"), path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise DamagedError(f"{path} is damaged: its content does not match its checksum")
    return path
