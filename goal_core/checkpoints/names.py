"""The names of the files of a training."""

from pathlib import Path
from typing import Final

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.basics.files import read_json

LAST: Final = "last.safetensors"
"""Everything from which a training continues."""
BEST: Final = "best.safetensors"
"""The best epoch's weights among the files that a result states; on the disk they have the name of their epoch."""
RANKS: Final = "ranks.npz"
"""The rank of the right answer of every test query; see `goal_core.evaluation.retrieval.RetrievalRanks.save`."""


def best_name(epoch: int) -> str:
    """The name of the file with the weights of an epoch, counted from 1, that was the best so far.

    Each epoch has a file of its own, so that saving a better epoch cannot destroy what the last saved state refers to.
    """
    return f"best-{epoch}.safetensors"


def weights_in(folder: Path) -> Path:
    """The file with the weights of a finished training, from its folder; a `WeightsError` where that is none."""
    result = read_json(folder / "result.json")
    if result is None:
        raise WeightsError(f"{folder} is not the folder of a finished training: it has no result.json")
    if not isinstance(epoch := result.get("best_epoch"), int):
        raise DamagedError(f"{folder / 'result.json'} is damaged: it does not state its best epoch")
    return folder / best_name(epoch)
