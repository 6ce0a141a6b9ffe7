"""Archives: one file that carries results, without weights, from one store to another.

::

    manifest.json                            the format, its version, and the SHA-256 of every other file
    sweep.json                               the resolved sweep, its data fingerprint and the ids of its weights
    cells/<cell id>/cell.json
    cells/<cell id>/<stage>-<key>/...        a finished training without its weights

An import checks every byte before it writes, adds only complete trainings, and never replaces a finished result.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from goal_core.atomic import json_bytes, replace_bytes, replace_with, storage_errors
from goal_core.errors import GoalError
from goal_core.training.triplet_histogram import TRIPLETS
from runners.store.store import Store
from runners.store.training_folder import LOG, METRICS, RESULT, TrainingFolder
from sweeps import ResolvedSweep, SweepConfig, Training, from_mapping, to_mapping

_VERSION = 1
_MANIFEST, _SWEEP = "manifest.json", "sweep.json"
_CARRIED = (METRICS, TRIPLETS, LOG, RESULT)
_MEMBER = re.compile(
    r"sweep\.json|cells/[0-9a-f]{16}/cell\.json|cells/[0-9a-f]{16}/(frozen|finetune)-[0-9a-f]{16}/"
    rf"({'|'.join(re.escape(name) for name in _CARRIED)}|attempts/[0-9]+\.json)"
)
_DATE = (1980, 1, 1, 0, 0, 0)
_STORE, _TRACKING = "./goal-sweep-store", "sqlite:///{store}/mlflow.db"


class ArchiveError(GoalError):
    """A file is not an archive of results, is damaged, or contradicts what the store holds."""


@dataclass(frozen=True, kw_only=True)
class Archive(ResolvedSweep):
    """A sweep with its finished results, read from an archive and checked."""

    files: Mapping[str, bytes]
    """Content of every member except the manifest, by name."""

    @property
    def finished(self) -> list[Training]:
        """The trainings whose results the archive holds, in the sweep's order."""
        return [training for training in self.trainings if f"{_folder(training)}/{RESULT}" in self.files]


@dataclass(slots=True, kw_only=True)
class ImportOutcome:
    """What an import did with each training of an archive."""

    added: list[Training] = field(default_factory=list)
    known: list[Training] = field(default_factory=list)
    """Already finished in the store, with the same numbers."""
    begun: list[Training] = field(default_factory=list)
    """Begun in the store but not finished. They are not imported, because a launch on this store continues them."""


def export_results(sweep: ResolvedSweep, store: Store, path: Path) -> tuple[int, int]:
    """Write every finished training of a sweep, without weights, to one file. Equal results give equal bytes.

    Args:
        sweep: the sweep.
        store: the results folder that holds the results.
        path: the zip file to write or replace.

    Returns:
        The number of trainings in the archive, and the number in the sweep.

    Raises:
        ArchiveError: no training is finished.
        StorageError: the store cannot be read or the file cannot be written.
    """
    description = {
        # The archive does not reveal where the sweep was trained, and a tracking URI may contain a password.
        "sweep": to_mapping(replace(sweep.config, store=_STORE, tracking=_TRACKING)),
        "data_fingerprint": sweep.data_fingerprint,
        "weights": dict(sweep.weights),
    }
    files = {_SWEEP: json_bytes(description)}
    statuses = store.status(sweep.trainings)
    done = [training for training in sweep.trainings if statuses[training].state == "done"]
    if not done:
        raise ArchiveError(f"nothing to export: no training of {sweep.config.name!r} is finished in {store.root}")
    for training in done:
        cell = training.cell
        files[f"cells/{cell.id}/cell.json"] = json_bytes(store.read_cell(cell.id) or cell.describe())
        for name, content in _carried_files(store.folder(training)):
            files[f"{_folder(training)}/{name}"] = content
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    files[_MANIFEST] = json_bytes({"format": "goal-sweep results", "version": _VERSION, "sha256": digests})
    replace_with(path.absolute(), lambda temporary: _write_zip(temporary, files))
    return len(done), len(statuses)


def read_archive(path: Path) -> Archive:
    """Read and check an archive: every name, every digest, every result.

    Raises:
        ArchiveError: the file is not an archive, is damaged, or was written by a later version.
    """
    try:
        with zipfile.ZipFile(path) as zipped:
            files = {name: zipped.read(name) for name in zipped.namelist()}
    except (OSError, zipfile.BadZipFile, EOFError, ValueError) as error:
        raise ArchiveError(f"{path} is not an archive of results: {error}") from error
    try:
        manifest = json.loads(files.pop(_MANIFEST))
        digests, version = dict(manifest["sha256"]), int(manifest["version"])
        if version > _VERSION:
            raise ArchiveError(f"{path} was written by a later goal-sweep (archive {version}); upgrade goal-sweep")
        _check(path, files, digests)
        described = json.loads(files[_SWEEP])
        archive = Archive(
            config=from_mapping(SweepConfig, described["sweep"]),
            data_fingerprint=str(described["data_fingerprint"]),
            weights=dict(described["weights"]),
            files=files,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveError(f"{path} is not an archive of results: {type(error).__name__} {error}") from error
    expected = {_folder(training) for training in archive.finished}
    strangers = {name.rpartition("/")[0] for name in files if name.endswith(f"/{RESULT}")} - expected
    if strangers:
        raise ArchiveError(f"{path} holds results of another sweep: {', '.join(sorted(strangers)[:3])}")
    return archive


def import_results(archive: Archive, store: Store) -> ImportOutcome:
    """Add an archive's results to a store. If any contradicts the store, add none.

    Args:
        archive: from `read_archive`.
        store: the store to add to; created if missing.

    Returns:
        What was done with each training.

    Raises:
        ArchiveError: the store holds a different result of the same training; nothing was written.
        StorageError: the store cannot be written; the trainings added so far are complete.
    """
    outcome, contradictions = ImportOutcome(), []
    for training in archive.finished:
        folder = store.folder(training)
        ours = folder.result()
        theirs = json.loads(archive.files[f"{_folder(training)}/{RESULT}"])
        if ours is None:
            (outcome.begun if folder.folder.exists() else outcome.added).append(training)
        elif ours["metrics"] == theirs["metrics"]:
            outcome.known.append(training)
        else:
            contradictions.append(f"{training.name} ({training.cell.id}): {_difference(ours, theirs)}")
    if contradictions:
        more = f" and {len(contradictions) - 3} more" if len(contradictions) > 3 else ""
        raise ArchiveError(
            "the store and the archive have different results, so nothing is imported: "
            f"{'; '.join(contradictions[:3])}{more}"
        )
    if outcome.added:
        store.prepare()
    for training in outcome.added:
        cell = training.cell.id
        store.write_description(cell, json.loads(archive.files[f"cells/{cell}/cell.json"]))
        _place(archive, training, store.folder(training).folder)
    return outcome


def _place(archive: Archive, training: Training, folder: Path) -> None:
    """Add a training in one step: with all its files, or not at all."""
    fresh = folder.with_name(f".{folder.name}.import-{os.getpid()}")
    prefix = f"{_folder(training)}/"
    with storage_errors(folder, "import"):
        try:
            for name, content in archive.files.items():
                if name.startswith(prefix):
                    path = fresh / name.removeprefix(prefix)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    replace_bytes(path, content)
            fresh.rename(folder)
        except OSError as error:
            if folder.exists():
                raise ArchiveError(f"a launch began {folder} during the import, so it was not imported") from error
            raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _carried_files(folder: TrainingFolder) -> Iterator[tuple[str, bytes]]:
    for name in _CARRIED:
        content = folder.load(name)
        if content is not None:
            yield name, content
    for path in sorted((folder.folder / "attempts").glob("*.json")):
        if path.stem.isdigit():
            yield f"attempts/{path.name}", path.read_bytes()


def _write_zip(path: Path, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in [_MANIFEST, *sorted(files.keys() - {_MANIFEST})]:
            archive.writestr(zipfile.ZipInfo(name, _DATE), files[name], zipfile.ZIP_DEFLATED)


def _check(path: Path, files: Mapping[str, bytes], digests: Mapping[str, Any]) -> None:
    problems = [f"{name} does not belong in an archive" for name in files if not _MEMBER.fullmatch(name)]
    problems += [f"{name} is missing" for name in digests.keys() - files.keys()]
    problems += [f"{name} is not in the manifest" for name in files.keys() - digests.keys()]
    problems += [
        f"{name} is damaged (SHA-256 differs)"
        for name in files.keys() & digests.keys()
        if hashlib.sha256(files[name]).hexdigest() != digests[name]
    ]
    if problems:
        raise ArchiveError(f"{path} is damaged, so nothing is imported: {'; '.join(sorted(problems)[:3])}")


def _folder(training: Training) -> str:
    return f"cells/{training.cell.id}/{training.stage.name}-{training.key}"


def _difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    names = [name for name in ours["metrics"] if theirs["metrics"].get(name) != ours["metrics"][name]]
    if not names:
        return "the archive has additional metrics"
    name = "test/rsum" if "test/rsum" in names else names[0]
    return f"{name} is {ours['metrics'][name]:g} in the store and {theirs['metrics'].get(name)} in the archive"


def write_sweep_file(archive: Archive, store: Store, tracking: str) -> Path:
    """Write an archive's sweep into the store as a sweep file that `report` and `ui` accept.

    Args:
        archive: the archive.
        store: the store that holds its results.
        tracking: MLflow tracking URI of the store, resolved.

    Returns:
        ``STORE/imported/<name>.yaml``.
    """
    config = replace(archive.config, store=str(store.root), tracking=tracking)
    path = store.root / "imported" / f"{config.name}.yaml"
    with storage_errors(path.parent, "create"):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, json_bytes(to_mapping(config), seal=False))  # JSON is YAML
    return path
