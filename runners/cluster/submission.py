"""From a command line to a job: the kinds of clusters, what of a sweep a job launches, and whether one may begin."""

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from goal_sweep.goal_core.basics.errors import ConfigError, GoalError
from goal_sweep.runners.cluster import backend, ray_jobs, slurm
from goal_sweep.runners.cluster.backend import ClusterError, Job, JobState, NoAnswerError, Submission, Submissions
from goal_sweep.runners.execution.job import CODE_DIGEST
from goal_sweep.runners.store import local_root
from goal_sweep.sweeps.checks import looks_secret
from goal_sweep.sweeps.identity import to_mapping
from goal_sweep.sweeps.reading.load import ClusterSweep

BACKENDS: Mapping[str, backend.Backend] = {"ray": ray_jobs, "slurm": slurm}
EXAMPLES = Path(__file__).parent / "sites"
"""The folder of examples of a site file, by kind of cluster."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


def site_file(given: Path | None) -> Path | None:
    """The site file: the given one, or the user's own; None where there is neither."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "goal-sweep" / "site.yaml"
    return given or (own if own.is_file() else None)


def job_of(loaded: ClusterSweep, options: Sequence[str]) -> Job:
    """Freeze a sweep into a job, so that edits after the submission do not reach it.

    Raises `ConfigError` where the sweep names an environment variable whose value would be a secret in the job's files.
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
    records = Submissions(local_root(loaded.config.store))
    number = records.next_id(loaded.config.name)
    return Job(
        id=number,
        config=loaded.config,
        cluster=loaded.cluster,
        sweep_text=text,
        store=loaded.config.store,
        folder=records.files(number),
        working_dir=Path.cwd(),
        code=CODE_DIGEST,
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


def states(known: Iterable[Submission], records: Submissions) -> Iterator[tuple[Submission, JobState]]:
    """Where jobs stand by their clusters, each of which is asked no more once it was silent. Changes nothing."""
    silent: dict[tuple[str, str], JobState] = {}
    for one in known:
        state = silent.get((one.to, one.address))
        if state is None:
            try:
                state = BACKENDS[one.to].state(one, records.files(one.id))
            except GoalError as failure:
                state = silent[one.to, one.address] = JobState(phase="silent", said=str(failure))
        yield one, state


def send(draft: Job, to: str, records: Submissions, cancel: str) -> tuple[Submission, list[str]]:
    """Send a job, unless the last one of its sweep waits or runs. Returns its record, and what the user should know.

    Should two jobs of a sweep run all the same, none trains what the other trains.

    Args:
        draft: the job; it is sent under an id that no other job has.
        cancel: the command that cancels jobs of the sweep, for messages.

    Raises:
        ClusterError: the last job lives, or the cluster refused this one, or it cannot be reached.
        NoAnswerError: the cluster may have taken the job. The record stays.
    """
    name, notes = draft.config.name, list[str]()
    for last, state in states(records.of(name)[-1:], records):
        if state.phase in ("pending", "running"):
            raise ClusterError(f"{last.id} of this sweep is {state.said}; {cancel} ends it")
        if state.phase == "silent":
            notes.append(f"{last.id} may still run, but {state.said}")
    own = records.begin(name, to, draft.code, draft.cluster.ray.address if to == "ray" else "")
    job = replace(draft, id=own.id, folder=records.files(own.id))
    try:
        return records.taken(own, BACKENDS[to].submit(job)), notes
    except NoAnswerError:
        raise
    except BaseException:
        records.withdraw(own)
        raise
