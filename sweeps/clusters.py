"""Where and how a sweep runs as a batch job: the site file, and `--set cluster...` on top of it.

Nothing here can change a result, so no id depends on it, and neither the store nor MLflow keeps it with a sweep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from goal_sweep.goal_core.basics.ranges import Range
from goal_sweep.sweeps.checks import Settings, check_tracking, failures, looks_secret

Count = Annotated[int, Range(at_least=1)]
OrNone = Annotated[int, Range(at_least=0)]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]*@")
_OURS = (
    *("--array", "--output", "--error", "--open-mode", "--signal", "--requeue", "--no-requeue", "--export", "--chdir"),
    *("--dependency", "--parsable", "--hold", "--wait", "--clusters", "--wrap", "--test-only", "--job-name"),
)
"""Options of sbatch that the script needs as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig(Settings):
    """A container image in which a Slurm job runs, by Apptainer."""

    image: str
    """A file, or what Apptainer accepts in its place."""
    mounts: tuple[str, ...] = ()
    """Folders of the node that the container sees: `/path` or `/path:/path/inside`. The store must be among them."""
    options: tuple[str, ...] = ()
    """Further options of `apptainer exec`."""

    def problems(self) -> Iterator[str]:
        """What cannot be."""
        if not self.image:
            yield "image must not be empty"
        yield from (f"mounts must be absolute, got {one!r}" for one in self.mounts if not one.startswith("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig(Settings):
    """A job of a Slurm cluster whose nodes share the folder of the store with the machine that submits."""

    nodes: Count = 1
    """Nodes of the job. More than one are joined by Ray."""
    gpus_per_node: OrNone = 0
    """GPUs of each node; 0 trains on the CPU."""
    gpu_type: str = ""
    """As the site names it, such as `a100`; empty takes any."""
    cpus_per_node: Count = 1
    """CPU cores of each node."""
    memory_per_node: str = ""
    """Such as `64G`; empty takes the partition's default."""
    time: str = ""
    """Time limit of one run, `hours:minutes:seconds` or `days-hours:minutes`; empty takes the partition's default."""
    save_before: Annotated[int, Range(at_least=30)] = 120
    """Seconds before the time limit at which every training saves and the job goes back to the queue."""
    partition: str = ""
    """Empty takes the site's default, as for `account` and `qos`."""
    account: str = ""
    qos: str = ""
    options: tuple[str, ...] = ()
    """Further options of `sbatch`, such as `--constraint=a100`."""
    array: OrNone = 0
    """Number of independent jobs of one node, which share the store and its cells; 0 is one job."""
    modules: tuple[str, ...] = ()
    """Environment modules to load."""
    setup: tuple[str, ...] = ()
    """Lines of shell that prepare each node, such as the activation of an environment."""
    python: str = ""
    """Python that has goal-sweep; empty takes the one that submits, or `python3` in a container."""
    container: ContainerConfig | None = None
    """An image to run in; none runs on the node itself."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the job, written into its script. No secrets."""
    pass_environment: tuple[str, ...] = ()
    """Names of variables that the job takes from the submitting shell. Slurm keeps their values, no file does."""

    def problems(self) -> Iterator[str]:
        """What cannot be, or would change the script."""
        if self.gpu_type and not self.gpus_per_node:
            yield "gpu_type needs gpus_per_node"
        if self.array and self.nodes > 1:
            yield f"array needs nodes: 1, because its jobs are independent; got nodes: {self.nodes}"
        for name in ("gpu_type", "memory_per_node", "time", "partition", "account", "qos", "python"):
            if not str(getattr(self, name)).isprintable():
                yield f"{name} must be one line of text, got {getattr(self, name)!r}"
        for option in self.options:
            if not option.startswith("--") or not option.isprintable():
                yield f"options must hold one option each, which begins with --, got {option!r}"
            elif (name := re.split("[= ]", option)[0]) in _OURS:
                yield f"options may not hold {name}, because the job needs its own"
        yield from _environment_problems(self.environment)
        for name in self.pass_environment:
            if not _VARIABLE.fullmatch(name):
                yield f"pass_environment: {name!r} is no variable's name"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elsewhere(Settings):
    """A job whose processes may see other folders than the machine that submits it."""

    store: str = ""
    """The results folder as the cluster's nodes see it; empty is that of the sweep."""
    tracking: str = ""
    """MLflow tracking URI as the head sees it; empty is that of the sweep."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of all processes of the job. Ray's dashboard and the manifest show them: no secrets."""

    def problems(self) -> Iterator[str]:
        """What would show a secret."""
        yield from failures(lambda: check_tracking(self.tracking or "none"))
        yield from _environment_problems(self.environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConfig(_Elsewhere):
    """A job of a running Ray cluster, through Ray's Jobs API."""

    address: str = ""
    """Address of the head's dashboard, such as `http://head:8265`."""
    files: tuple[str, ...] = ()
    """Further files and folders to send; they lie beside the sweep file, and Python modules can be imported."""
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """Further parts of Ray's runtime environment, such as `pip: [timm]` or `conda: NAME`."""

    def problems(self) -> Iterator[str]:
        """What cannot be, or would show a secret."""
        if self.address and not re.fullmatch(r"https?://[^/\s@]+/?", self.address):
            yield f"address must be the dashboard's, such as http://head:8265, got {self.address!r}"
        if taken := self.runtime_env.keys() & {"working_dir", "env_vars", "py_modules"}:
            yield f"runtime_env: {', '.join(sorted(taken))} has a setting of its own: files, environment"
        if _PASSWORD.search(str(dict(self.runtime_env))):
            yield "runtime_env must not hold passwords, because Ray's dashboard shows it"
        yield from _Elsewhere.problems(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig(_Elsewhere):
    """A RayJob of a Kubernetes cluster with the KubeRay operator, version 1.5.2 or later."""

    image: str = ""
    """Image with this version of goal-sweep and Ray."""
    namespace: str = "default"
    context: str = ""
    """Context of kubectl; empty takes the current one."""
    workers: Count = 1
    gpus_per_worker: OrNone = 1
    cpus_per_worker: Count = 8
    memory_per_worker: str = "32Gi"
    """With 8Gi of /dev/shm, which counts as memory of the pod."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the RayJob, such as Kueue's `kueue.x-k8s.io/queue-name`."""
    volumes: tuple[Mapping[str, Any], ...] = ()
    """Volumes of the pods, in Kubernetes' own words, as in all that follows."""
    mounts: tuple[Mapping[str, Any], ...] = ()
    """Where Ray's containers see them."""
    env: tuple[Mapping[str, Any], ...] = ()
    """Further variables of the containers, such as those from secrets."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the pods' spec, such as `securityContext` and `imagePullSecrets`."""
    worker_pod: Mapping[str, Any] = field(default_factory=dict)
    """The same, of the workers alone, such as `tolerations` and `nodeSelector`."""

    def problems(self) -> Iterator[str]:
        """What cannot be, or would show a secret."""
        for name in ("pod", "worker_pod"):
            if taken := getattr(self, name).keys() & {"containers", "volumes", "terminationGracePeriodSeconds"}:
                yield f"{name}: {', '.join(sorted(taken))} comes from other settings: volumes, mounts, env"
        yield from _Elsewhere.problems(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(Settings):
    """The settings of each kind of cluster."""

    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    kubernetes: KubernetesConfig = field(default_factory=KubernetesConfig)


def _environment_problems(environment: Mapping[str, str]) -> Iterator[str]:
    """Variables whose values are written to files: their names, secrets among them, and values of several lines."""
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            yield f"environment: {name!r} is no variable's name"
        elif looks_secret(name):
            yield f"environment must not hold secrets such as {name}, because its values are written to files"
        elif "\n" in value or "\0" in value:
            yield f"environment: the value of {name} must be one line"
