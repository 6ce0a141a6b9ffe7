"""From a command line to a job: the kinds of clusters, what of a sweep a job launches, and whether one may begin."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from goal_sweep.goal_core.basics.errors import ConfigError, GoalError
from goal_sweep.runners.cluster.backend import ASK_S, Backend, Job, JobState, NoAnswerError, RunCommand, run_command
from goal_sweep.runners.cluster.kubernetes import Kubernetes
from goal_sweep.runners.cluster.ray_jobs import RayJobs
from goal_sweep.runners.cluster.slurm import Slurm
from goal_sweep.runners.store import local_root
from goal_sweep.runners.store.submissions import Submission, Submissions
from goal_sweep.sweeps import ClusterSweep, to_mapping
from goal_sweep.sweeps.checks import looks_secret

_BACKENDS: Mapping[str, Callable[[RunCommand], Backend]] = {
    "ray": lambda _: RayJobs(),
    "slurm": Slurm,
    "kubernetes": Kubernetes,
}
_EXAMPLES = Path(__file__).parent / "sites"
_SENDING_S = 60
"""Seconds for which a job without the cluster's id counts as one that another command is just sending."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


class SubmissionError(GoalError):
    """A sweep cannot be submitted."""


def site_file(given: Path | None) -> Path | None:
    """The site file: the given one, or the user's own; None where there is neither."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    own = home / "goal-sweep" / "site.yaml"
    return given or (own if own.is_file() else None)


def example_site(kind: str) -> str:
    """The example of a site file that ships for a kind of cluster."""
    return (_EXAMPLES / f"{kind}.yaml").read_text()


def backend_of(kind: str, run: RunCommand = run_command) -> Backend:
    """The backend of a kind of cluster, with what runs its commands."""
    return _BACKENDS[kind](run)


def job_of(loaded: ClusterSweep, submission_id: str, code: str, options: Sequence[str]) -> Job:
    """Freeze a sweep into a job, so that edits after the submission do not reach it.

    Args:
        loaded: the sweep.
        submission_id: the id of the submission.
        code: digest of the code that submits.
        options: options of `goal-sweep launch`.

    Raises:
        ConfigError: the sweep names an environment variable whose value would be a secret in the job's files.
    """
    plain, own = dict(loaded.plain), loaded.config.plugins
    if own:  # with their texts, for they may be nowhere on the cluster; who submits trusts them
        plain, options = {**plain, "plugins": to_mapping(own)}, [*options, "--trust-plugins"]
    text = sweep_text(plain)
    named = sorted(set(_VARIABLE.findall(text)))
    if hidden := [name for name in named if looks_secret(name)]:
        raise ConfigError(
            f"the sweep names the environment variable {hidden[0]}, which looks like a secret; a job's script and "
            "settings can be read by others. Write it out of the sweep, and give it to the job as docs/clusters.md says"
        )
    return Job(
        id=submission_id,
        config=loaded.config,
        cluster=loaded.cluster,
        sweep_text=text,
        store=loaded.config.store,
        folder=Submissions(local_root(loaded.config.store)).files(submission_id),
        working_dir=Path.cwd(),
        code=code,
        variables={name: os.environ[name] for name in named if name in os.environ},
        options=tuple(options),
    )


def sweep_text(plain: Mapping[str, Any]) -> str:
    """Write a merged sweep as one YAML file."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 2)
    yaml.width = 110
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel states no type but None
    stream = io.StringIO()
    yaml.dump(dict(plain), stream)
    text = stream.getvalue().removeprefix("%YAML 1.2\n---\n")
    return f"# The sweep as it was submitted, with what it extends and --set.\n{text}"


def standing(submission: Submission, records: Submissions, run: RunCommand = run_command) -> JobState:
    """Where a job stands: by its record if that says how it ended, else by its cluster. Changes nothing."""
    if submission.ended:
        return JobState(phase="ended", said=submission.ended, status=submission.exit_status)
    try:
        return backend_of(submission.to, run).state(submission, records.files(submission.id))
    except GoalError as failure:
        return JobState(phase="silent", said=str(failure))


def standings(known: Iterable[Submission], records: Submissions) -> Iterator[tuple[Submission, JobState]]:
    """Where jobs stand, to be shown: each answer is waited for some seconds, and a silent cluster is asked once."""
    silent: dict[tuple[str, ...], JobState] = {}
    for one in known:
        place = (one.to, *one.place.values())
        state = None if one.ended else silent.get(place)
        state = state or standing(one, records, partial(run_command, seconds=ASK_S))
        if state.phase == "silent":
            silent[place] = state
        yield one, state


def send(
    make: Callable[[str], Job],
    own: Submission,
    backend: Backend,
    records: Submissions,
    cancel: str,
    say: Callable[[str], None],
) -> Submission:
    """Send the job of a submission, unless another job of the sweep waits or runs; else take the submission back.

    Should two jobs of a sweep run all the same, their launches keep apart: the second waits for the first, then ends.

    Args:
        make: makes the job with an id.
        own: the submission, begun.
        backend: the cluster.
        records: the submissions of the store.
        cancel: the command that cancels jobs of the sweep, for messages.
        say: shows a line to the user.

    Raises:
        SubmissionError: another job of the sweep lives; names it.
        NoAnswerError: the cluster may have taken the job. The record stays.
        ClusterError: the cluster refused it, or cannot be reached.
    """
    try:
        for other in (one for one in records.of(own.sweep) if one.id != own.id and not one.ended):
            state = standing(other, records)
            if state.phase in ("pending", "running"):
                raise SubmissionError(f"{other.id} of this sweep is {state.said}; {cancel} ends it")
            since = own.submitted - other.submitted
            if state.phase == "unknown" and not other.job and other.number < own.number and since < _SENDING_S:
                raise SubmissionError(
                    f"{other.id} of this sweep is being submitted on {other.host}; try again in a minute"
                )
            if state.phase == "silent":
                say(f"{other.id} may still run, but {state.said}; if it is gone: {cancel} {other.id} --forget")
            if state.phase == "ended":
                records.note(other, ended=state.said, exit_status=state.status)
        return records.note(own, job=backend.submit(make(own.id)))
    except NoAnswerError:
        raise
    except BaseException:
        records.withdraw(own)
        raise
