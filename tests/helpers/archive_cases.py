"""A sweep with finished trainings to export, and archives that somebody has changed."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch

from goal_core.objectives import ObjectiveConfig
from goal_core.training.cells.triplet_histogram import TripletHistogram
from runners.launch.opened_sweep import OpenedSweep
from runners.store import Store, TrainingFolder
from runners.store.archive import ImportOutcome, add_results, plan_import, read_archive
from tests.helpers.store_cases import record, result, write_weights
from tests.helpers.sweep_cases import opened_in

Files = dict[str, bytes]


def finished_sweep(folder: Path, *more: str) -> OpenedSweep:
    """The scenes sweep with two objectives and further settings, three of its trainings finished; of four as it is."""
    sweep = opened_in(folder, *more)
    for training in sweep.trainings[:3]:
        files = sweep.store.folder(training)
        files.claim("L")
        triplets = TripletHistogram(torch.device("cpu"))
        triplets.close_epoch(1)
        triplets.save(files, ObjectiveConfig(pair="con", triplet="con"))
        files.log("hello")
        train_fully(files, training.stage.epochs)
    return sweep


def train_fully(folder: TrainingFolder, epochs: int) -> None:
    """Do what `train` does, and report every recall, as a real training does and an import requires."""
    folder.save_with("best.safetensors", write_weights)
    folder.write_metrics([record(number) for number in range(1, epochs + 1)])
    recalls = {f"test/{direction}_r{k}": 7.0 for direction in ("i2t", "t2i") for k in (1, 5, 10)}
    plain = result(epochs)
    folder.finish({**plain, "metrics": {**recalls, **plain["metrics"]}})


def rewritten(archive: Path, change: Callable[[Files], None]) -> Path:
    """Change the members of an archive, and not the digests of its manifest."""
    with zipfile.ZipFile(archive) as zipped:
        files = {name: zipped.read(name) for name in zipped.namelist()}
    change(files)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in files.items():
            zipped.writestr(name, content)
    return archive


def forged(archive: Path, change: Callable[[Files], None]) -> Path:
    """Change the members of an archive, and its digests with them; no file has a checksum of its own any more."""

    def change_and_seal(files: Files) -> None:
        for name in files:
            if name.endswith((".json", ".jsonl")):
                files[name] = b"".join(map(unsealed, files[name].splitlines() if name.endswith("l") else [files[name]]))
        state_records(files)
        manifest = json.loads(files.pop("manifest.json"))
        change(files)
        manifest["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        files["manifest.json"] = json.dumps(manifest).encode()

    return rewritten(archive, change_and_seal)


def unsealed(content: bytes) -> bytes:
    """A JSON object without its checksum, on one line."""
    return json.dumps({key: value for key, value in json.loads(content).items() if key != "checksum"}).encode() + b"\n"


def state_records(files: Files) -> None:
    """Let every result state the records as they are in the archive."""
    for name in [name for name in files if name.endswith("/result.json")]:
        result = json.loads(files[name])
        for member, stated in result["files"].items():
            if (content := files.get(f"{name.rpartition('/')[0]}/{member}")) is not None:
                stated |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        files[name] = json.dumps(result).encode()


def import_into(store: Store, archive: Path) -> ImportOutcome:
    """Do what `import` does with a store, and leave MLflow alone."""
    read = read_archive(archive)
    outcome = plan_import(read, store)
    add_results(read, outcome, store, "sqlite:///{store}/mlflow.db")
    return outcome


def first(files: Files, end: str) -> str:
    """The first member whose name has this end."""
    return next(name for name in sorted(files) if name.endswith(end))
