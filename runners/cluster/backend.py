"""What all kinds of clusters have in common: a job as it is sent, its state, and the protocol of a backend."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

import jinja2

from goal_sweep.goal_core.basics.errors import ConfigError, GoalError
from goal_sweep.runners.execution.capacity import Machine, Resources
from goal_sweep.runners.planning.devices import idle_gpus
from goal_sweep.runners.store.submissions import Submission
from goal_sweep.sweeps import ClusterConfig, SweepConfig

_TEMPLATES = Path(__file__).parent / "templates"
_ANSWER_S, ASK_S = 60.0, 10.0
"""Seconds that a command of a cluster may take, and one that only asks for what is shown."""
_WITHOUT_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
WAIT = ("--wait-for-launch", "180")
"""A launch waits so long for its predecessor, which counts as alive for a minute if it was killed."""
Phase = Literal["pending", "running", "ended", "unknown", "silent"]
"""Where a job is in its life; `unknown`: the cluster does not know it (any more); `silent`: it cannot be asked."""


class ClusterError(GoalError):
    """A cluster refused something, or cannot be reached."""


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

    def check(self, job: Job) -> list[str]:
        """Refuse settings with which the job could not run. Returns what a user should know before it is sent.

        Raises:
            GoalError: a setting is missing or does not fit the sweep.
        """

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


Completed = subprocess.CompletedProcess[str]
RunCommand = Callable[[Sequence[str], str], Completed]
"""Runs a command with some text as its input."""


def run_command(command: Sequence[str], text: str = "", *, seconds: float = _ANSWER_S) -> Completed:
    """Run a command of a cluster, which may take some seconds.

    Raises:
        ClusterError: it is not installed here.
        NoAnswerError: it does not answer.
    """
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]} is not installed on this machine, or not on the path") from error
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"{command[0]} does not answer (waited {seconds:.0f} s)") from error


def succeed(done: Completed, doing: str) -> str:
    """The output of a command.

    Raises:
        ClusterError: it failed; the message has the line in which it says why.
    """
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        error = NoAnswerError if "timed out" in lines[-1].lower() else ClusterError
        raise error(f"cannot {doing}: {lines[-1].strip()}")
    return done.stdout


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


def check_node(job: Job, kind: str, cpus: int, gpus: int) -> list[str]:
    """Refuse a sweep whose units fit no node. Returns what to say of GPUs that would stay idle for want of CPUs.

    Args:
        job: the job.
        kind: the kind of cluster.
        cpus: CPUs of a node.
        gpus: GPUs of a node.

    Raises:
        ConfigError: a unit needs more than a node has.
    """
    need = replace(Resources.of(job.config.resources), accelerator="")
    node = Machine(id="", host="", address="", resources={"CPU": cpus, "GPU": gpus})
    if not node.fits(need):
        raise ConfigError(f"a unit needs {need} (resources), but a node has {node.describe()} (cluster.{kind})")
    return [f"{idle} (cluster.{kind})"] if need.gpus and (idle := idle_gpus([node], need)) else []


def launch_command(job: Job, sweep: str, store: str, tracking: str) -> list[str]:
    """The command of a driver that runs on a cluster of Ray.

    Args:
        job: the job.
        sweep: the sweep file as the driver sees it.
        store: the results folder as the nodes see it; empty is that of the sweep.
        tracking: MLflow tracking URI as the driver sees it; empty is that of the sweep.
    """
    words = [
        "python",
        "-m",
        "goal_sweep.runners.cli",
        "launch",
        sweep,
        "--address",
        "auto",
        "--store",
        store or job.store,
    ]
    words += ["--tracking-uri", tracking] if tracking else []
    return [*words, *WAIT, *job.options]


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
