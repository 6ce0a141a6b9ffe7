"""Slurm: the script of a job, written from its settings, and `sbatch`, `squeue`, `sacct` and `scancel`."""

import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from goal_sweep.goal_core.basics.atomic import replace_bytes
from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.cluster import backend
from goal_sweep.runners.cluster.backend import Job, JobState, Submission
from goal_sweep.runners.store import bucket_of
from goal_sweep.sweeps.clusters import SlurmConfig

_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING", "REQUEUE_FED", "RESV_DEL_HOLD")
_LIVING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "PREEMPTED")
_ENDS = {
    0: "done",
    1: "done, but some cells failed",
    2: "refused, as its log says",
    75: "stopped before the end; submit continues it",
}
"""What exit statuses of a launch mean."""
_IDLE_RUNS = 3
"""Runs in a row without a new epoch in the store, after which a job gives up."""
_POLL_S, _ASK_EVERY_S = 1.0, 15.0
"""Seconds between looks at a log that is followed, and between questions to Slurm meanwhile."""


def check(job: Job) -> list[str]:
    """Refuse what the nodes could not train."""
    have = job.cluster.slurm
    notes = backend.check_node(job, "slurm", have.cpus_per_node, have.gpus_per_node)
    if have.gpus_per_node and not job.config.resources.gpus:
        notes.append("the job asks for GPUs (cluster.slurm.gpus_per_node), but its units train on the CPU")
    if have.array and job.config.tune is not None:
        raise ConfigError("a search compares the results of all cells, so submit it without cluster.slurm.array")
    if bucket_of(job.store) is not None:
        notes.append(
            f"the nodes need the bucket's credentials (cluster.slurm.pass_environment) and must see {job.folder}, or "
            "another folder that GOAL_SWEEP_CACHE names"
        )
    return notes


def render(job: Job) -> str:
    """The script that `sbatch` gets, and the sweep file."""
    return f"{render_sbatch(job)}\n# sweep.yaml\n{job.sweep_text}"


def submit(job: Job) -> str:
    """Write the sweep file and the script into the submission's folder, and queue the script."""
    replace_bytes(job.folder / "sweep.yaml", job.sweep_text.encode())
    tasks = [f"-{number}" for number in range(job.cluster.slurm.array)] or [""]
    for task in tasks:  # what it will be if the job ends without its own word
        replace_bytes(job.folder / f"status{task}", b"75\n")
    script = job.folder / "job.sbatch"
    replace_bytes(script, render_sbatch(job).encode())
    said = backend.run_command(["sbatch", "--parsable", str(script)], doing="submit to Slurm")
    return said.strip().splitlines()[-1].split(";")[0]


def state(submission: Submission, folder: Path) -> JobState:
    """Ask the queue, by the job's name, which is unique. A job that has left it has written its exit status."""
    command = ["squeue", "--noheader", "--array", "--states=all", f"--name={submission.id}", "--format=%T|%r|%N"]
    rows = [line.split("|") for line in backend.run_command(command, doing="ask Slurm").splitlines()]
    if living := [row for row in rows if row[0] in _WAITING + _LIVING]:
        runs = any(row[0] in _LIVING for row in living)
        return JobState(phase="running" if runs else "pending", said=", ".join(map(_words, living)))
    status = max([int(path.read_text()) for path in folder.glob("status*") if path.suffix != ".tmp"], default=75)
    return JobState(phase="ended", said=_ENDS.get(status, f"ended with {status}"), status=status)


def cancel(submission: Submission) -> None:
    """Take the job out of the queue. One that runs gets SIGTERM, at which its launch saves and ends.

    The signal goes to the script alone, which passes it on: Slurm's own way would end Ray's processes, too.
    """
    for how in (["--state=PENDING"], ["--state=RUNNING", "--batch", "--signal=TERM"]):
        backend.run_command(["scancel", f"--name={submission.id}", *how], doing=f"cancel {submission.id}")


def logs(submission: Submission, folder: Path, *, follow: bool) -> Iterator[str]:
    """The output of the job, or of all jobs of an array by number; a line says what a job without output waits for."""
    seen: dict[Path, int] = {}
    said, ask_at, is_over = "", 0.0, False
    while True:
        if time.monotonic() >= ask_at:
            ask_at, now = time.monotonic() + _ASK_EVERY_S, state(submission, folder)
            is_over, before, said = now.phase == "ended", said, now.said
            if said != before and not any(folder.glob("job*.log")):
                yield f"no output yet: {said}"
        for path in sorted(folder.glob("job*.log")):
            yield from _new_lines(path, seen, whole=is_over or not follow)
        if is_over or not follow:
            return
        time.sleep(_POLL_S)


def _new_lines(path: Path, seen: dict[Path, int], *, whole: bool) -> Iterator[str]:
    """The lines of a log after what was seen of it; a line that is not complete only with ``whole``."""
    with path.open("rb") as file:
        file.seek(seen.get(path, 0))
        added = file.read()
    added = added if whole else added[: added.rfind(b"\n") + 1]
    seen[path] = seen.get(path, 0) + len(added)
    name = f"{path.stem.removeprefix('job-')} | " if path.stem != "job" else ""
    return (f"{name}{line}" for line in added.decode(errors="replace").splitlines())


def _words(row: list[str]) -> str:
    state, reason, nodes = row
    if state in _LIVING:
        return f"{state.lower()} on {nodes}" if nodes else state.lower()
    return f"{state.lower()} ({reason})" if reason not in ("", "None") else state.lower()


def render_sbatch(job: Job) -> str:
    """Write the script of a job, or of each job of an array: bash with its `#SBATCH` lines. It holds no secret."""
    settings = job.cluster.slurm
    gpus = f"{settings.gpu_type}:{settings.gpus_per_node}" if settings.gpu_type else str(settings.gpus_per_node or "")
    options = {
        "job-name": job.id,
        **{"partition": settings.partition, "account": settings.account, "qos": settings.qos},
        **{"nodes": settings.nodes, "ntasks-per-node": 1, "cpus-per-task": settings.cpus_per_node},
        **{"gpus-per-node": gpus, "mem": settings.memory_per_node, "time": settings.time},
        "array": f"0-{settings.array - 1}" if settings.array else "",
        "open-mode": "append",
        "signal": f"B:USR1@{settings.save_before}",
        "chdir": str(job.working_dir),
        # Slurm replaces what follows a single %.
        "output": f"{str(job.folder).replace('%', '%%')}/job{'-%a' if settings.array else ''}.log",
        "export": ",".join(settings.pass_environment) or "NONE",
    }
    given = [f"--{name}={shlex.quote(str(value))}" for name, value in options.items() if value]
    several = backend.PATIENT if settings.nodes > 1 else {}
    return backend.template("job.sbatch.j2").render(
        id=job.id,
        sweep=job.config.name,
        slurm=settings,
        options=[*given, "--requeue", *settings.options],
        environment={**several, **job.variables, **settings.environment, "GOAL_SWEEP_CODE": job.code},
        folder=str(job.folder),
        store=job.store,
        python=_program(settings, "python"),
        ray=_program(settings, "ray"),
        gpus=gpus,
        idle_runs=_IDLE_RUNS,
        launch=job.options,
    )


def _program(settings: SlurmConfig, name: Literal["python", "ray"]) -> list[str]:
    """The command that starts Python or its Ray on a node, in its container if there is one."""
    container = settings.container
    python = settings.python or (sys.executable if container is None else "python3")
    program = python if name == "python" else str(Path(python).with_name("ray"))
    if container is None:
        return [program]
    gpu = ["--nv"] if settings.gpus_per_node else []
    binds = [word for mount in container.mounts for word in ("--bind", mount)]
    return ["apptainer", "exec", *gpu, *binds, *container.options, container.image, program]
