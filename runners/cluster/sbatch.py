"""The script of a Slurm job, written from its settings."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import jinja2

from runners.cluster.backend import Job
from sweeps import SlurmConfig

_TEMPLATES = Path(__file__).parent / "templates"


def render_sbatch(job: Job) -> str:
    """Write the script.

    Args:
        job: the job.

    Returns:
        A bash script with its `#SBATCH` lines. It holds no secret.
    """
    settings = job.cluster.slurm
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # shell, in which every value goes through `quote`
    )
    templates.filters["quote"] = shlex.quote
    return templates.get_template("job.sbatch.j2").render(
        id=job.id,
        sweep=job.config.name,
        options=list(_options(job)),
        environment={**job.variables, **settings.environment, "GOAL_SWEEP_CODE": job.code},
        modules=settings.modules,
        setup=settings.setup,
        folder=str(job.folder),
        python=python_command(settings),
        nodes=settings.nodes,
        cpus=settings.cpus_per_node,
        gpus=settings.gpus_per_node,
        gpu_request=_gpu_request(settings),
        array=settings.array,
        max_requeues=settings.max_requeues,
        launch=launch_words(job),
    )


def launch_words(job: Job) -> list[str]:
    """The words of the `goal-sweep launch` that the job runs."""
    store = ["--store", str(job.store)]
    return ["launch", str(job.folder / "sweep.yaml"), *store, "--wait", "180", *job.options]


def python_command(settings: SlurmConfig) -> list[str]:
    """The command that starts Python on a node, in its container if there is one."""
    container = settings.container
    if container is None:
        return [settings.python or sys.executable]
    python = settings.python or "python3"
    if container.runtime == "apptainer":
        gpu = ["--nv"] if settings.gpus_per_node else []
        binds = [word for mount in container.mounts for word in ("--bind", mount)]
        return ["apptainer", "exec", *gpu, *binds, *container.options, container.image, python]
    mounts = [word for mount in container.mounts for word in ("--mount", mount if ":" in mount else f"{mount}:{mount}")]
    return ["enroot", "start", *mounts, *container.options, container.image, python]


def _gpu_request(settings: SlurmConfig) -> str:
    return f"{settings.gpu_type}:{settings.gpus_per_node}" if settings.gpu_type else str(settings.gpus_per_node)


def _options(job: Job) -> Iterator[str]:
    """The options of sbatch, in the order of its manual page."""
    settings = job.cluster.slurm
    yield f"--job-name={job.id}"
    for name in ("partition", "account", "qos"):
        if getattr(settings, name):
            yield _option(name, getattr(settings, name))
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
        yield f"--array=0-{settings.array - 1}" + (f"%{settings.array_at_once}" if settings.array_at_once else "")
    yield _option("chdir", str(job.working_dir))
    # In the name of the output, Slurm replaces what follows a percent sign.
    yield _option("output", str(job.folder / "job").replace("%", "%%") + ("-%a.log" if settings.array else ".log"))
    yield "--open-mode=append"
    yield "--requeue"
    yield f"--signal=B:USR1@{settings.save_before}"
    yield "--export=" + (",".join(settings.pass_environment) or "NONE")
    yield from settings.options


def _option(name: str, value: str) -> str:
    return f"--{name}={shlex.quote(value)}"
