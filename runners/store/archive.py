"""Archives: one file that carries results, without weights, from one store to another.

::

    manifest.json                            the format, its version, and the SHA-256 of every other file
    sweep.json                               the resolved sweep, its data fingerprint and the ids of its weights
    cells/<cell id>/cell.json
    cells/<cell id>/<stage>-<key>/...        a finished training without its weights

An import checks every byte before it writes, adds all that is new or nothing, never replaces a finished result, and
marks what it adds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from goal_core.basics.atomic import DamagedError, replace_bytes, replace_with, storage_errors
from goal_core.basics.sealed_json import json_bytes
from goal_core.models import NAMED_WEIGHTS
from runners.store.archive_contents import ContentError, check_stated, parse_object
from runners.store.archive_reading import (
    CARRIED,
    MANIFEST,
    SWEEP,
    TRAIL,
    VERSION,
    Archive,
    ArchiveError,
    folder_name,
    max_bytes,
    read_archive,
)
from runners.store.attempts import Attempt
from runners.store.imported import MARK, mark_content
from runners.store.result_content import RESULT, parse_result
from runners.store.storage import Storage, read_json
from runners.store.store import Store
from runners.store.training_files import LOG
from runners.store.training_folder import TrainingFolder
from sweeps import Cell, ResolvedSweep, SweepConfig, Training, to_mapping
from sweeps.axes import in_place

__all__ = [
    "Archive",
    "ArchiveError",
    "ImportOutcome",
    "add_results",
    "export_results",
    "plan_import",
    "read_archive",
]

_DATE = (1980, 1, 1, 0, 0, 0)
_STORE, _TRACKING = "./goal-sweep-store", "sqlite:///{store}/mlflow.db"
_PATH = re.compile(r"(?<![\w:/])~?/[^\s:,;'\"()]+")


@dataclass(slots=True, kw_only=True)
class ImportOutcome:
    """What an import does with each training of an archive."""

    added: list[Training] = field(default_factory=list)
    known: list[Training] = field(default_factory=list)
    """Already finished in the store, with the same numbers."""
    begun: list[Training] = field(default_factory=list)
    """Begun in the store but not finished. They are not imported, because a launch on this store continues them."""


def export_results(sweep: ResolvedSweep, store: Store, path: Path, *, with_provenance: bool = False) -> tuple[int, int]:
    """Write every finished training of a sweep, without weights, to one file. Equal results give equal bytes.

    Args:
        sweep: the sweep.
        store: the results folder that holds the results.
        path: the zip file to write or replace.
        with_provenance: also write what tells of the people and machines that trained: names of hosts, process
            numbers, paths, uncommitted changes, traces and logs.

    Returns:
        The number of trainings in the archive, and the number in the sweep.

    Raises:
        ArchiveError: no training is finished, or a file is too large for an archive.
        StorageError: the store cannot be read or the file cannot be written.
    """
    # A tracking URI may contain a password, so it stays here in any case.
    shared = replace(sweep, config=replace(sweep.config, store=_STORE, tracking=_TRACKING))
    if not with_provenance:
        shared = replace(shared, config=_without_paths(shared.config))
    description = {
        "sweep": to_mapping(shared.config),
        "data_fingerprint": sweep.data_fingerprint,
        "weights": dict(sweep.weights),
        "trails": to_mapping(sweep.trails),
    }
    files = {SWEEP: json_bytes(description)}
    if sweep.has_chosen and (trail := store.read_trail(sweep.config.name)) is not None:
        files[TRAIL] = trail
    statuses = store.status(sweep.trainings)
    done = [training for training in shared.trainings if statuses[training].state == "done"]
    if not done:
        raise ArchiveError(f"nothing to export: no training of {sweep.config.name!r} is finished in {store.location}")
    all_carried = store.storage.each(
        lambda training: dict(_carried_files(store.folder(training).seen_at_once(), with_provenance=with_provenance)),
        done,
    )
    for training, carried in zip(done, all_carried, strict=True):
        files[f"cells/{training.cell.id}/cell.json"] = _described(training.cell, store, as_stored=with_provenance)
        try:
            place = store.storage.shown(store.folder(training).folder)
            check_stated(parse_result(carried.get(RESULT, b""), f"{place}/{RESULT}")["files"], carried, place)
        except ContentError as error:
            raise ArchiveError(f"{error}; launch trains damaged results again") from error
        files |= {f"{folder_name(training)}/{name}": content for name, content in carried.items()}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    files[MANIFEST] = json_bytes({"format": "goal-sweep results", "version": VERSION, "sha256": digests})
    large = [name for name, content in files.items() if len(content) > max_bytes(name)]
    if large:
        raise ArchiveError(f"{large[0]} in {store.location} is larger than an archive may hold")
    replace_with(path.absolute(), lambda temporary: _write_zip(temporary, files))
    return len(done), len(statuses)


def _without_paths(config: SweepConfig) -> SweepConfig:
    """Shorten the paths of data and weights to their last part: the others say who trained, and where."""
    data = config.data if config.data.root is None else replace(config.data, root=Path(config.data.root).name or "data")
    backbones = [
        backbone if backbone.weights in NAMED_WEIGHTS else replace(backbone, weights=Path(backbone.weights).name)
        for backbone in config.model.backbones
    ]
    bert = config.model.bert
    model = replace(
        config.model,
        backbones=tuple(backbones),
        bert=replace(bert, weights=Path(bert.weights).name) if os.path.isabs(bert.weights) else bert,
        init_from=Path(config.model.init_from).name if config.model.init_from else "",
    )
    return replace(config, data=data, model=model)


def _described(cell: Cell, store: Store, *, as_stored: bool) -> bytes:
    stored = None
    if as_stored:
        with contextlib.suppress(DamagedError):
            stored = store.read_cell(cell.id)
    return json_bytes(stored or cell.describe())


def _carried_files(folder: TrainingFolder, *, with_provenance: bool) -> Iterator[tuple[str, bytes]]:
    for name in CARRIED:
        if name != LOG and (content := folder.load(name)) is not None:
            yield name, content
    if with_provenance and (log := folder.log_text()):
        yield LOG, log.encode()
    for number in folder.attempts.numbers():
        with contextlib.suppress(DamagedError):
            record = read_json(folder.storage, folder.attempts.path(number))
            if record is not None and Attempt.from_json(record).n == number:
                yield f"attempts/{number}.json", json_bytes(record if with_provenance else _anonymous(record))


def _anonymous(record: Mapping[str, Any]) -> dict[str, Any]:
    """An attempt without what tells of its user and machine; the digest of its uncommitted changes stays."""
    launch = hashlib.sha256(str(record.get("launch_id", "")).encode()).hexdigest()[:16]
    reason = _PATH.sub("[path]", str(record.get("reason", "")))
    return {**record, "launch_id": launch, "host": "", "pid": 0, "git_diff": "", "trace": "", "reason": reason}


def _write_zip(path: Path, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in [MANIFEST, *sorted(files.keys() - {MANIFEST})]:
            archive.writestr(zipfile.ZipInfo(name, _DATE), files[name], zipfile.ZIP_DEFLATED)


def plan_import(archive: Archive, store: Store) -> ImportOutcome:
    """Decide what an import does with each training. Writes nothing.

    Raises:
        ArchiveError: the store holds a different result of the same training.
    """
    outcome, contradictions = ImportOutcome(), []
    for training in archive.finished:
        folder = store.folder(training)
        ours = folder.result()
        theirs = archive.metrics_of(training)
        if ours is None:
            (outcome.begun if folder.storage.exists(folder.folder) else outcome.added).append(training)
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


def add_results(archive: Archive, outcome: ImportOutcome, store: Store, tracking: str) -> Path:
    """Add the results that an import adds, all of them or none, and the sweep file that `report` and `ui` accept.

    Every result is written under another name first; then all take their names. An error on the way undoes what was
    done. A process killed between two names leaves whole, marked results, and the same import adds the others.

    Args:
        archive: the archive.
        outcome: from `plan_import`.
        store: the store to add to; created if missing.
        tracking: MLflow tracking URI of the store, resolved.

    Returns:
        The sweep file, ``STORE/imported/<name>.yaml``; of a store in a bucket, on this machine.

    Raises:
        ArchiveError: a launch began one of the trainings meanwhile; nothing was added.
        StorageError: the store cannot be written; nothing was added.
    """
    store.prepare()
    staged: dict[Path, Path] = {}
    placed: list[Path] = []
    new_cells: list[Path] = []
    try:
        for training in outcome.added:
            folder = store.folder(training).folder
            if not store.storage.exists(folder.parent):
                new_cells.append(folder.parent)
            cell = training.cell.id
            store.write_description(cell, archive.described(training))
            staged[folder] = folder.with_name(f".{folder.name}.import-{os.getpid()}")
            _stage(archive, training, staged[folder], store.storage)
        for folder, fresh in staged.items():
            _place(fresh, folder, store.storage)
            placed.append(folder)
        if TRAIL in archive.files:
            store.write_trail(archive.config.name, parse_object(TRAIL, archive.files[TRAIL]))
        return _write_sweep_file(archive, store, tracking)
    except BaseException:
        for folder in placed:
            with contextlib.suppress(OSError):
                store.storage.move(folder, staged[folder], last=RESULT)
        for fresh in staged.values():
            with contextlib.suppress(OSError):
                store.storage.remove_folder(fresh)
        for cell_folder in new_cells:
            _remove_empty_cell(cell_folder, store.storage)
        raise


def _stage(archive: Archive, training: Training, fresh: Path, storage: Storage) -> None:
    """Write a training's files under another name, with the mark that says where they came from."""
    files = archive.files_of(training) | {MARK: mark_content(archive.name, archive.sha256)}
    with storage_errors(fresh, "import"):
        for name, content in files.items():
            path = fresh / name
            storage.make_folder(path.parent)
            storage.replace(path, _harmless(content) if name == LOG else content)


def _harmless(log: bytes) -> bytes:
    """A log without characters that would command the terminal which shows it."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "?", log.decode(errors="replace")).encode()


def _place(fresh: Path, folder: Path, storage: Storage) -> None:
    with storage_errors(folder, "import"):
        try:
            storage.move(fresh, folder, last=RESULT)
        except OSError as error:
            if storage.exists(folder):
                raise ArchiveError(f"a launch began {folder} during the import, so nothing was imported") from error
            raise


def _remove_empty_cell(folder: Path, storage: Storage) -> None:
    """Undo the description of a cell that was new, unless a launch has put something beside it."""
    with contextlib.suppress(OSError):
        if [path.name for path in storage.entries(folder)] == ["cell.json"]:
            storage.remove(folder / "cell.json")
            folder.rmdir()


def _difference(ours: Mapping[str, float], theirs: Mapping[str, float]) -> str:
    names = [name for name in ours if theirs.get(name) != ours[name]]
    if not names:
        return "the archive has additional metrics"
    name = "test/rsum" if "test/rsum" in names else names[0]
    return f"{name} is {ours[name]:g} in the store and {theirs.get(name)} in the archive"


def _write_sweep_file(archive: Archive, store: Store, tracking: str) -> Path:
    # The sweep file stays right when the results folder is copied or moved.
    beside = tracking.replace(f"sqlite:///{store.root}/", "sqlite:///{store}/")
    here = "{here}/.." if store.location == str(store.root) else store.location
    config = replace(archive.config, store=here, tracking=beside)
    path = store.root / "imported" / f"{config.name}.yaml"
    with storage_errors(path.parent, "create"):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, json_bytes(in_place(to_mapping(config)), seal=False))  # JSON is YAML
    return path
