"""Write the finished trainings of a sweep, without weights, to one file."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.atomic import DamagedError, replace_with
from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.goal_core.checkpoints import BEST
from goal_sweep.runners.store.archive.reading import FORMAT, MAX_FILE, MAX_TOTAL, SWEEP, VERSION, ArchiveError
from goal_sweep.runners.store.records.attempts import Attempt
from goal_sweep.runners.store.records.result_content import RESULT
from goal_sweep.runners.store.storage.folders import read_record
from goal_sweep.runners.store.store import Store
from goal_sweep.runners.store.trainings.folder import TrainingFolder
from goal_sweep.sweeps import ResolvedSweep, to_mapping

_PATH = re.compile(r"(?<![\w:/])~?/[^\s:,;'\"()]+")


def export_results(sweep: ResolvedSweep, store: Store, path: Path) -> tuple[int, int]:
    """Write every finished training of a sweep, without weights, to one file. Equal results give equal bytes.

    What tells of the people and machines that trained stays here: names of hosts, process numbers, paths, uncommitted
    changes, traces and logs.

    Args:
        sweep: the sweep.
        store: the results folder that holds the results.
        path: the file to write or replace.

    Returns:
        The number of trainings in the archive, and the number in the sweep.

    Raises:
        ArchiveError: no training is finished, a file is not what its result states, or there is too much.
        StorageError: the store cannot be read or the file cannot be written.
    """
    asked = sweep.requested
    description = {
        "format": FORMAT,
        "version": VERSION,
        "sweep": _without_paths(asked.config),
        "data_fingerprint": asked.data_fingerprint,
        "weights": asked.weights,
        "trails": to_mapping(sweep.trails),
    }
    files: dict[str, bytes] = {}
    statuses = store.status(sweep.trainings)
    done = [training for training, status in statuses.items() if status.state == "done"]
    if not done:
        raise ArchiveError(f"nothing to export: no training of {sweep.config.name!r} is finished in {store.location}")
    carried = store.storage.each(lambda training: dict(_carried(store.folder(training))), done)
    for training, contents in zip(done, carried, strict=True):
        place = f"cells/{training.cell.id}/{training.stage.name}-{training.key}"
        files |= {f"{place}/{name}": content for name, content in contents.items()}
    members = [(SWEEP, json_bytes({**description, "num_files": 1 + len(files)})), *sorted(files.items())]
    if max(map(len, files.values())) > MAX_FILE or sum(map(len, files.values())) > MAX_TOTAL // 2:
        raise ArchiveError(f"the results in {store.location} are larger than an archive may be")
    replace_with(path.absolute(), lambda temporary: _pack(temporary, members))
    return len(done), len(statuses)


def _without_paths(value: Any) -> Any:
    """Shorten every absolute path of a configuration to its last part: the others say who trained, and where."""
    if isinstance(value, dict):
        return {name: _without_paths(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_paths(each) for each in value]
    return Path(value).name or "data" if isinstance(value, str) and os.path.isabs(value) else value


def _carried(folder: TrainingFolder) -> Iterator[tuple[str, bytes]]:
    """The files of a finished training that an archive holds, by name."""
    result = folder.result() or {}
    yield RESULT, folder.storage.read(folder.folder / RESULT) or b""
    for key, stated in result["files"].items():
        if key != BEST:
            content = folder.storage.read(folder.folder / stated["name"]) or b""
            if hashlib.sha256(content).hexdigest() != stated["sha256"]:
                shown = folder.storage.shown(folder.folder / stated["name"])
                raise ArchiveError(f"{shown} is not the file that {RESULT} states; launch trains damaged results again")
            yield stated["name"], content
    for number in folder.attempts.numbers():
        with contextlib.suppress(DamagedError):
            attempt = read_record(folder.storage, folder.attempts.path(number), Attempt)
            if attempt is not None and attempt.n == number:
                yield f"attempts/{number}.json", json_bytes(asdict(_anonymous(attempt)))


def _anonymous(attempt: Attempt) -> Attempt:
    """An attempt without what tells of its user and machine; the digest of its uncommitted changes stays."""
    launch = hashlib.sha256(attempt.launch_id.encode()).hexdigest()[:16]
    reason = _PATH.sub("[path]", attempt.reason)
    return replace(attempt, launch_id=launch, host="", pid=0, git_diff="", trace="", reason=reason)


def _pack(path: Path, members: Sequence[tuple[str, bytes]]) -> None:
    with (
        path.open("wb") as packed,
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as unpacked,
        tarfile.open(fileobj=unpacked, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
