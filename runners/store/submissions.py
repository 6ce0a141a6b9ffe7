"""The batch jobs of a store: what was submitted where, so that any shell finds it again.

::

    STORE/submissions/<id>.json     the record: written before the job is sent, then again with the cluster's id
    STORE/submissions/<id>/         what belongs to the job: its sweep file, its script or manifest, its output
"""

from __future__ import annotations

import getpass
import hashlib
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from goal_core.atomic import DamagedError, create_bytes, make_folder, replace_bytes
from goal_core.sealed_json import json_bytes, read_json

_ID = re.compile(r"[a-z0-9][a-z0-9-]*-\d+")
_MAX_NAME = 32
"""Kubernetes allows 63 characters in a name, and Ray's operator adds to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One batch job, as it was submitted."""

    id: str
    """Unique on every cluster: the sweep's name, a digest of the store's place, and a number."""
    sweep: str
    """Name of the sweep."""
    to: str
    """Kind of cluster: `slurm`, `ray` or `kubernetes`."""
    job: str = ""
    """The cluster's own id of the job; empty until the cluster has taken it."""
    submitted: float = 0.0
    """When, in seconds since 1970."""
    user: str = ""
    host: str = ""
    """The machine that submitted."""
    code: str = ""
    """Digest of the code of goal-sweep that submitted."""
    place: Mapping[str, str] = field(default_factory=dict)
    """What finds the cluster again, such as an address or a namespace. No secrets."""


class Submissions:
    """Reads and writes the submissions of a store.

    Args:
        root: the store's folder.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "submissions"

    def begin(self, sweep: str, to: str, code: str, place: Mapping[str, str]) -> Submission:
        """Record that a job is about to be sent, under an id that nobody else has.

        Raises:
            StorageError: the store cannot be written.
        """
        make_folder(self.folder)
        while True:
            submission = Submission(
                id=self.next_id(sweep),
                sweep=sweep,
                to=to,
                submitted=time.time(),
                user=getpass.getuser(),
                host=socket.gethostname(),
                code=code,
                place=dict(place),
            )
            if create_bytes(self._path(submission.id), json_bytes(asdict(submission))):
                make_folder(self.files(submission.id))
                return submission

    def next_id(self, sweep: str) -> str:
        """The id that the next submission of a sweep will have. Writes nothing."""
        name = re.sub(r"[^a-z0-9]+", "-", sweep).strip("-")[:_MAX_NAME].strip("-") or "sweep"
        taken = [int(path.stem.rpartition("-")[2]) for path in self.folder.glob("*.json") if _ID.fullmatch(path.stem)]
        digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:6]
        return f"{name}-{digest}-{1 + max(taken, default=0)}"

    def sent(self, submission: Submission, job: str) -> Submission:
        """Record the id that the cluster has given to the job."""
        done = replace(submission, job=job)
        replace_bytes(self._path(done.id), json_bytes(asdict(done)))
        return done

    def withdraw(self, submission: Submission) -> None:
        """Remove the record of a job that the cluster has refused."""
        self._path(submission.id).unlink(missing_ok=True)

    def files(self, submission_id: str) -> Path:
        """The folder of what belongs to a job."""
        return self.folder / submission_id

    def all(self) -> list[Submission]:
        """Every submission, oldest first. A damaged record is left out. Writes nothing."""
        found = [self.read(path.stem) for path in self.folder.glob("*.json") if _ID.fullmatch(path.stem)]
        return sorted((one for one in found if one is not None), key=lambda one: (one.submitted, one.id))

    def of(self, sweep: str) -> list[Submission]:
        """The submissions of a sweep, by its name, oldest first."""
        return [one for one in self.all() if one.sweep == sweep]

    def read(self, submission_id: str) -> Submission | None:
        """One submission; None if there is none, or its record is damaged."""
        try:
            content = read_json(self._path(submission_id))
        except DamagedError:
            return None
        return None if content is None else _from_json(content)

    def _path(self, submission_id: str) -> Path:
        return self.folder / f"{submission_id}.json"


def _from_json(content: Mapping[str, Any]) -> Submission | None:
    """Rebuild a record. Keys of later versions are left out; None where a value has the wrong type."""
    texts = ("id", "sweep", "to", "job", "user", "host", "code")
    place = content.get("place", {})
    if not all(isinstance(content.get(name, ""), str) for name in texts) or not isinstance(place, dict):
        return None
    known = {name: content.get(name, "") for name in texts}
    when = content.get("submitted", 0.0)
    return Submission(
        **known,
        submitted=float(when) if isinstance(when, (int, float)) else 0.0,
        place={str(key): str(value) for key, value in place.items()},
    )
