"""Where and how a sweep runs as a batch job: the site file, and `--set cluster...` on top of it.

Nothing here can change a result, so no id depends on it, and neither the store nor MLflow keeps it with a sweep.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.basics.ranges import Range
from goal_sweep.sweeps.checks import Settings, Some, check_tracking, looks_secret

_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_OURS = (
    *("--array", "--output", "--error", "--open-mode", "--signal", "--requeue", "--no-requeue", "--export", "--chdir"),
    *("--dependency", "--parsable", "--hold", "--wait", "--clusters", "--wrap", "--test-only", "--job-name"),
)
"""Options of sbatch that the script needs as they are."""


def _check_option(option: str) -> str:
    if not option.startswith("--") or not option.isprintable():
        raise ConfigError(f"must be one option, which begins with --, got {option!r}")
    if (name := re.split("[= ]", option)[0]) in _OURS:
        raise ConfigError(f"may not be {name}, because the job needs its own")
    return option


def _check_environment(variables: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in variables.items():
        if not re.match(_VARIABLE, name):
            raise ConfigError(f"{name!r} is no variable's name")
        if looks_secret(name):
            raise ConfigError(f"must not hold secrets such as {name}, because its values are written to files")
        if "\n" in value or "\0" in value:
            raise ConfigError(f"the value of {name} must be one line")
    return variables


def _without(*names: str) -> AfterValidator:
    def check(given: Mapping[str, Any]) -> Mapping[str, Any]:
        if taken := [name for name in names if name in given]:
            raise ConfigError(f"may not hold {', '.join(taken)}, of which other settings take care")
        return given

    return AfterValidator(check)


Count = Annotated[int, Range(at_least=1)]
OrNone = Annotated[int, Range(at_least=0)]
Line = Annotated[str, Field(pattern=r"^[^\n\r]*$")]
Environment = Annotated[Mapping[str, str], AfterValidator(_check_environment)]
Pod = Annotated[Mapping[str, Any], _without("containers", "volumes", "terminationGracePeriodSeconds")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig(Settings):
    """A container image in which a Slurm job runs, by Apptainer."""

    image: Annotated[str, Some]
    """A file, or what Apptainer accepts in its place."""
    mounts: tuple[Annotated[str, Field(pattern="^/")], ...] = ()
    """Folders of the node that the container sees: `/path` or `/path:/path/inside`. The store must be among them."""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig(Settings):
    """A job of a Slurm cluster whose nodes share the folder of the store with the machine that submits."""

    nodes: Count = 1
    """Nodes of the job. More than one are joined by Ray."""
    gpus_per_node: OrNone = 0
    """GPUs of each node; 0 trains on the CPU."""
    gpu_type: Line = ""
    """As the site names it, such as `a100`; empty takes any."""
    cpus_per_node: Count = 1
    memory_per_node: Line = ""
    """Such as `64G`; empty takes the partition's default."""
    time: Line = ""
    """Time limit of one run, `hours:minutes:seconds` or `days-hours:minutes`; empty takes the partition's default."""
    save_before: Annotated[int, Range(at_least=30)] = 120
    """Seconds before the time limit at which every training saves and the job goes back to the queue."""
    partition: Line = ""
    """Empty takes the site's default, as for `account` and `qos`."""
    account: Line = ""
    qos: Line = ""
    options: tuple[Annotated[str, AfterValidator(_check_option)], ...] = ()
    """Further options of `sbatch`, such as `--constraint=a100`."""
    array: OrNone = 0
    """Number of independent jobs of one node, which share the store and its cells; 0 is one job."""
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    """Lines of shell that prepare each node, such as the activation of an environment."""
    python: Line = ""
    """Python that has goal-sweep; empty takes the one that submits, or `python3` in a container."""
    container: ContainerConfig | None = None
    """An image to run in; none runs on the node itself."""
    environment: Environment = field(default_factory=dict)
    """Variables of the job, written into its script. No secrets."""
    pass_environment: tuple[Annotated[str, Field(pattern=_VARIABLE)], ...] = ()
    """Names of variables that the job takes from the submitting shell. Slurm keeps their values, no file does."""

    def problems(self) -> Iterator[str]:
        if self.gpu_type and not self.gpus_per_node:
            yield "gpu_type needs gpus_per_node"
        if self.array and self.nodes > 1:
            yield f"array needs nodes: 1, because its jobs are independent; got nodes: {self.nodes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elsewhere(Settings):
    """A job whose processes may see other folders than the machine that submits it."""

    store: str = ""
    """The results folder as the cluster's nodes see it; empty is that of the sweep."""
    tracking: Annotated[str, AfterValidator(lambda uri: uri and check_tracking(uri))] = ""
    """MLflow tracking URI as the head sees it; empty is that of the sweep."""
    environment: Environment = field(default_factory=dict)
    """Variables of all processes of the job. Ray's dashboard and the manifest show them: no secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConfig(_Elsewhere):
    """A job of a running Ray cluster, through Ray's Jobs API."""

    address: Annotated[str, Field(pattern=r"^(https?://[^/\s@]+/?)?$")] = ""
    """Address of the head's dashboard, such as `http://head:8265`."""
    files: tuple[str, ...] = ()
    """Further files and folders to send; they lie beside the sweep file, and Python modules can be imported."""
    runtime_env: Annotated[Mapping[str, Any], _without("working_dir", "env_vars", "py_modules")] = field(
        default_factory=dict
    )
    """Further parts of Ray's runtime environment, such as `pip: [timm]` or `conda: NAME`. Its dashboard shows them: no
    secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig(_Elsewhere):
    """A RayJob of a Kubernetes cluster with the KubeRay operator, version 1.5.2 or later."""

    image: str = ""
    """Image with this version of goal-sweep and Ray."""
    namespace: str = "default"
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
    env: tuple[Mapping[str, Any], ...] = ()
    """Further variables of the containers, such as those from secrets."""
    pod: Pod = field(default_factory=dict)
    """Further fields of the pods' spec, such as `securityContext` and `imagePullSecrets`."""
    worker_pod: Pod = field(default_factory=dict)
    """The same, of the workers alone, such as `tolerations` and `nodeSelector`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(Settings):
    """The settings of each kind of cluster."""

    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    kubernetes: KubernetesConfig = field(default_factory=KubernetesConfig)
