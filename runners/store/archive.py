"""Results without weights, carried from one store to another as one file.

::

    manifest.json                            what is in it, and the SHA-256 of every other file
    sweep.json                               the resolved sweep, its data's fingerprint and its weights' identities
    cells/<cell id>/cell.json
    cells/<cell id>/<stage>-<key>/...        a finished stage, all but its weights

An import checks every byte before it writes anything, takes whole stages only, and never replaces a finished result.
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
from runners.launch.opened_sweep import OpenedSweep
from runners.store.store import StageRef, Store
from runners.store.training_folder import LOG, METRICS, RESULT, TrainingFolder
from sweeps import Cell, SweepConfig, config_from_mapping, config_to_mapping, expand

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
    """An archive of results is not whole, not one, or contradicts what the store holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What an archive holds, checked."""

    config: SweepConfig
    data_fingerprint: str
    weights: Mapping[str, str]
    """Identity of each backbone's first weights."""
    files: Mapping[str, bytes]
    """Every member but the manifest, by name."""

    @property
    def cells(self) -> list[Cell]:
        """All cells of the sweep, those without a result too."""
        return expand(self.config, self.data_fingerprint, self.weights)

    def stages(self) -> list[tuple[Cell, StageRef]]:
        """The finished stages it holds, in the sweep's order."""
        refs = [(cell, StageRef(cell.id, stage.name, stage.key)) for cell in self.cells for stage in cell.stages]
        return [(cell, ref) for cell, ref in refs if f"{_folder(ref)}/{RESULT}" in self.files]


@dataclass(slots=True, kw_only=True)
class ImportOutcome:
    """What an import did with each stage of an archive."""

    added: list[StageRef] = field(default_factory=list)
    known: list[StageRef] = field(default_factory=list)
    """There already, with the same numbers."""
    begun: list[StageRef] = field(default_factory=list)
    """Begun in this store and not finished; left alone, for a launch here continues it."""


def export_results(study: OpenedSweep, path: Path) -> tuple[int, int]:
    """Write every finished stage of a sweep, without weights, to one file. The same results give the same bytes.

    Args:
        study: the sweep.
        path: the file, a zip; replaced whole.

    Returns:
        How many stages are in it, and how many the sweep has.

    Raises:
        ArchiveError: nothing is finished.
        StorageError: the disk refuses.
    """
    description = {
        # Where it was trained is nobody's concern, and a tracking URI may hold a password.
        "sweep": config_to_mapping(replace(study.config, store=_STORE, tracking=_TRACKING)),
        "data_fingerprint": study.dataset.fingerprint,
        "weights": dict(study.weights),
    }
    files = {_SWEEP: json_bytes(description)}
    statuses = study.statuses()
    done = [(cell, ref) for cell, _, ref in study.refs() if statuses[ref].state == "done"]
    if not done:
        raise ArchiveError(f"nothing of {study.config.name!r} is finished in {study.store.root}: nothing to export")
    for cell, ref in done:
        files[f"cells/{cell.id}/cell.json"] = json_bytes(study.store.read_cell(cell.id) or study.describe(cell))
        for name, content in _stage_files(study.store.folder(ref)):
            files[f"{_folder(ref)}/{name}"] = content
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    files[_MANIFEST] = json_bytes({"format": "goal-sweep results", "version": _VERSION, "sha256": digests})
    replace_with(path.absolute(), lambda temporary: _write_zip(temporary, files))
    return len(done), len(statuses)


def read_archive(path: Path) -> Archive:
    """Read and check an archive: every name, every digest, every result.

    Raises:
        ArchiveError: it is not one, is damaged, or is of a later version.
    """
    try:
        with zipfile.ZipFile(path) as zipped:
            files = {name: zipped.read(name) for name in zipped.namelist()}
    except (OSError, zipfile.BadZipFile, EOFError, ValueError) as error:
        raise ArchiveError(f"{path} is no archive of results: {error}") from error
    try:
        manifest = json.loads(files.pop(_MANIFEST))
        digests, version = dict(manifest["sha256"]), int(manifest["version"])
        if version > _VERSION:
            raise ArchiveError(f"{path} was written by a later goal-sweep (archive {version}): upgrade goal-sweep")
        _check(path, files, digests)
        described = json.loads(files[_SWEEP])
        archive = Archive(
            config=config_from_mapping(described["sweep"]),
            data_fingerprint=str(described["data_fingerprint"]),
            weights=dict(described["weights"]),
            files=files,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveError(f"{path} is no archive of results: {type(error).__name__} {error}") from error
    expected = {_folder(ref) for _, ref in archive.stages()}
    strangers = {name.rpartition("/")[0] for name in files if name.endswith(f"/{RESULT}")} - expected
    if strangers:
        raise ArchiveError(f"{path} holds results that are not of its sweep: {', '.join(sorted(strangers)[:3])}")
    return archive


def import_results(archive: Archive, store: Store) -> ImportOutcome:
    """Add an archive's results to a store, or none of them.

    Args:
        archive: from `read_archive`.
        store: where to; made when it is not there.

    Returns:
        What was done with each stage.

    Raises:
        ArchiveError: the store has another result of the same stage; nothing was written.
        StorageError: the disk refuses; what was added so far is whole.
    """
    outcome, contradictions = ImportOutcome(), []
    for cell, ref in archive.stages():
        folder = store.folder(ref)
        ours = folder.result()
        theirs = json.loads(archive.files[f"{_folder(ref)}/{RESULT}"])
        if ours is None:
            (outcome.begun if folder.folder.exists() else outcome.added).append(ref)
        elif ours["metrics"] == theirs["metrics"]:
            outcome.known.append(ref)
        else:
            contradictions.append(f"{cell.name(ref.stage)} ({ref.cell_id}): {_difference(ours, theirs)}")
    if contradictions:
        more = f" and {len(contradictions) - 3} more" if len(contradictions) > 3 else ""
        raise ArchiveError(
            "the store has other results than the archive, so nothing is imported: "
            f"{'; '.join(contradictions[:3])}{more}"
        )
    if outcome.added:
        store.prepare()
    for ref in outcome.added:
        store.write_cell(ref.cell_id, json.loads(archive.files[f"cells/{ref.cell_id}/cell.json"]))
        _place(archive, ref, store.folder(ref).folder)
    return outcome


def _place(archive: Archive, ref: StageRef, folder: Path) -> None:
    """Put a stage in place in one step: it is there with all its files, or not at all."""
    fresh = folder.with_name(f".{folder.name}.import-{os.getpid()}")
    prefix = f"{_folder(ref)}/"
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
                raise ArchiveError(f"{folder} was begun by a launch during the import and is left to it") from error
            raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _stage_files(folder: TrainingFolder) -> Iterator[tuple[str, bytes]]:
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
    problems = [f"{name} is not a file of a result" for name in files if not _MEMBER.fullmatch(name)]
    problems += [f"{name} is missing" for name in digests.keys() - files.keys()]
    problems += [f"{name} is not in its list" for name in files.keys() - digests.keys()]
    problems += [
        f"{name} is damaged (SHA-256 differs)"
        for name in files.keys() & digests.keys()
        if hashlib.sha256(files[name]).hexdigest() != digests[name]
    ]
    if problems:
        raise ArchiveError(f"{path} is not whole, nothing is imported: {'; '.join(sorted(problems)[:3])}")


def _folder(ref: StageRef) -> str:
    return f"cells/{ref.cell_id}/{ref.stage}-{ref.key}"


def _difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    names = [name for name in ours["metrics"] if theirs["metrics"].get(name) != ours["metrics"][name]]
    if not names:
        return "the archive has further metrics"
    name = "test/rsum" if "test/rsum" in names else names[0]
    return f"{name} is {ours['metrics'][name]:g} here and {theirs['metrics'].get(name)} there"


def write_sweep_file(archive: Archive, store: Store, tracking: str) -> Path:
    """Keep an archive's sweep in the store as a sweep file, by which `report` and `ui` know it.

    Args:
        archive: the archive.
        store: the store that its results are in.
        tracking: MLflow tracking URI of the store, resolved.

    Returns:
        ``STORE/imported/<name>.yaml``.
    """
    config = replace(archive.config, store=str(store.root), tracking=tracking)
    path = store.root / "imported" / f"{config.name}.yaml"
    with storage_errors(path.parent, "create"):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, json_bytes(config_to_mapping(config)))  # JSON is YAML
    return path
