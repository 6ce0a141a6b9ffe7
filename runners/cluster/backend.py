"""What all kinds of clusters have in common: a job as it is sent, its state, and the protocol of a backend."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import jinja2

from goal_core.basics.errors import ConfigError, GoalError
from runners.store.submissions import Submission
from sweeps import ClusterConfig, ResourceConfig, SweepConfig

_TEMPLATES = Path(__file__).parent / "templates"
_ANSWER_S, _ACT_S = 20.0, 120.0
"""Seconds that a command of a cluster may take to answer a question, and to do something."""
_ACTS = ("sbatch", "scancel")
_WITHOUT_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
Phase = Literal["pending", "running", "ended", "unknown"]
"""Where a job is in its life; `unknown`: the cluster does not know it (any more)."""


class ClusterError(GoalError):
    """A cluster refused something, or cannot be reached."""


class NotInstalledError(ClusterError):
    """This machine lacks a program of a cluster."""

    def __init__(self, program: str) -> None:
        super().__init__(f"{program} is not installed on this machine, or not on the path")


class NoAnswerError(ClusterError):
    """A cluster did not answer in time. It may have done what it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A sweep as it is sent to a cluster."""

    id: str
    """The submission's id."""
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
    """Digest of the code that submits."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the sweep file names, with their values here."""
    options: tuple[str, ...] = ()
    """Options of `goal-sweep launch`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """What a cluster says of a job."""

    phase: Phase
    said: str
    """The state in the cluster's own words, with its reason."""
    status: int | None = None
    """The exit status of the launch, where it is known."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of the job runs or waits any more."""
        return self.phase in ("ended", "unknown")


class Backend(Protocol):
    """One kind of cluster."""

    def check(self, job: Job) -> None:
        """Refuse settings with which the job could not run.

        Raises:
            GoalError: a setting is missing or does not fit the sweep.
        """

    def notes(self, job: Job) -> Iterator[str]:
        """What a user should know before the job is sent, a line each."""

    def render(self, job: Job) -> str:
        """Write what would be sent, exactly. Needs no cluster."""

    def place(self, job: Job) -> dict[str, str]:
        """What finds the cluster again from another shell. No secrets."""

    def submit(self, job: Job) -> str:
        """Send the job. Returns the cluster's id of it.

        Raises:
            ClusterError: the cluster refused it, or cannot be reached.
        """

    def state(self, submission: Submission, folder: Path) -> JobState:
        """Ask the cluster for the state of a job. Changes nothing.

        Raises:
            ClusterError: the cluster cannot be asked, or is not the one that took the job.
        """

    def cancel(self, submission: Submission, folder: Path) -> None:
        """End a job. Its trainings save first.

        Raises:
            ClusterError: the cluster refused it, or cannot be reached.
        """

    def logs(self, submission: Submission, folder: Path, *, follow: bool) -> Iterator[str]:
        """The lines that the job has printed; with ``follow``, new ones until it ends. Changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a command ended."""

    status: int
    out: str
    err: str


RunCommand = Callable[[Sequence[str], str], Completed]
"""Runs a command with some text as its input."""


def run_command(command: Sequence[str], text: str = "") -> Completed:
    """Run a command of a cluster.

    Raises:
        ClusterError: it is not installed here, or does not answer.
    """
    limit = _ACT_S if text or command[0] in _ACTS else _ANSWER_S
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=limit, check=False)
    except FileNotFoundError as error:
        raise NotInstalledError(command[0]) from error
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"{command[0]} does not answer (waited {limit:.0f} s)") from error
    return Completed(status=done.returncode, out=done.stdout, err=done.stderr)


def succeed(done: Completed, doing: str) -> str:
    """The output of a command.

    Raises:
        ClusterError: it failed; the message has the line in which it says why.
    """
    if done.status:
        lines = (done.err.strip() or done.out.strip() or f"exit status {done.status}").splitlines()
        error = NoAnswerError if "timed out" in lines[-1].lower() else ClusterError
        raise error(f"cannot {doing}: {lines[-1].strip()}")
    return done.out


def check_variables(job: Job, kind: str, known: Collection[str]) -> None:
    """Refuse a sweep that names a variable which the nodes will not have, where they lack this machine's folders.

    Args:
        job: the job.
        kind: the kind of cluster.
        known: the variables that its settings give to the nodes.

    Raises:
        ConfigError: names the variables that are missing.
    """
    missing = sorted(set(_WITHOUT_DEFAULT.findall(job.sweep_text)) - set(known))
    if missing:
        raise ConfigError(
            f"the sweep names {', '.join(missing)}; give the values for the cluster's nodes in "
            f"cluster.{kind}.environment"
        )


def idle_gpus(gpus: int, cpus: int, need: ResourceConfig, setting: str) -> Iterator[str]:
    """A line on GPUs of a node that no unit can use, because the node has too few cores; none where all are used.

    Args:
        gpus: of each node.
        cpus: of each node.
        need: the resources of a unit.
        setting: the setting with the cores.
    """
    wanted, possible = int(gpus / need.gpus), cpus // need.cpus
    if possible < wanted:
        yield (
            f"{possible} of {wanted} units train at a time on a node, because each takes {need.cpus} of its {cpus} "
            f"cores ({setting}); {wanted * need.cpus} cores would keep all {gpus} GPUs busy, or fewer cores a unit "
            "(resources.cpus)"
        )


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
