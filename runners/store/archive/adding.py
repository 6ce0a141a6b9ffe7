"""Add the results of an archive to a store, if nothing there contradicts them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.atomic import replace_bytes, storage_errors
from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.runners.store.archive.reading import Archive, ArchiveError
from goal_sweep.runners.store.records.result_content import RESULT
from goal_sweep.runners.store.storage.folders import Storage
from goal_sweep.runners.store.store import Store
from goal_sweep.sweeps import Training, to_mapping


@dataclass(slots=True, kw_only=True)
class ImportOutcome:
    """What an import does with each training of an archive."""

    added: list[Training] = field(default_factory=list)
    known: list[Training] = field(default_factory=list)
    """Already finished in the store, with the same numbers."""
    begun: list[Training] = field(default_factory=list)
    """Begun in the store but not finished. They are not imported, because a launch on this store continues them."""


def plan_import(archive: Archive, store: Store) -> ImportOutcome:
    """Decide what an import does with each training. Writes nothing.

    Raises:
        ArchiveError: the store holds a different result of the same training.
    """
    outcome, contradictions = ImportOutcome(), []
    for training in archive.finished:
        folder = store.folder(training)
        ours = folder.result()
        theirs = (archive.store.folder(training).result() or {})["metrics"]
        if ours is None:
            # Only an import that was cut short leaves an attempt that is done, and no result.
            attempt = folder.attempts.newest()
            (outcome.added if attempt is None or attempt.outcome == "done" else outcome.begun).append(training)
        elif ours["metrics"] == theirs:
            outcome.known.append(training)
        else:
            contradictions.append(f"{training.name} ({training.cell.id}): {_difference(ours['metrics'], theirs)}")
    if contradictions:
        more = f" and {len(contradictions) - 3} more" if len(contradictions) > 3 else ""
        raise ArchiveError(
            "the store and the archive have different results, so nothing is imported: "
            f"{'; '.join(contradictions[:3])}{more}"
        )
    return outcome


def _difference(ours: Mapping[str, float], theirs: Mapping[str, float]) -> str:
    names = [name for name in ours if theirs.get(name) != ours[name]]
    if not names:
        return "the archive has additional metrics"
    name = "test/rsum" if "test/rsum" in names else names[0]
    return f"{name} is {ours[name]:g} in the store and {theirs.get(name)} in the archive"


def add_results(archive: Archive, outcome: ImportOutcome, store: Store, tracking: str) -> Path:
    """Add the results that an import adds, and the sweep file that `report` and `ui` accept.

    A process that is killed, or a full disk, leaves whole results, and the same import adds the others.

    Args:
        archive: the archive.
        outcome: from `plan_import`.
        store: the store to add to; created if missing.
        tracking: MLflow tracking URI of the store, resolved.

    Returns:
        The sweep file, ``STORE/imported/<name>.yaml``; of a store in a bucket, on this machine.

    Raises:
        ArchiveError: a file changed while it was added; the next launch moves it away.
        LeaseHeldError: a launch trains some of them; nothing was added.
        StorageError: the store cannot be written.
    """
    with store.heartbeat(f"import of {archive.config.name}") as heartbeat:  # so that no launch begins them
        heartbeat.start(training.key for training in outcome.added)
        for training in outcome.added:
            store.write_cell(training.cell)
            _add(archive.store.folder(training).folder, store.folder(training).folder, store.storage)
        for training, status in store.status(outcome.added, thorough=True).items():
            if status.state != "done":
                raise ArchiveError(f"{training.name} was not added whole, so import it again: {status.reason}")
    return _write_sweep_file(archive, store, tracking)


def _add(source: Path, folder: Path, storage: Storage) -> None:
    """Write the files of a training, the result last: it alone means done."""
    files = [path for path in source.rglob("*") if path.is_file() and path.name != RESULT]
    with storage_errors(folder, "import"):
        for path in [*sorted(files), source / RESULT]:
            target = folder / path.relative_to(source)
            storage.make_folder(target.parent)
            storage.replace(target, path.read_bytes())


def _write_sweep_file(archive: Archive, store: Store, tracking: str) -> Path:
    # The sweep file stays right when the results folder is copied or moved.
    beside = tracking.replace(f"sqlite:///{store.root}/", "sqlite:///{store}/")
    here = ".." if store.location == str(store.root) else store.location
    config = replace(archive.config, store=here, tracking=beside)
    path = store.root / "imported" / f"{config.name}.yaml"
    with storage_errors(path.parent, "create"):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, json_bytes(_in_place(to_mapping(config)), seal=False))  # JSON is YAML
    return path


def _in_place(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep's plain values as a file has them: with each axis as a list in the place of its setting."""
    plain: dict[str, Any] = deepcopy({key: value for key, value in mapping.items() if key != "axes"})
    for axis in mapping.get("axes", ()):
        head, *path, setting = axis["key"].split(".")
        place = plain[head]
        for part in path:
            place = next(stage for stage in place if stage["name"] == part) if head == "stages" else place[part]
        place[setting] = axis["values"]
    return plain
