"""Kubernetes: a RayJob of the KubeRay operator from a template, for `kubectl create`."""

from importlib import metadata

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.cluster import backend
from goal_sweep.runners.cluster.backend import Job


def check(job: Job) -> list[str]:
    """Refuse a job without an image or a store on a volume. Returns what a user should know before it is sent."""
    settings = job.cluster.kubernetes
    if not settings.image:
        raise ConfigError("cluster.kubernetes.image is needed: an image with this version of goal-sweep")
    mounts = [str(mount.get("mountPath")) for mount in settings.mounts if not mount.get("readOnly")]
    is_kept = "://" in settings.store or any(f"{settings.store}/".startswith(f"{path}/") for path in mounts)
    if not settings.store or not is_kept:
        raise ConfigError(
            f"cluster.kubernetes.store ({settings.store!r}) must be the results folder as the pods see it, on one of "
            "cluster.kubernetes.mounts that can be written, or else its results would be lost with the pods"
        )
    backend.check_variables(job, "kubernetes", settings.environment)
    return backend.check_node(job, "kubernetes", settings.cpus_per_worker, settings.gpus_per_worker)


def render(job: Job) -> str:
    """The manifest that `kubectl create` gets. It holds no secret, only references to secrets."""
    settings = job.cluster.kubernetes
    return backend.template("rayjob.yaml.j2").render(
        k=settings,
        sweep=job.config.name,
        name=job.id.rpartition("-")[0],
        sweep_text=job.sweep_text,
        entrypoint=backend.launch_command(job, "/goal-sweep/sweep.yaml", settings.store, settings.tracking),
        environment={**backend.PATIENT, **settings.environment, "GOAL_SWEEP_CODE": job.code},
        ray_version=metadata.version("ray"),
    )
