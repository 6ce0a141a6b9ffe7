"""What all kinds of clusters have in common: a job as it is sent, its record and state, and the protocol of a backend.

::

    STORE/submissions/<id>.json     the record: written before the job is sent, then again with the cluster's id
    STORE/submissions/<id>/         what belongs to the job: its sweep file, its script and its output
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

import jinja2

from goal_sweep.goal_core.basics.atomic import DamagedError, create_bytes, make_folder, replace_bytes
from goal_sweep.goal_core.basics.errors import ConfigError, GoalError
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.runners.execution.session import STARTING, Machine, Resources, patient
from goal_sweep.runners.planning.devices import idle_gpus
from goal_sweep.runners.store.storage import LOCAL, read_record
from goal_sweep.sweeps import SweepConfig
from goal_sweep.sweeps.clusters import ClusterConfig

_TEMPLATES = Path(__file__).parent / "templates"
_ANSWER_S = 60.0
"""Seconds that a command of a cluster may take."""
_WITHOUT_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
PATIENT = patient(STARTING, 600) | {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Variables of a node of Ray with which slowness is not taken for death while it starts."""
Phase = Literal["pending", "running", "ended", "unknown", "silent"]
"""Where a job is in its life; `unknown`: the cluster does not know it (any more); `silent`: it cannot be asked."""
_ID = re.compile(r"([a-z0-9][a-z0-9-]*)-[0-9a-f]{6}-(\d+)")
_MAX_NAME = 32
"""Kubernetes allows 63 characters in a name, and Ray's operator adds to it."""


class ClusterError(GoalError):
    """A cluster refused something, or cannot be reached."""


class NoAnswerError(ClusterError):
    """A cluster did not answer in time. It may have done what it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A sweep as it is sent to a cluster."""

    id: str
    config: SweepConfig
    cluster: ClusterConfig
    sweep_text: str
    """The sweep file that the job launches: one YAML file without `extends`."""
    store: str
    """The location of the store as this machine sees it, absolute."""
    folder: Path
    """The folder of the submission, in the store; of a store in a bucket, in this machine's folder for it."""
    working_dir: Path
    """Where the command was given; relative paths of the sweep start there."""
    code: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the sweep file names, with their values here."""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """What a cluster says of a job."""

    phase: Phase
    said: str
    status: int | None = None
    """The exit status of the launch, where it is known."""


class Backend(Protocol):
    """One kind of cluster: a module with these functions, each of which may raise a `ClusterError`."""

    def check(self, job: Job) -> list[str]:
        """Refuse settings with which the job could not run. Returns what a user should know before it is sent."""

    def render(self, job: Job) -> str:
        """Write what would be sent, exactly. Needs no cluster."""

    def submit(self, job: Job) -> str:
        """Send the job. Returns the cluster's id of it."""

    def state(self, submission: Submission, folder: Path) -> JobState:
        """Ask the cluster for the state of a job. Changes nothing."""

    def cancel(self, submission: Submission) -> None:
        """End a job. Its trainings save first."""

    def logs(self, submission: Submission, folder: Path, *, follow: bool) -> Iterator[str]:
        """The lines that the job has printed; with ``follow``, new ones until it ends."""


def run_command(command: Sequence[str], doing: str) -> str:
    """Run a command of a cluster. Returns its output.

    Raises:
        ClusterError: it is not installed here, does not answer, or fails; has the line in which it says why.
    """
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ANSWER_S)
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]} is not installed on this machine, or not on the path") from error
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"{command[0]} does not answer (waited {_ANSWER_S:.0f} s)") from error
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        kind = NoAnswerError if "timed out" in lines[-1].lower() else ClusterError
        raise kind(f"cannot {doing}: {lines[-1].strip()}")
    return done.stdout


def check_variables(job: Job, kind: str, known: Collection[str]) -> None:
    """Refuse a sweep that names a variable which the nodes will not have, where they lack this machine's folders."""
    missing = sorted(set(_WITHOUT_DEFAULT.findall(job.sweep_text)) - set(known))
    if missing:
        give = f"give the values for the cluster's nodes in cluster.{kind}.environment"
        raise ConfigError(f"the sweep names {', '.join(missing)}; {give}")


def check_node(job: Job, kind: str, cpus: int, gpus: int) -> list[str]:
    """Refuse a sweep whose units fit no node. Returns what to say of GPUs that would stay idle for want of CPUs."""
    need = replace(Resources.of(job.config.resources), accelerator="")
    node = Machine(id="", resources={"CPU": cpus, "GPU": gpus})
    if not node.fits(need):
        raise ConfigError(f"a unit needs {need} (resources), but a node has {node.describe()} (cluster.{kind})")
    return [f"{idle} (cluster.{kind})"] if need.gpus and (idle := idle_gpus([node], need)) else []


def launch_command(job: Job, sweep: str, store: str, tracking: str) -> str:
    """The command of a driver that runs on a cluster of Ray; paths and URI are as the driver sees them."""
    words = ["python", "-m", "goal_sweep.runners.cli", "launch", sweep, "--address", "auto", "--store", store]
    return shlex.join([*words, *(["--tracking-uri", tracking] if tracking else []), *job.options])


def template(name: str) -> jinja2.Template:
    """A template of a script or a manifest. In a script, every value must go through `quote`."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    templates.filters["quote"] = shlex.quote
    return templates.get_template(name)


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
