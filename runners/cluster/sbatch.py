"""The script of a Slurm job, written from its settings."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

from runners.cluster.backend import WAIT, Job, template
from sweeps import SlurmConfig

_IDLE_RUNS = 3
"""Runs in a row in which no training has saved anything, after which a job gives up."""


def render_sbatch(job: Job) -> str:
    """Write the script of a job, or of each job of an array.

    Args:
        job: the job.

    Returns:
        A bash script with its `#SBATCH` lines. It holds no secret.
    """
    return _render("job.sbatch.j2", job, list(_options(job)))


def render_close(job: Job) -> str:
    """Write the script of the job that follows an array. It needs one core for some minutes."""
    settings = job.cluster.slurm
    options = [f"--job-name={job.id}", *_site_options(settings), "--nodes=1", "--ntasks=1", "--time=1:00:00"]
    options += [_option("chdir", str(job.working_dir)), _output(job, "close.log"), *_environment_options(settings)]
    return _render("close.sbatch.j2", job, options)


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


def _options(job: Job) -> Iterator[str]:
    """The options of sbatch, in the order of its manual page."""
    settings = job.cluster.slurm
    yield f"--job-name={job.id}"
    yield from _site_options(settings)
    yield f"--nodes={settings.nodes}"
    yield "--ntasks-per-node=1"
    yield f"--cpus-per-task={settings.cpus_per_node}"
    if settings.gpus_per_node:
        yield f"--gpus-per-node={_gpu_request(settings)}"
    if settings.memory_per_node:
        yield f"--mem={settings.memory_per_node}"
    if settings.time:
        yield f"--time={settings.time}"
    if settings.array:
        yield f"--array=0-{settings.array - 1}"
    yield _option("chdir", str(job.working_dir))
    yield _output(job, "job-%a.log" if settings.array else "job.log")
    yield "--open-mode=append"
    yield "--requeue"
    yield f"--signal=B:USR1@{settings.save_before}"
    yield from _environment_options(settings)


def _site_options(settings: SlurmConfig) -> Iterator[str]:
    for name in ("partition", "account", "qos"):
        if getattr(settings, name):
            yield _option(name, getattr(settings, name))


def _environment_options(settings: SlurmConfig) -> Iterator[str]:
    yield "--export=" + (",".join(settings.pass_environment) or "NONE")
    yield from settings.options


def _output(job: Job, name: str) -> str:
    """Where the output goes. Slurm replaces what follows a percent sign, so those of the folder are doubled."""
    return _option("output", f"{str(job.folder).replace('%', '%%')}/{name}")


def _option(name: str, value: str) -> str:
    return f"--{name}={shlex.quote(value)}"
