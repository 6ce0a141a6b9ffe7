"""The script of a Slurm job, written from its settings."""

from __future__ import annotations

import shlex
import sys

from runners.cluster.backend import WAIT, Job, template
from sweeps import SlurmConfig

_IDLE_RUNS = 3
"""Runs in a row in which no training has saved anything, after which a job gives up."""


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
