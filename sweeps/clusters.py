"""Where and how a sweep runs as a batch job: the `cluster` block of a sweep file, and the site file.

Nothing here can change a result, so no id depends on it, and neither the store nor MLflow keeps it with a sweep.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import ClassVar, Literal

from pydantic import ConfigDict

from goal_core.errors import ConfigError
from sweeps.checks import check_tracking, failures, looks_secret, refuse

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d)(?::([0-5]\d))?")
_MEMORY = re.compile(r"\d+[KMGT]?")
_QUANTITY = re.compile(r"\d+(?:\.\d+)?(?:m|[kMGTPE]i?)?")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_OPTION = re.compile(r"(--[a-z][a-z-]*)(?:=.*)?", re.DOTALL)
_LABEL_KEY = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII
)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_OURS = (
    *("--job-name", "--nodes", "--ntasks-per-node", "--cpus-per-task", "--gpus-per-node", "--mem", "--time"),
    *("--partition", "--account", "--qos", "--array", "--output", "--error", "--open-mode", "--signal", "--requeue"),
    *("--no-requeue", "--export", "--export-file", "--chdir", "--dependency", "--parsable", "--hold", "--wait"),
    *("--clusters", "--wrap", "--test-only"),
)
_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]*@")
_MIN_RUN_S = 120
"""Seconds before the signal that a job needs at least, or it would be requeued before it has trained anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """A container image in which a Slurm job runs."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    runtime: Literal["apptainer", "enroot"] = "apptainer"
    image: str
    """A file, or what the runtime accepts in its place."""
    mounts: tuple[str, ...] = ()
    """Folders of the node that the container sees: `/path` or `/path:/path/inside`. The store must be among them."""
    options: tuple[str, ...] = ()
    """Further options of `apptainer exec` or `enroot start`."""

    def __post_init__(self) -> None:
        """Check that there is an image and that mounts are absolute."""
        problems = [] if self.image else ["image must not be empty"]
        problems += [f"mounts must be absolute, got {one!r}" for one in self.mounts if not one.startswith("/")]
        refuse(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """A job of a Slurm cluster whose nodes share the folder of the store with the machine that submits."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    IN_SWEEP: ClassVar[frozenset[str]] = frozenset(
        (
            *("nodes", "gpus_per_node", "gpu_type", "cpus_per_node", "memory_per_node", "time", "save_before"),
            *("max_requeues", "partition", "account", "qos", "array", "array_at_once"),
        )
    )
    """Settings that a sweep file may hold, as in each kind: they decide how much is asked for, not what runs."""

    nodes: int = 1
    """Nodes of the job. More than one are joined by Ray."""
    gpus_per_node: int = 0
    """GPUs of each node; 0 trains on the CPU."""
    gpu_type: str = ""
    """As the site names it, such as `a100`; empty takes any."""
    cpus_per_node: int = 1
    """CPU cores of each node."""
    memory_per_node: str = ""
    """Such as `64G`; empty takes the partition's default."""
    time: str = ""
    """Time limit of one run, `hours:minutes:seconds` or `days-hours:minutes`; empty takes the partition's default."""
    save_before: int = 120
    """Seconds before the time limit at which every training saves and the job goes back to the queue."""
    max_requeues: int = 200
    """How often the job may go back to the queue before it gives up."""
    partition: str = ""
    """Empty takes the site's default, as for `account` and `qos`."""
    account: str = ""
    qos: str = ""
    options: tuple[str, ...] = ()
    """Further options of `sbatch`, such as `--constraint=a100`."""
    array: int = 0
    """Number of independent jobs that share the store, each on one node and without Ray between them; 0 is one job."""
    array_at_once: int = 0
    """How many jobs of an array run at the same time; 0 sets no limit."""
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

    def __post_init__(self) -> None:
        """Check each setting, and those that depend on each other."""
        problems = [
            f"{name} must be at least 1, got {getattr(self, name)}"
            for name in _below(self, 1, "nodes", "cpus_per_node")
        ]
        problems += [
            f"{name} must not be negative, got {getattr(self, name)}"
            for name in _below(self, 0, "gpus_per_node", "array", "array_at_once", "max_requeues")
        ]
        if self.save_before < 30:
            problems.append(f"save_before must be at least 30 seconds, got {self.save_before}")
        if self.gpu_type and not self.gpus_per_node:
            problems.append("gpu_type needs gpus_per_node")
        if self.memory_per_node and not _MEMORY.fullmatch(self.memory_per_node):
            problems.append(f"memory_per_node must be a whole number with K, M, G or T, got {self.memory_per_node!r}")
        problems += self._time_problems()
        if self.array and self.nodes > 1:
            problems.append(f"array needs nodes: 1, because its jobs are independent; got nodes: {self.nodes}")
        if self.array_at_once and not self.array:
            problems.append("array_at_once needs array")
        problems += [problem for option in self.options for problem in _option_problems(option)]
        problems += _one_line(self, "gpu_type", "partition", "account", "qos", "python", "modules", "setup")
        problems += check_environment(self.environment, self.pass_environment)
        refuse(problems)

    @property
    def seconds(self) -> int | None:
        """The time limit in seconds; None where the partition's default holds."""
        match = _TIME.fullmatch(self.time)
        if match is None or (match[1] is None and match[4] is None):  # Slurm reads 90:00 as minutes and seconds
            return None
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def _time_problems(self) -> list[str]:
        if not self.time:
            return []
        if self.seconds is None:
            return [f"time must be written as 24:00:00 or 2-12:00, got {self.time!r}"]
        if self.seconds < self.save_before + _MIN_RUN_S:
            return [
                f"time must be at least {_MIN_RUN_S} seconds longer than save_before ({self.save_before}), or the job "
                f"would be requeued before it has trained anything; got {self.time}"
            ]
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConfig:
    """A job of a running Ray cluster, through Ray's Jobs API."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    IN_SWEEP: ClassVar[frozenset[str]] = frozenset(("store", "tracking"))

    address: str = ""
    """Address of the head's dashboard, such as `http://head:8265`."""
    token_file: str = ""
    """A file with the cluster's token; empty uses RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or `~/.ray/auth_token`."""
    store: str = ""
    """The results folder as the cluster's nodes see it; empty is that of the sweep."""
    tracking: str = ""
    """MLflow tracking URI as the head sees it; empty is that of the sweep."""
    code: Literal["ship", "installed"] = "ship"
    """`ship` sends this goal-sweep with its registered objectives; `installed` uses the cluster's and compares it."""
    files: tuple[str, ...] = ()
    """Further files and folders to send; they lie beside the sweep file, and Python modules can be imported."""
    pip: tuple[str, ...] = ()
    """Packages that Ray installs on each node for this job."""
    conda: str = ""
    """An environment of that name on each node."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the driver and the workers. Ray's dashboard shows them: no secrets."""

    def __post_init__(self) -> None:
        """Check the address, and that only one kind of environment is asked for."""
        problems = []
        if self.address and not re.fullmatch(r"https?://[^/\s@]+/?", self.address):
            problems.append(f"address must be the dashboard's, such as http://head:8265, got {self.address!r}")
        if self.pip and self.conda:
            problems.append("pip and conda exclude each other")
        problems += _one_line(self, "token_file", "store", "tracking", "conda", "pip", "files")
        problems += _credentials(self.tracking)
        if any(_PASSWORD.search(package) for package in self.pip):
            problems.append("pip must not hold passwords, because Ray's dashboard shows it")
        refuse([*problems, *check_environment(self.environment)])


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeConfig:
    """A volume of a Kubernetes job, by reference."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    path: str
    """Where the containers see it."""
    claim: str = ""
    """A PersistentVolumeClaim of the namespace."""
    host_path: str = ""
    """Instead of a claim, a folder of every node."""
    read_only: bool = False

    def __post_init__(self) -> None:
        """Check that it has one source and an absolute path."""
        problems = [] if self.path.startswith("/") else [f"path must be absolute, got {self.path!r}"]
        if bool(self.claim) == bool(self.host_path):
            problems.append("claim: give either claim or host_path")
        refuse(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig:
    """A RayJob of a Kubernetes cluster with the KubeRay operator, version 1.5.1 or later."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    IN_SWEEP: ClassVar[frozenset[str]] = frozenset(
        (
            *("workers", "max_workers", "gpus_per_worker", "gpu_resource", "cpus_per_worker", "memory_per_worker"),
            *("shared_memory", "head_cpus", "head_memory", "spot", "spot_selector", "spot_tolerations"),
            *("node_selector", "tolerations", "store", "tracking", "grace_period", "retries", "keep"),
        )
    )

    image: str = ""
    """Image with this version of goal-sweep and Ray, for the head and the workers."""
    namespace: str = "default"
    context: str = ""
    """Context of kubectl; empty takes the current one."""
    workers: int = 1
    """Worker pods at the start."""
    max_workers: int = 0
    """Largest number of workers; above `workers`, Ray's autoscaler starts them as needed. 0 is `workers`."""
    gpus_per_worker: int = 1
    gpu_resource: str = "nvidia.com/gpu"
    """Name of a GPU among the node's resources."""
    cpus_per_worker: int = 8
    memory_per_worker: str = "32Gi"
    shared_memory: str = "8Gi"
    """Size of /dev/shm in each pod; it counts as memory of the pod."""
    head_cpus: int = 2
    head_memory: str = "8Gi"
    spot: bool = False
    """Whether workers run on spot nodes only; needs `spot_selector`. The head never does."""
    spot_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the provider's spot nodes, such as `cloud.google.com/gke-spot: "true"`."""
    spot_tolerations: tuple[str, ...] = ()
    """Taints of spot nodes that workers tolerate: `key=value:effect`, `key:effect`."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that all nodes of the job must have."""
    tolerations: tuple[str, ...] = ()
    """Taints that all pods tolerate, such as `nvidia.com/gpu:NoSchedule`."""
    service_account: str = ""
    pull_secrets: tuple[str, ...] = ()
    """Names of the secrets with which images are pulled."""
    volumes: tuple[VolumeConfig, ...] = ()
    """Volumes of head and workers; the store and the data lie on them."""
    store: str = ""
    """The results folder as the pods see it."""
    tracking: str = ""
    """MLflow tracking URI as the head sees it; empty is that of the sweep."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of all pods. They stand in the manifest: no secrets."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Variables whose values come from secrets of the namespace: `NAME: secret/key`."""
    grace_period: int = 60
    """Seconds that a pod gets to save when it must go."""
    retries: int = 2
    """How often KubeRay starts a new Ray cluster for the job after a failure."""
    keep: int = 600
    """Seconds that the pods are kept after the end."""

    def __post_init__(self) -> None:
        """Check names, quantities and references."""
        problems = [
            f"{name} must be at least 1, got {getattr(self, name)}"
            for name in _below(self, 1, "cpus_per_worker", "head_cpus")
        ]
        problems += [
            f"{name} must not be negative, got {getattr(self, name)}"
            for name in _below(self, 0, "workers", "max_workers", "gpus_per_worker", "retries", "keep")
        ]
        problems += _one_line(self, "image", "context", "service_account", "store", "tracking", "pull_secrets")
        if self.max_workers and self.max_workers < self.workers:
            problems.append(f"max_workers must be at least workers ({self.workers}), got {self.max_workers}")
        if not self.max_workers and not self.workers:
            problems.append("workers must be at least 1 where max_workers is 0")
        if self.grace_period < 30:
            problems.append(f"grace_period must be at least 30 seconds, got {self.grace_period}")
        if not _LABEL.fullmatch(self.namespace):
            problems.append(f"namespace must be a Kubernetes name, got {self.namespace!r}")
        for name in ("memory_per_worker", "shared_memory", "head_memory"):
            if not _QUANTITY.fullmatch(getattr(self, name)):
                problems.append(f"{name} must be a quantity such as 32Gi, got {getattr(self, name)!r}")
        if self.gpus_per_worker and not _LABEL_KEY.fullmatch(self.gpu_resource):
            problems.append(f"gpu_resource must be a name such as nvidia.com/gpu, got {self.gpu_resource!r}")
        for name in ("node_selector", "spot_selector"):
            problems += [f"{name}: {problem}" for problem in _label_problems(getattr(self, name))]
        if self.spot and not self.spot_selector:
            problems.append("spot needs spot_selector, the labels of the provider's spot nodes")
        for name in ("tolerations", "spot_tolerations"):
            for text in getattr(self, name):
                try:
                    toleration(text)
                except ConfigError as error:
                    problems.append(f"{name}: {error}")
        for name, reference in self.secrets.items():
            if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+", reference):
                problems.append(f"secrets: {name} must refer to a secret as name/key")
        paths = [PurePosixPath(volume.path) for volume in self.volumes]
        problems += [
            f"volumes: {path} is given more than once" for path in dict.fromkeys(paths) if paths.count(path) > 1
        ]
        problems += [*check_environment(self.environment), *_credentials(self.tracking)]
        problems += [
            f"secrets: {name!r} is no variable's name" for name in self.secrets if not _VARIABLE.fullmatch(name)
        ]
        problems += [
            f"secrets: {name} is given in environment too" for name in self.secrets if name in self.environment
        ]
        refuse(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The settings of each kind of cluster: what the site file says, and the sweep's own on top of it."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    kubernetes: KubernetesConfig = field(default_factory=KubernetesConfig)


def toleration(text: str) -> dict[str, str]:
    """Read a taint to tolerate, written as kubectl writes taints.

    Args:
        text: ``key=value:effect``, ``key:effect`` (any value), or ``key`` (any value and effect).

    Returns:
        The toleration in Kubernetes' form.

    Raises:
        ConfigError: the text has another form.
    """
    match = re.fullmatch(r"([\w./-]+)(?:=([\w.-]*))?(?::(NoSchedule|PreferNoSchedule|NoExecute))?", text)
    if match is None:
        raise ConfigError(
            f"write key=value:effect, with effect NoSchedule, PreferNoSchedule or NoExecute; got {text!r}"
        )
    key, value, effect = match.groups()
    found = {"key": key, "operator": "Exists" if value is None else "Equal"}
    found |= {} if value is None else {"value": value}
    return found | ({"effect": effect} if effect else {})


def check_environment(environment: Mapping[str, str], passed: Iterable[str] = ()) -> list[str]:
    """List what is wrong with variables: their names, secrets among them, and values of several lines."""
    problems = []
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            problems.append(f"environment: {name!r} is no variable's name")
        elif looks_secret(name):
            problems.append(
                f"environment must not hold secrets such as {name}, because its values are written to files"
            )
        elif "\n" in value or "\0" in value:
            problems.append(f"environment: the value of {name} must be one line")
    return problems + [
        f"pass_environment: {name!r} is no variable's name" for name in passed if not _VARIABLE.fullmatch(name)
    ]


def _credentials(tracking: str) -> list[str]:
    return failures(lambda: check_tracking(tracking)) if tracking else []


def _label_problems(labels: Mapping[str, str]) -> list[str]:
    """Which labels of nodes Kubernetes would refuse."""
    problems = [f"{key!r} is not a valid label key" for key in labels if not _LABEL_KEY.fullmatch(key)]
    return problems + [
        f"{value!r} is not a valid value of the label {key}"
        for key, value in labels.items()
        if not _LABEL_VALUE.fullmatch(value)
    ]


def _option_problems(option: str) -> list[str]:
    """What is wrong with an option of sbatch. A line of a script may hold several, and names may be shortened."""
    try:
        words = shlex.split(option)
    except ValueError:  # a quotation mark is missing
        words = []
    name = _OPTION.fullmatch(words[0]) if words and option.isprintable() and "\\" not in option else None
    if name is None:
        return [f"options must each begin with -- and be plain text of one line, got {option!r}"]
    if len(words) > 2 or any(word.startswith("-") for word in words[1:]):
        return [f"options must hold one option each, got {option!r}"]
    if meant := next((ours for ours in _OURS if ours.startswith(name[1])), ""):
        which = meant if meant == name[1] else f"{name[1]}, which may stand for {meant}"
        return [f"options may not hold {which}, which has a setting of its own or is needed as it is"]
    return []


def _below(settings: object, least: int, *names: str) -> list[str]:
    return [name for name in names if getattr(settings, name) < least]


def _one_line(settings: object, *names: str) -> list[str]:
    """Refuse texts of several lines, which would add lines of their own to a script."""
    found = []
    for name in names:
        value = getattr(settings, name)
        texts = [value] if isinstance(value, str) else value
        found += [f"{name} must be one line each, got {text!r}" for text in texts if "\n" in text or "\r" in text]
    return found
