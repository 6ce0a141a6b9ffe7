"""The batch jobs of a store: what was submitted where, so that any shell finds it again.

::

    STORE/submissions/<id>.json     the record: written before the job is sent, then again with the cluster's id
    STORE/submissions/<id>/         what belongs to the job: its sweep file, its script and its output
"""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from goal_sweep.goal_core.basics.atomic import DamagedError, create_bytes, make_folder, replace_bytes
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.runners.store.storage.folders import LOCAL, read_record

_ID = re.compile(r"([a-z0-9][a-z0-9-]*)-[0-9a-f]{6}-(\d+)")
_MAX_NAME = 32
"""Kubernetes allows 63 characters in a name, and Ray's operator adds to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One batch job, as it was submitted."""

    id: str
    """Unique on every cluster: the sweep's name, a digest of the store's place, and a number."""
    sweep: str
    to: str
    job: str = ""
    """The cluster's own id of the job; empty until the cluster has taken it."""
    submitted: float = 0.0
    """When, in seconds since 1970."""
    host: str = ""
    code: str = ""
    """Digest of the code of goal-sweep that submitted."""
    address: str = ""
    """Of the dashboard of a Ray cluster."""


class Submissions:
    """Reads and writes the submissions of a store."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "submissions"

    def begin(self, sweep: str, to: str, code: str, address: str = "") -> Submission:
        """Record that a job is about to be sent, under an id that nobody else has."""
        make_folder(self.folder)
        while True:
            submission = Submission(
                id=self.next_id(sweep), sweep=sweep, to=to, submitted=time.time(), host=socket.gethostname(),
                code=code, address=address,
            )  # fmt: skip
            if create_bytes(self.path(submission.id), json_bytes(asdict(submission))):
                make_folder(self.files(submission.id))
                return submission

    def next_id(self, sweep: str) -> str:
        """The id that the next submission of a sweep will have. Writes nothing."""
        known = [_ID.fullmatch(path.stem) for path in self.folder.glob("*") if path.suffix in ("", ".json")]
        name = re.sub(r"[^a-z0-9]+", "-", sweep).strip("-")[:_MAX_NAME].strip("-") or "sweep"
        digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:6]
        return f"{name}-{digest}-{1 + max((int(match[2]) for match in known if match), default=0)}"

    def taken(self, submission: Submission, job: str) -> Submission:
        """Write down that the cluster has taken a job, under an id of its own."""
        noted = replace(submission, job=job)
        replace_bytes(self.path(noted.id), json_bytes(asdict(noted)))
        return noted

    def withdraw(self, submission: Submission) -> None:
        """Remove the record of a job that the cluster has refused, and what was written for it."""
        shutil.rmtree(self.files(submission.id), ignore_errors=True)
        self.path(submission.id).unlink(missing_ok=True)

    def files(self, submission_id: str) -> Path:
        """The folder of what belongs to a job."""
        return self.folder / submission_id

    def path(self, submission_id: str) -> Path:
        """The file of a record."""
        return self.folder / f"{submission_id}.json"

    def of(self, sweep: str) -> list[Submission]:
        """The submissions of a sweep, by its name, oldest first. Writes nothing."""
        paths = [path for path in self.folder.glob("*.json") if _ID.fullmatch(path.stem)]
        known = [one for one in map(self._read, paths) if one is not None and one.sweep == sweep]
        return sorted(known, key=lambda one: (one.submitted, one.id))

    def _read(self, path: Path) -> Submission | None:
        """A record; None if it was withdrawn a moment ago."""
        try:
            return read_record(LOCAL, path, Submission)
        except DamagedError as error:
            raise DamagedError(
                f"{path} is damaged: it was the record of the job {path.stem}. If the cluster does not know a job of "
                "that name any more, remove the file"
            ) from error
