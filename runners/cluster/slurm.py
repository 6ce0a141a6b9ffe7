"""Slurm: `sbatch`, `squeue`, `sacct` and `scancel`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from goal_core.atomic import replace_bytes
from goal_core.errors import ConfigError
from runners.cluster.backend import (
    ClusterError,
    Job,
    JobState,
    Phase,
    RunCommand,
    run_command,
    succeed,
)
from runners.cluster.sbatch import render_close, render_sbatch
from runners.store.submissions import Submission

_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING", "REQUEUE_FED", "RESV_DEL_HOLD")
_LIVING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "PREEMPTED")
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

    def check(self, job: Job) -> None:
        """Refuse what the nodes could not train."""
        need, have = job.config.resources, job.cluster.slurm
        if need.cpus > have.cpus_per_node:
            raise ConfigError(
                f"a unit needs {need.cpus} CPUs (resources.cpus), but cluster.slurm.cpus_per_node is "
                f"{have.cpus_per_node}"
            )
        if need.gpus > have.gpus_per_node:
            what = "a GPU" if need.gpus <= 1 else "GPUs of one node"
            raise ConfigError(
                f"a unit needs {what} (resources.gpus is {need.gpus:g}), but cluster.slurm.gpus_per_node is "
                f"{have.gpus_per_node}"
            )

    def render(self, job: Job) -> str:
        """The script that `sbatch` gets; for an array also that of the job that follows it."""
        return render_sbatch(job) + (f"\n{render_close(job)}" if job.cluster.slurm.array else "")

    def place(self, job: Job) -> dict[str, str]:
        """The number of independent jobs; Slurm's own configuration says where the cluster is."""
        return {"array": str(job.cluster.slurm.array)}

    def submit(self, job: Job) -> str:
        """Write the sweep file and the script into the submission's folder, and queue the script."""
        replace_bytes(job.folder / "sweep.yaml", job.sweep_text.encode())
        first = self._queue(job.folder / "job.sbatch", render_sbatch(job))
        if not job.cluster.slurm.array:
            return first
        try:
            after = [f"--dependency=afterany:{first}"]
            return f"{first},{self._queue(job.folder / 'close.sbatch', render_close(job), after)}"
        except ClusterError:
            self._run(["scancel", first], "")
            raise

    def _queue(self, path: Path, script: str, options: Sequence[str] = ()) -> str:
        """Write a script and queue it. Returns the job's number."""
        replace_bytes(path, script.encode())
        said = succeed(self._run(["sbatch", "--parsable", *options, str(path)], ""), "submit to Slurm")
        return said.strip().splitlines()[-1].split(";")[0]

    def state(self, submission: Submission, folder: Path) -> JobState:
        """Ask the queue, then Slurm's accounting, then the job's own files."""
        queued = self._run(["squeue", "--noheader", "--array", _which(submission), "--format=%T|%r|%N"], "")
        states = [line.split("|") for line in queued.out.splitlines() if line.count("|") == 2]
        living = [one for one in states if one[0] in _WAITING + _LIVING]
        if queued.status and "Invalid job id" not in queued.err:
            raise ClusterError(f"cannot ask Slurm: {(queued.err.strip() or 'squeue failed').splitlines()[-1]}")
        if living:
            running = [one for one in living if one[0] in _LIVING]
            phase: Phase = "running" if running else "pending"
            return JobState(phase=phase, said=_counted([_words(*one) for one in living]))
        if not submission.job:
            return JobState(phase="unknown", said="Slurm has not taken it")
        return self._ended(submission, folder)

    def _ended(self, submission: Submission, folder: Path) -> JobState:
        """How a job that has left the queue ended."""
        paths = [folder / "status"] if (folder / "status").exists() else sorted(folder.glob("status-*"))
        statuses = [int(text) for path in paths if (text := path.read_text().strip()).isdigit()]
        status = max(statuses) if statuses else None
        known = [state for state in (self._control(submission), self._accounted(submission)) if state]
        said = known[0] if known else "ended" if statuses else "Slurm does not know it any more"
        return JobState(phase="ended" if known or statuses else "unknown", said=said, status=status)

    def _control(self, submission: Submission) -> str:
        """The state that the controller remembers for some minutes after the end."""
        jobs = [self._run(["scontrol", "show", "job", "--oneliner", job], "") for job in submission.job.split(",")]
        states = [state for done in jobs if not done.status for state in re.findall(r"\bJobState=(\w+)", done.out)]
        return _counted(states).lower()

    def _accounted(self, submission: Submission) -> str:
        try:
            done = self._run(
                ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={submission.job}", "--format=State"],
                "",
            )
        except ClusterError:
            return ""
        return _counted(done.out.split("\n")).lower() if done.status == 0 else ""

    def cancel(self, submission: Submission, folder: Path) -> None:
        """Let Slurm end the job: SIGTERM first, at which every training saves, and SIGKILL after `KillWait`."""
        jobs = submission.job.split(",") if submission.job else [_which(submission)]
        succeed(self._run(["scancel", *jobs], ""), f"cancel Slurm job {submission.job or submission.id}")

    def logs(self, submission: Submission, folder: Path, *, follow: bool) -> Iterator[str]:
        """The output of the job, or of all jobs of an array with their numbers before the lines."""
        seen: dict[Path, int] = {}
        asked, over = time.monotonic(), False
        while True:
            paths = [*sorted(folder.glob("job*.log")), *folder.glob("close.log")]
            for path in paths:
                with path.open("rb") as file:
                    file.seek(seen.get(path, 0))
                    added = file.read()
                whole = added if over or not follow else added[: added.rfind(b"\n") + 1]
                seen[path] = seen.get(path, 0) + len(whole)
                name = f"{path.stem.removeprefix('job-')} | " if path.stem != "job" else ""
                yield from (f"{name}{line}" for line in whole.decode(errors="replace").splitlines())
            if not follow or over:
                return
            time.sleep(_POLL_S)
            if time.monotonic() - asked > _ASK_EVERY_S:
                asked = time.monotonic()
                over = self.state(submission, folder).is_over


def _which(submission: Submission) -> str:
    """The option that selects a job: by its number, or by its name if its number did not reach the record."""
    return f"--jobs={submission.job}" if submission.job else f"--name={submission.id}"


def _words(state: str, reason: str, nodes: str) -> str:
    if state in _LIVING:
        return f"{state.lower()} on {nodes}" if nodes else state.lower()
    return f"{state.lower()} ({reason})" if reason not in ("", "None") else state.lower()


def _counted(texts: list[str]) -> str:
    """Equal texts once, each with its number if there are several."""
    found = [text.strip() for text in texts if text.strip()]
    counts = {text: found.count(text) for text in dict.fromkeys(found)}
    return ", ".join(text if len(found) == 1 else f"{count} {text}" for text, count in counts.items())
