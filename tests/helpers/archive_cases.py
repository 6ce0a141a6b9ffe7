"""A sweep with finished trainings to export, and archives that somebody has changed."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.sealed_json import json_bytes, parse_json
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.store import Store, TrainingFolder
from goal_sweep.runners.store.archive import ImportOutcome, add_results, opened_archive, plan_import
from tests.helpers.store_cases import npz, record, result, write_weights
from tests.helpers.sweep_cases import opened_in

Files = dict[str, bytes]


def finished_sweep(folder: Path, *more: str) -> OpenedSweep:
    """The scenes sweep with two objectives and further settings, three of its trainings finished; of four as it is."""
    sweep = opened_in(folder, *more)
    for training in sweep.trainings[:3]:
        files = sweep.store.folder(training)
        files.claim("L")
        files.save("ranks.npz", npz("ranks"))
        files.log("hello")
        train_fully(files, training.stage.epochs)
    return sweep


def train_fully(folder: TrainingFolder, epochs: int) -> None:
    """Do what `train` does, and report every recall, as a real training does."""
    folder.save_with(f"best-{epochs}.safetensors", write_weights)
    folder.write_metrics([record(number) for number in range(1, epochs + 1)])
    recalls = {f"test/{direction}_r{k}": 7.0 for direction in ("i2t", "t2i") for k in (1, 5, 10)}
    plain = result(epochs)
    folder.finish({**plain, "metrics": {**recalls, **plain["metrics"]}})


def files_in(archive: Path) -> Files:
    """The members of an archive, in order."""
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]  # all are files


def write_archive(archive: Path, files: Files, add: Callable[[tarfile.TarFile], None] = lambda tar: None) -> Path:
    """Write members, and then whatever else a test adds."""
    with gzip.GzipFile(archive, "wb") as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        add(tar)
    return archive


def rewritten(archive: Path, change: Callable[[Files], None]) -> Path:
    """Change the members of an archive."""
    files = files_in(archive)
    change(files)
    return write_archive(archive, files)


def recounted(archive: Path, change: Callable[[Files], None]) -> Path:
    """Change the members of an archive, and the number that it states with them."""
    files = files_in(archive)
    change(files)
    if b'"format"' in files["sweep.json"]:
        edited(files, "sweep.json", num_files=len(files))
    return write_archive(archive, files)


def edited(files: Files, name: str, /, **changes: Any) -> None:
    """Change keys of a member that is a JSON object, and its own checksum with them."""
    files[name] = json_bytes({**parse_json(files[name], name), **changes})


def import_into(store: Store, archive: Path) -> ImportOutcome:
    """Do what `import` does with a store, and leave MLflow alone."""
    with opened_archive(archive) as opened:
        outcome = plan_import(opened, store)
        add_results(opened, outcome, store, "sqlite:///{store}/mlflow.db")
    return outcome


def first(files: Files, end: str) -> str:
    """The first member whose name has this end."""
    return next(name for name in sorted(files) if name.endswith(end))
