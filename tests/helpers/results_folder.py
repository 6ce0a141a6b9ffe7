"""A results folder with everything that a finished launch leaves in it, made without training."""

import shutil
from pathlib import Path

from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.mlflow_cases import synced
from tests.helpers.paths import SCENES
from tests.helpers.store_cases import claimed, write_weights
from tests.helpers.sweep_cases import SETTINGS, opened_in

RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")


def finished(folder: Path, empty_database: Path, *more: str) -> OpenedSweep:
    """Two objectives and two stages of the scenes, in the store and in the database beside it."""
    sweep = opened_in(folder, *more)
    for number, training in enumerate(sweep.trainings):
        one = claimed(sweep.store.folder(training))
        one.save_with("best-1.safetensors", write_weights)
        one.write_metrics([{"epoch": 1, "time": 1.7e9, "metrics": {"val/rsum": 10.0, "train/pos_sim": 0.5}}])
        metrics = {f"test/{name}": 10.0 + number**2 % 7 for name in RECALLS}
        metrics["test/rsum"] = sum(metrics.values())
        one.finish({"status": "done", "epochs": 1, "best_epoch": 1, "seconds": 1.0, "metrics": metrics})
    shutil.copy(empty_database, folder / "mlflow.db")
    synced(f"sqlite:///{folder / 'mlflow.db'}", sweep.store, sweep)
    return sweep


def arguments(verb: str, folder: Path, *more: str) -> list[str]:
    """A command line on that sweep."""
    return [verb, SCENES, *[word for text in SETTINGS for word in ("--set", text)], "--store", str(folder), *more]


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """When each file was last written, and its size."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}
