"""Read an archive of results, which may come from anybody: names and sizes first, then as a store is read."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError, storage_errors
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.sealed_json import json_bytes, parse_json
from goal_sweep.runners.store.records.result_content import RESULT
from goal_sweep.runners.store.store import Store
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, Trail, Training, from_mapping

FORMAT, VERSION = "goal-sweep results", 4
SWEEP = "sweep.json"
MAX_FILE, MAX_TOTAL = 64 * 2**20, 2**30
"""Bytes of one file in an archive, and of all of them."""
_MAX_CELLS = 20_000
_ID, _NUMBER = "[0-9a-f]{16}", "[1-9][0-9]{0,5}"
_MEMBER = re.compile(
    rf"sweep\.json|cells/{_ID}/(?:frozen|finetune)-{_ID}/(?:result\.json|metrics\.{_NUMBER}\.jsonl|"
    rf"ranks\.{_NUMBER}\.npz|attempts/{_NUMBER}\.json)"
)


_WRONG = (
    *(GoalError, tarfile.TarError, zlib.error, OSError, EOFError),
    *(ValueError, TypeError, LookupError, AttributeError),
)
"""What a file raises that is not what it claims to be."""


class ArchiveError(GoalError):
    """A file is not an archive of results, is damaged, or contradicts what the store holds."""


@dataclass(frozen=True, kw_only=True)
class Archive(ResolvedSweep):
    """A sweep with its finished results, read from an archive and checked."""

    store: Store
    """The unpacked results."""

    finished: Sequence[Training] = ()
    """The trainings whose results the archive holds, in the sweep's order."""


@contextlib.contextmanager
def opened_archive(path: Path) -> Iterator[Archive]:
    """Unpack and check an archive. It is gone from this machine's folder for temporary files after the block.

    Raises:
        ArchiveError: the file is not an archive, is damaged, holds anything that no export writes, or was written by
            another version.
    """
    if not path.is_file():
        raise ArchiveError(f"{path} is not a regular file" if path.exists() else f"there is no file {path}")
    with tempfile.TemporaryDirectory(prefix="goal-sweep-import-") as folder:
        try:
            described, names = _unpack(path, Path(folder))
            archive = _resolved(described, Store(folder))
            archive = replace(archive, finished=_checked(archive, names))
        except StorageError:
            raise
        except _WRONG as error:
            what = " ".join(str(error).replace(f"{folder}/", "").split()) or type(error).__name__
            raise ArchiveError(f"{path} is not an archive of results, or it is damaged: {what}") from error
        yield archive


class _Unpacked(gzip.GzipFile):
    """Gives no more than so many bytes, whatever sizes an archive declares and however well it is packed."""

    _left = MAX_TOTAL

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(self._left + 1 if size is None or size < 0 else min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise DamagedError(f"it unpacks to more than {MAX_TOTAL // 2**20} MiB")
        return content


def _unpack(path: Path, folder: Path) -> tuple[dict[str, Any], set[str]]:
    """Write the files of an archive to a folder. Returns what it says of its sweep, and the names of the others."""
    described: dict[str, Any] = {}
    found: set[str] = set()
    with path.open("rb") as packed, _Unpacked(fileobj=packed) as unpacked:
        origin = f"{_quoted(path.name)} (sha256 {hashlib.file_digest(packed, 'sha256').hexdigest()})"
        packed.seek(0)
        with tarfile.open(fileobj=unpacked, mode="r|") as tar:
            for member in tar:
                name, file = member.name, tar.extractfile(member) if member.isreg() else None
                if file is None or member.size > MAX_FILE or name in found or not _MEMBER.fullmatch(name):
                    raise DamagedError(f"{_quoted(name)} does not belong in an archive")
                if not found:
                    described = _description(name, file.read())
                else:
                    target = folder / name
                    with storage_errors(target, "write"):
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(_as_stored(target.name, file.read(), origin))
                found.add(name)
        while unpacked.read(2**20):  # to the end, where the checksum of the whole tells a file that was cut short
            pass
    if len(found) != described["num_files"]:
        raise DamagedError(f"it has {len(found)} of its {described['num_files']} files")
    return described, found - {SWEEP}


def _description(name: str, content: bytes) -> dict[str, Any]:
    """What an archive says of its sweep, in its first member."""
    described = parse_json(content, SWEEP) if name == SWEEP else {}
    if described.get("format") != FORMAT:
        raise DamagedError(f"it does not begin with {SWEEP}")
    if described.get("version") != VERSION:
        raise DamagedError(f"it has version {str(described.get('version'))[:20]}, and this goal-sweep reads {VERSION}")
    return described


def _as_stored(name: str, content: bytes, origin: str) -> bytes:
    """A file as the store keeps it: a result says where it came from."""
    return json_bytes({**parse_json(content, RESULT), "imported": origin}) if name == RESULT else content


def _quoted(name: str) -> str:
    """A name from elsewhere, on one line and without characters that would command a terminal."""
    return (name if len(name) <= 120 else f"{name[:120]}...").encode("unicode_escape").decode()


def _resolved(described: Mapping[str, Any], store: Store) -> Archive:
    fingerprint, weights = described["data_fingerprint"], described["weights"]
    if not all(re.fullmatch(r"[\x21-\x7e]{1,200}", each) for each in [fingerprint, *weights.values()]):
        raise DamagedError(f"{SWEEP} has a data fingerprint or an id of weights that is none")
    config = from_mapping(SweepConfig, described["sweep"])
    trails = tuple(from_mapping(Trail, each) for each in described["trails"])
    if any(trail.chosen not in (None, *range(len(trail.candidates))) for trail in trails):
        raise DamagedError(f"{SWEEP} has chosen a candidate that is none")
    num_candidates = sum(len(trail.candidates) for trail in trails)
    num_seeds = max(len(config.seeds), len(config.tune.seeds) if config.tune else 0)
    if num_seeds * (len(config.model.backbones) * len(config.objectives.names) + num_candidates) > _MAX_CELLS:
        raise DamagedError(f"{SWEEP} has more than {_MAX_CELLS} cells")
    return Archive(config=config, data_fingerprint=fingerprint, weights=dict(weights), trails=trails, store=store)


def _checked(archive: Archive, names: set[str]) -> list[Training]:
    """The trainings of an archive, after a check that every file belongs to one, and is what its result states."""
    folders = {archive.store.folder(training).folder: training for training in archive.trainings}
    for name in sorted(names):
        folder = archive.store.root.joinpath(*Path(name).parts[:3])
        if folder not in folders or f"{folder.relative_to(archive.store.root)}/{RESULT}" not in names:
            raise DamagedError(f"it holds results of another sweep, or parts of one: {name}")
    begun = [training for folder, training in folders.items() if folder.exists()]
    for training, status in archive.store.status(begun, thorough=True).items():
        if status.state != "done":
            raise DamagedError(status.reason)
        archive.store.folder(training).records(status.result)
    return begun
