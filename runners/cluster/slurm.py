"""Slurm: the script of a job, written from its settings, and `sbatch`, `squeue`, `sacct` and `scancel`."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from goal_sweep.goal_core.basics.atomic import replace_bytes
from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.cluster.backend import (
    WAIT,
    ClusterError,
    Job,
    JobState,
    NoAnswerError,
    Phase,
    RunCommand,
    check_node,
    run_command,
    succeed,
    template,
)
from goal_sweep.runners.store.storage.place import is_object_store
from goal_sweep.runners.store.submissions import Submission
from goal_sweep.sweeps import SlurmConfig

_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING", "REQUEUE_FED", "RESV_DEL_HOLD")
_LIVING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "PREEMPTED")
_BUCKET_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_REGION"),
    *("AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AWS_REQUEST_CHECKSUM_CALCULATION"),
    "GOAL_SWEEP_CACHE",
)
"""What leads a launch to a bucket and to the folder that belongs to it: credentials, the server and the cache."""
_IMPOSSIBLE = re.compile(r"configuration is not available|time limit is invalid|more processors|memory required", re.I)
"""Why a job can never begin, in Slurm's words."""
_FORMAT = "--format=%T|%r|%N|%j"
_IDLE_RUNS = 3
"""Runs in a row in which no training has saved anything, after which a job gives up."""
_POLL_S = 1.0
_ASK_EVERY_S = 15.0
"""Seconds between questions to Slurm while a log is followed."""


class Slurm:
    """Jobs of a Slurm cluster. The store lies in a folder that its nodes and this machine share.

    Args:
        run: runs Slurm's commands.
    """

    def __init__(self, run: RunCommand = run_command) -> None:
        self._run = run

    def check(self, job: Job) -> list[str]:
        """Refuse what the nodes could not train, and a store in a bucket whose credentials they would not have."""
        have = job.cluster.slurm
        notes = check_node(job, "slurm", have.cpus_per_node, have.gpus_per_node)
        if have.array and job.config.tune is not None:
            raise ConfigError("a search compares the results of all cells, so submit it without cluster.slurm.array")
        if have.gpus_per_node and not job.config.resources.gpus:
            notes.append("the job asks for GPUs (cluster.slurm.gpus_per_node), but its units train on the CPU")
        if is_object_store(job.store):
            given = {*have.environment, *have.pass_environment}
            lost = [name for name in _BUCKET_VARIABLES if name in os.environ and name not in given]
            if lost := [name for name in lost if not any(name in line for line in have.setup)]:
                raise ConfigError(
                    f"the store is in a bucket, and the job would not get {', '.join(lost)} of this shell; name them "
                    "in cluster.slurm.pass_environment"
                )
            notes.append(
                f"the nodes must see {job.folder}, where the job's script and output lie; GOAL_SWEEP_CACHE names "
                "another folder for that"
            )
        return notes

    def render(self, job: Job) -> str:
        """The script that `sbatch` gets, for an array also that of the job that follows it, and the sweep file."""
        scripts = render_sbatch(job) + (f"\n{render_close(job)}" if job.cluster.slurm.array else "")
        return f"{scripts}\n# sweep.yaml\n{job.sweep_text}"

    def place(self, job: Job) -> dict[str, str]:
        """Nothing: Slurm's own configuration says where it is."""
        return {}

    def submit(self, job: Job) -> str:
        """Write the sweep file and the script into the submission's folder, and queue the script."""
        replace_bytes(job.folder / "sweep.yaml", job.sweep_text.encode())
        script = job.folder / "job.sbatch"
        replace_bytes(script, render_sbatch(job).encode())
        self._check_possible(script)
        if not job.cluster.slurm.array:
            return self._queue(script)
        # Held, so that nothing of the array begins before the job that follows it is in the queue too.
        first, close = self._queue(script, "--hold"), job.folder / "close.sbatch"
        taken = [first]
        try:
            replace_bytes(close, render_close(job).encode())
            taken.append(self._queue(close, f"--dependency=afterany:{first}"))
            succeed(self._run(["scontrol", "release", first], ""), "submit to Slurm")
        except ClusterError as error:
            if self._run(["scancel", f"--name={job.id}", *taken], "").returncode:
                raise NoAnswerError(f"{error}; job {first} is held in the queue") from error
            raise
        return ",".join(taken)

    def _check_possible(self, script: Path) -> None:
        """Refuse a job that asks for more than its partition gives: many sites would let it wait for ever.

        Raises:
            ClusterError: Slurm's reason.
        """
        try:
            done = self._run(["sbatch", "--test-only", str(script)], "")
        except NoAnswerError:
            return  # nothing was asked for yet
        if _IMPOSSIBLE.search(done.stderr):
            succeed(done, "submit to Slurm")

    def _queue(self, path: Path, *options: str) -> str:
        """Queue a script. Returns the job's number."""
        said = succeed(self._run(["sbatch", "--parsable", *options, str(path)], ""), "submit to Slurm")
        return said.strip().splitlines()[-1].split(";")[0]

    def state(self, submission: Submission, folder: Path) -> JobState:
        """Ask the queue, which knows a job for some minutes after its end, then the accounting and the job's files."""
        rows = self._queued(submission)
        mine = [row[:3] for row in rows if row[3] == submission.id]
        if living := [one for one in mine if one[0] in _WAITING + _LIVING]:
            running = any(one[0] in _LIVING for one in living)
            phase: Phase = "running" if running else "pending"
            return JobState(phase=phase, said=_counted([_words(*one) for one in living]))
        ended = _counted([one[0] for one in mine]).lower() or self._accounted(submission)
        paths = [folder / "status"] if (folder / "status").exists() else sorted(folder.glob("status-*"))
        statuses = [int(text) for path in paths if (text := path.read_text().strip()).isdigit()]
        if ended or statuses or any(_logs(folder)):
            return JobState(phase="ended", said=ended or "ended", status=max(statuses, default=None))
        if rows:
            return JobState(phase="unknown", said=f"Slurm's job {submission.job} is another one now ({rows[0][3]})")
        known = "Slurm does not know it any more" if submission.job else "Slurm has not taken it"
        return JobState(phase="unknown", said=known)

    def _queued(self, submission: Submission) -> list[list[str]]:
        """State, reason, nodes and name of the jobs that have the submission's number, or else its name."""
        which = [f"--jobs={submission.job}"] if submission.job else _by_name(submission)
        done = self._run(["squeue", "--noheader", "--array", "--states=all", *which, _FORMAT], "")
        if done.returncode and "Invalid job id" not in done.stderr:
            succeed(done, "ask Slurm")
        return [line.split("|", 3) for line in done.stdout.splitlines() if line.count("|") >= 3]

    def _accounted(self, submission: Submission) -> str:
        """How a job ended, by the site's accounting; empty where there is none."""
        since = time.strftime("%Y-%m-%d", time.localtime(submission.submitted))
        which = [f"--name={submission.id}", f"--starttime={since}"]
        which += [f"--jobs={submission.job}"] if submission.job else []
        try:
            done = self._run(["sacct", "--noheader", "--parsable2", "--allocations", *which, "--format=State"], "")
        except ClusterError:
            return ""
        return _counted(done.stdout.split("\n")).lower() if done.returncode == 0 else ""

    def cancel(self, submission: Submission, folder: Path) -> None:
        """Let Slurm end the job: SIGTERM first, at which every training saves, and SIGKILL after `KillWait`.

        The name is given with the number, because numbers repeat: another job with that number is left alone.
        """
        which = [f"--name={submission.id}", *submission.job.split(",")] if submission.job else _by_name(submission)
        succeed(self._run(["scancel", *which], ""), f"cancel Slurm job {submission.job or submission.id}")

    def logs(self, submission: Submission, folder: Path, *, follow: bool) -> Iterator[str]:
        """The output of the job, or of all jobs of an array with their numbers before the lines.

        Where there is none yet, a line says what the job waits for.
        """
        seen: dict[Path, int] = {}
        over, said, ask_at = False, "", 0.0
        while True:
            for path in _logs(folder):
                yield from _new_lines(path, seen, whole=over or not follow)
            is_silent = not any(seen.values())
            if over or not (follow or is_silent):
                yield from [said] if is_silent else []
                return
            if time.monotonic() >= ask_at:
                ask_at, state = time.monotonic() + _ASK_EVERY_S, self.state(submission, folder)
                before, said = said, f"{'no output' if state.is_over else 'waiting'}: {state.said}"
                if over := state.is_over or not follow:
                    continue  # with what was written meanwhile
                yield from [said] if is_silent and said != before else []
            time.sleep(_POLL_S)


def _by_name(submission: Submission) -> list[str]:
    """The options that select a job whose number did not reach the record."""
    return [f"--name={submission.id}", *([f"--user={submission.user}"] if submission.user else [])]


def _logs(folder: Path) -> list[Path]:
    return [*sorted(folder.glob("job*.log")), *folder.glob("close.log")]


def _new_lines(path: Path, seen: dict[Path, int], *, whole: bool) -> Iterator[str]:
    """The lines of a log after what was seen of it; a line that is not complete only with ``whole``."""
    with path.open("rb") as file:
        file.seek(seen.get(path, 0))
        added = file.read()
    added = added if whole else added[: added.rfind(b"\n") + 1]
    seen[path] = seen.get(path, 0) + len(added)
    name = f"{path.stem.removeprefix('job-')} | " if path.stem != "job" else ""
    return (f"{name}{line}" for line in added.decode(errors="replace").splitlines())


def _words(state: str, reason: str, nodes: str) -> str:
    if state in _LIVING:
        return f"{state.lower()} on {nodes}" if nodes else state.lower()
    return f"{state.lower()} ({reason})" if reason not in ("", "None") else state.lower()


def _counted(texts: list[str]) -> str:
    """Equal texts once, each with its number if there are several."""
    found = [text.strip() for text in texts if text.strip()]
    counts = {text: found.count(text) for text in dict.fromkeys(found)}
    return ", ".join(text if len(found) == 1 else f"{count} {text}" for text, count in counts.items())


def render_sbatch(job: Job) -> str:
    """Write the script of a job, or of each job of an array: bash with its `#SBATCH` lines. It holds no secret."""
    settings = job.cluster.slurm
    gpus = _gpu_request(settings) if settings.gpus_per_node else ""
    array = f"0-{settings.array - 1}" if settings.array else ""
    size = [f"--nodes={settings.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={settings.cpus_per_node}"]
    size += _given(gpus_per_node=gpus, mem=settings.memory_per_node, time=settings.time, array=array)
    size += ["--open-mode=append", "--requeue", f"--signal=B:USR1@{settings.save_before}"]
    return _render("job.sbatch.j2", job, _options(job, size, "job-%a.log" if array else "job.log"))


def render_close(job: Job) -> str:
    """Write the script of the job that follows an array. It needs one core for some minutes."""
    size = ["--nodes=1", "--ntasks=1", "--time=1:00:00"]
    return _render("close.sbatch.j2", job, _options(job, size, "close.log"))


def _render(name: str, job: Job, options: list[str]) -> str:
    settings = job.cluster.slurm
    environment = {**job.variables, **settings.environment, "GOAL_SWEEP_CODE": job.code}
    return template(name).render(
        id=job.id,
        sweep=job.config.name,
        options=options,
        environment=environment,
        modules=settings.modules,
        setup=settings.setup,
        folder=str(job.folder),
        store=job.store,
        python=python_command(settings),
        nodes=settings.nodes,
        missing_nodes=settings.missing_nodes,
        cpus=settings.cpus_per_node,
        gpus=settings.gpus_per_node,
        gpu_request=_gpu_request(settings),
        array=settings.array,
        idle_runs=_IDLE_RUNS,
        launch=[*WAIT, *job.options],
    )


def python_command(settings: SlurmConfig) -> list[str]:
    """The command that starts Python on a node, in its container if there is one."""
    container = settings.container
    if container is None:
        return [settings.python or sys.executable]
    gpu = ["--nv"] if settings.gpus_per_node else []
    binds = [word for mount in container.mounts for word in ("--bind", mount)]
    return ["apptainer", "exec", *gpu, *binds, *container.options, container.image, settings.python or "python3"]


def _gpu_request(settings: SlurmConfig) -> str:
    return f"{settings.gpu_type}:{settings.gpus_per_node}" if settings.gpu_type else str(settings.gpus_per_node)


def _options(job: Job, size: list[str], log: str) -> list[str]:
    """The options of sbatch.

    Args:
        job: the job.
        size: those that say what it takes of the cluster.
        log: the name of its output.
    """
    settings = job.cluster.slurm
    site = _given(partition=settings.partition, account=settings.account, qos=settings.qos)
    folder = str(job.folder).replace("%", "%%")  # Slurm replaces what follows a single one
    exported = ",".join(settings.pass_environment) or "NONE"
    ends = _given(chdir=str(job.working_dir), output=f"{folder}/{log}", export=exported)
    return [f"--job-name={job.id}", *site, *size, *ends, *settings.options]


def _given(**options: str) -> list[str]:
    """Those options that have a value."""
    return [f"--{name.replace('_', '-')}={shlex.quote(value)}" for name, value in options.items() if value]
