"""Read an archive of results, which may come from anybody.

Sizes are limited before anything is unpacked, and every file is parsed and compared with the sweep before the archive
is handed on. What this cannot find are numbers that were forged together with their digests; therefore an import marks
what it adds (`runners.store.imported`).
"""

from __future__ import annotations

import hashlib
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISLNK, S_ISREG
from typing import Any, BinaryIO

from goal_core.basics.errors import GoalError
from goal_core.checkpoints import TRIPLETS
from runners.store.archive_contents import ContentError, check_training, parse_object
from runners.store.result_content import METRICS, RESULT, parse_result
from runners.store.training_files import LOG
from sweeps import ResolvedSweep, SweepConfig, Trail, Training, from_mapping

VERSION = 1
MANIFEST, SWEEP, TRAIL = "manifest.json", "sweep.json", "tuning.json"
CARRIED = (METRICS, TRIPLETS, LOG, RESULT)
_MIB = 1024 * 1024
MAX_TOTAL = 1024 * _MIB
"""Bytes of all files of an archive together, and of the archive itself."""
_MAX_FILE = {
    SWEEP: 8 * _MIB,
    TRAIL: 16 * _MIB,
    MANIFEST: 32 * _MIB,
    METRICS: 16 * _MIB,
    TRIPLETS: 16 * _MIB,
    LOG: 64 * _MIB,
}
_MAX_OTHER = _MIB
_MAX_READ = 16 * _MIB
"""Bytes that are read at once. The list of an archive's files is: so it has room for about 120,000 of them."""
_MAX_CELLS = 20_000
_MEMBER = re.compile(
    r"sweep\.json|tuning\.json|cells/[0-9a-f]{16}/cell\.json|cells/[0-9a-f]{16}/(frozen|finetune)-[0-9a-f]{16}/"
    rf"({'|'.join(re.escape(name) for name in CARRIED)}|attempts/[1-9][0-9]{{0,5}}\.json)"
)
_UNREADABLE = (
    *(OSError, zipfile.BadZipFile, zlib.error, struct.error, EOFError),
    *(RuntimeError, NotImplementedError, ValueError, OverflowError, KeyError, TypeError, AttributeError),
)
"""What zipfile and json raise for a file that is not what it claims to be; RecursionError is a RuntimeError."""


class ArchiveError(GoalError):
    """A file is not an archive of results, is damaged, or contradicts what the store holds."""


@dataclass(frozen=True, kw_only=True)
class Archive(ResolvedSweep):
    """A sweep with its finished results, read from an archive and checked."""

    name: str
    """Name of the archive's file."""
    sha256: str
    """Digest of the archive's file, in hex."""
    files: Mapping[str, bytes]
    """Content of every member except the manifest, by name."""

    @property
    def finished(self) -> list[Training]:
        """The trainings whose results the archive holds, in the sweep's order."""
        return [training for training in self.trainings if f"{folder_name(training)}/{RESULT}" in self.files]

    def metrics_of(self, training: Training) -> dict[str, float]:
        """The final metrics of a finished training."""
        name = f"{folder_name(training)}/{RESULT}"
        metrics: dict[str, float] = parse_result(self.files[name], name)["metrics"]
        return metrics

    def described(self, training: Training) -> dict[str, Any]:
        """The description of a training's cell."""
        name = f"cells/{training.cell.id}/cell.json"
        return parse_object(name, self.files[name])

    def files_of(self, training: Training) -> dict[str, bytes]:
        """The files of a training, by their name within its folder."""
        prefix = f"{folder_name(training)}/"
        return {name.removeprefix(prefix): data for name, data in self.files.items() if name.startswith(prefix)}


def folder_name(training: Training) -> str:
    """The folder of a training in an archive."""
    return f"cells/{training.cell.id}/{training.stage.name}-{training.key}"


def max_bytes(name: str) -> int:
    """The largest size that a file of this name may have in an archive."""
    return _MAX_FILE.get(name.rpartition("/")[2], _MAX_OTHER)


def read_archive(path: Path) -> Archive:
    """Read and check an archive: sizes, names, digests, and the content of every file.

    Raises:
        ArchiveError: the file is not an archive, is damaged, holds anything that no export writes, or was written by a
            later version.
    """
    try:
        stat = path.stat()
        if not S_ISREG(stat.st_mode):
            raise ArchiveError(f"{path} is not an archive of results: it is not a regular file")
        if stat.st_size > MAX_TOTAL:
            raise ArchiveError(f"{path} is larger than {MAX_TOTAL // _MIB} MiB, so nothing is imported")
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            with zipfile.ZipFile(_Bounded(file)) as zipped:
                files = _unpack(zipped)
        manifest = parse_object(MANIFEST, files.pop(MANIFEST))
        digests, version = dict(manifest["sha256"]), int(manifest["version"])
        if version > VERSION:
            raise ArchiveError(f"{path} was written by a later goal-sweep (archive {version}); upgrade goal-sweep")
        _check_digests(files, digests)
        archive = _resolve(_printable(path.name), sha256, files)
        _check_contents(archive)
    except ArchiveError:
        raise
    except ContentError as error:
        raise ArchiveError(f"{path} is damaged, so nothing is imported: {error}") from error
    except _UNREADABLE as error:
        reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
        raise ArchiveError(f"{path} is not an archive of results: {reason}") from error
    return archive


class _Bounded:
    """A file of which no call returns more than `_MAX_READ` bytes, whatever sizes an archive declares."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(_MAX_READ + 1 if size < 0 else min(size, _MAX_READ + 1))
        if len(data) > _MAX_READ:
            raise zipfile.BadZipFile("its list of files is too long")
        return data


def _unpack(zipped: zipfile.ZipFile) -> dict[str, bytes]:
    """Read every member, after all names and declared sizes were checked. zipfile reads no more than is declared."""
    members = zipped.infolist()
    if MANIFEST not in zipped.namelist():
        raise ContentError(f"it has no {MANIFEST}, so it is not an archive of results")
    if len({member.filename for member in members}) < len(members):
        raise ContentError("it holds two files of the same name")
    for member in members:
        name = member.filename
        if name != MANIFEST and not _MEMBER.fullmatch(name):
            raise ContentError(f"{_quoted(name)} does not belong in an archive")
        if member.file_size > max_bytes(name):
            raise ContentError(f"{name} is larger than {max_bytes(name) // 1024} KiB")
        if member.flag_bits & 0x1:
            raise ContentError(f"{name} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ContentError(f"{name} is compressed in a way that no export uses")
        if S_ISLNK(member.external_attr >> 16):
            raise ContentError(f"{name} is a link")
    if sum(member.file_size for member in members) > MAX_TOTAL:
        raise ContentError(f"its files have more than {MAX_TOTAL // _MIB} MiB together")
    return {member.filename: _read(zipped, member) for member in members}


def _read(zipped: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with zipped.open(member) as file:
        content = b"".join(iter(lambda: file.read(_MIB), b""))
    if len(content) != member.file_size:
        raise ContentError(f"{member.filename} is cut short")
    return content


def _quoted(name: str) -> str:
    """A name from an archive, on one line and without characters that would command a terminal."""
    return (name if len(name) <= 120 else f"{name[:120]}...").encode("unicode_escape").decode()


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _check_digests(files: Mapping[str, bytes], digests: Mapping[str, Any]) -> None:
    problems = [f"{_quoted(name)} is missing" for name in digests.keys() - files.keys()]
    problems += [f"{name} is not in the manifest" for name in files.keys() - digests.keys()]
    problems += [
        f"{name} is damaged (SHA-256 differs)"
        for name in files.keys() & digests.keys()
        if hashlib.sha256(files[name]).hexdigest() != digests[name]
    ]
    if problems:
        raise ContentError("; ".join(sorted(problems)[:3]))


def _resolve(name: str, sha256: str, files: Mapping[str, bytes]) -> Archive:
    described = parse_object(SWEEP, files[SWEEP])
    fingerprint, weights = described["data_fingerprint"], described["weights"]
    ids = [fingerprint, *weights.values()]
    if not all(isinstance(one, str) and re.fullmatch(r"[\x21-\x7e]{1,200}", one) for one in ids):
        raise ContentError(f"{SWEEP} has a data fingerprint or an id of weights that is none")
    try:
        config = from_mapping(SweepConfig, described["sweep"])
    except GoalError as error:
        raise ContentError(f"{SWEEP}: {error}") from error
    if len(config.model.backbones) * len(config.seeds) * len(config.objectives.names) > _MAX_CELLS:
        raise ContentError(f"{SWEEP} has more than {_MAX_CELLS} cells")
    if missing := {model.backbone.name for model in config.model.models} - weights.keys():
        raise ContentError(f"{SWEEP} has no id of the weights of {_quoted(min(missing))}")
    archive = Archive(
        config=config, data_fingerprint=fingerprint, weights=dict(weights), files=files, name=name, sha256=sha256
    )
    return replace(archive, trails=tuple(_trails(described["trails"], archive)))


def _trails(described: list[dict[str, Any]], archive: Archive) -> Iterator[Trail]:
    """A sweep's search, as an export describes it."""
    tune, names = archive.config.tune, {backbone.name for backbone in archive.config.model.backbones}
    if sum(len(one["candidates"]) for one in described) * (len(tune.seeds) if tune else 0) > _MAX_CELLS:
        raise ContentError(f"{SWEEP} has more than {_MAX_CELLS} candidates")
    for one in described:
        try:
            trail = from_mapping(Trail, one)
            space = archive.spaces[trail.objective]
            for candidate in trail.candidates:
                space.at(candidate.values)
            if trail.backbone not in names or trail.chosen not in (None, *range(len(trail.candidates))):
                raise ContentError(f"{SWEEP} has a search of something else")
        except (GoalError, KeyError) as error:
            raise ContentError(f"{SWEEP} has a candidate that is none: {error}") from error
        yield trail


def _check_contents(archive: Archive) -> None:
    """Check that every file belongs to a finished training of the sweep, and what it says."""
    expected = {SWEEP, TRAIL} if archive.has_chosen else {SWEEP}
    if TRAIL in archive.files:
        parse_object(TRAIL, archive.files[TRAIL])
    for training in archive.finished:
        files = archive.files_of(training)
        folder, card = folder_name(training), f"cells/{training.cell.id}/cell.json"
        if card not in archive.files:
            raise ContentError(f"{card} is missing")
        expected |= {card, *(f"{folder}/{name}" for name in files)}
        check_training(training, archive.files[card], files, folder)
    if strangers := sorted(archive.files.keys() - expected):
        raise ContentError(f"it holds results of another sweep, or parts of one: {', '.join(_folders(strangers)[:3])}")


def _folders(names: list[str]) -> list[str]:
    return list(dict.fromkeys(name.rpartition("/")[0] for name in names))
