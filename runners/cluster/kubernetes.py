"""Kubernetes: a RayJob of the KubeRay operator, from a template, through `kubectl`."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from importlib import metadata
from pathlib import Path
from typing import Any

from goal_sweep.runners.execution.session.node import PATIENT
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from goal_sweep.goal_core.basics.atomic import replace_bytes
from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.cluster.backend import (
    ClusterError,
    Job,
    JobState,
    Phase,
    RunCommand,
    check_node,
    check_variables,
    launch_command,
    run_command,
    succeed,
    template,
)
from goal_sweep.runners.store.submissions import Submission

_FOLDER, _ANNOTATION = "/goal-sweep", "goal-sweep/sweep.yaml"
_WAIT = "sleep 25"
"""A pod waits so long before Ray in it ends: the driver gives its cells 20 seconds to save."""
_MAX_RUNS = 5
"""How often the driver starts in the same cluster when it stopped before the end."""
_ENDED = ("Complete", "Failed", "ValidationFailed", "Suspended")
_LIVING = ("Running", "Suspending")


def stream_command(command: Sequence[str]) -> Iterator[str]:
    """The lines that a command prints, as they come.

    Raises:
        ClusterError: it fails.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in process.stdout:
                yield line.rstrip("\n")
            if process.wait():
                said = process.stderr.read().strip().splitlines() or [f"exit status {process.returncode}"]
                raise ClusterError(f"cannot read the log: {said[-1]}")
        finally:
            process.kill()


class Kubernetes:
    """Jobs of a Kubernetes cluster that has the KubeRay operator.

    Args:
        run: runs kubectl.
        stream: runs kubectl and passes on its lines as they come.
    """

    def __init__(
        self, run: RunCommand = run_command, stream: Callable[[Sequence[str]], Iterator[str]] = stream_command
    ) -> None:
        self._run, self._stream = run, stream

    def check(self, job: Job) -> list[str]:
        """Refuse a job without an image or a store that the pods share, and one whose units fit no worker."""
        settings = job.cluster.kubernetes
        if not settings.image:
            raise ConfigError("cluster.kubernetes.image is needed: an image with this version of goal-sweep")
        if not settings.store:
            raise ConfigError("cluster.kubernetes.store is needed: the results folder as the pods see it, on a volume")
        if "://" not in settings.store and not any(map(Path(settings.store).is_relative_to, _writable(job))):
            raise ConfigError(
                f"cluster.kubernetes.store ({settings.store}) lies on no volume of cluster.kubernetes.pod that can be "
                "written, so its results would be lost with the pods"
            )
        check_variables(job, "kubernetes", settings.environment)
        return check_node(job, "kubernetes", settings.cpus_per_worker, settings.gpus_per_worker)

    def render(self, job: Job) -> str:
        """The manifest that `kubectl create` gets. It holds no secret, only references to secrets."""
        stream = io.StringIO()
        _yaml().dump(_manifest(job), stream)
        return stream.getvalue()

    def place(self, job: Job) -> dict[str, str]:
        """Context and namespace."""
        return {"context": job.cluster.kubernetes.context, "namespace": job.cluster.kubernetes.namespace}

    def submit(self, job: Job) -> str:
        """Write the manifest into the submission's folder, and create what it describes."""
        manifest = self.render(job)
        replace_bytes(job.folder / "rayjob.yaml", manifest.encode())
        succeed(self._run(_kubectl(self.place(job), "create", "--filename=-"), manifest), "submit to Kubernetes")
        return job.id

    def state(self, submission: Submission, folder: Path) -> JobState:
        """Ask for the RayJob's status."""
        done = self._run(_kubectl(submission.place, "get", "rayjob", submission.id, "--output=json"), "")
        if done.returncode and "NotFound" in done.stderr:
            return JobState(phase="unknown", said="Kubernetes does not know it (any more)")
        status: dict[str, Any] = json.loads(succeed(done, "ask Kubernetes")).get("status", {})
        deployment, job = status.get("jobDeploymentStatus", ""), status.get("jobStatus", "")
        phase: Phase = "ended" if deployment in _ENDED else "running" if deployment in _LIVING else "pending"
        said = " ".join(filter(None, [deployment or "New", job and f"({job})"]))
        message = " ".join(str(status.get("message", "")).split())
        succeeded = phase == "ended" and job == "SUCCEEDED"
        return JobState(phase=phase, said=f"{said}: {message}" if message else said, status=0 if succeeded else None)

    def cancel(self, submission: Submission, folder: Path) -> None:
        """Delete the RayJob with its pods, which let the trainings save first."""
        words = ("delete", "rayjob", submission.id, "--ignore-not-found", "--wait=false")
        succeed(self._run(_kubectl(submission.place, *words), ""), f"cancel {submission.id}")

    def logs(self, submission: Submission, folder: Path, *, follow: bool) -> Iterator[str]:
        """The output of the pod that submitted the job, which repeats that of the driver."""
        words = ["logs", f"job/{submission.id}", *(["--follow"] if follow else [])]
        return self._stream(_kubectl(submission.place, *words))


def _kubectl(place: Mapping[str, str], *words: str) -> list[str]:
    context = [f"--context={place['context']}"] if place.get("context") else []
    return ["kubectl", *context, f"--namespace={place.get('namespace') or 'default'}", *words]


def _yaml() -> YAML:
    round_trip = YAML(typ="rt")
    round_trip.indent(mapping=2, sequence=4, offset=2)
    round_trip.width = 10_000  # no command is broken into lines
    return round_trip


def _manifest(job: Job) -> Any:
    """The RayJob, with the pod templates of the settings merged into its own."""
    settings = job.cluster.kubernetes
    # A driver that stopped before the end (75) starts again; SIGTERM to the pod ends it.
    words = launch_command(job, f"{_FOLDER}/sweep.yaml", settings.store, settings.tracking)
    if grows := settings.max_workers > settings.workers:
        words[4:4] = ["--devices", str(settings.max_workers * _at_once(job))]
    command = shlex.join(words)
    runs = f"for run in $(seq {_MAX_RUNS}); do {command}; status=$?; [ $status -eq 75 ] || break; sleep 10; done"
    text = template("rayjob.yaml.j2").render(
        id=job.id,
        sweep=job.config.name,
        k=settings,
        folder=_FOLDER,
        annotation=_ANNOTATION,
        labels={"app.kubernetes.io/name": "goal-sweep", "app.kubernetes.io/instance": job.id},
        environment={**PATIENT, **settings.environment, "GOAL_SWEEP_CODE": job.code},
        entrypoint=f"sh -c {shlex.quote(f'{runs}; exit $status')}",
        ray_version=metadata.version("ray"),
        autoscaling=grows,
        # The head lets the driver save, and the workers stay until its cells have saved. The image may lack pkill.
        save="for pid in $(grep -lz goal_sweep.runners.cli /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3); "
        f"do [ $pid -eq $$ ] || kill -TERM $pid; done; {_WAIT}",
        wait=_WAIT,
    )
    manifest = _yaml().load(text)
    cluster = manifest["spec"]["rayClusterSpec"]
    head, workers = cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]
    for pod, more in ((head, settings.head_pod), (workers, settings.worker_pod)):
        _merge(pod, deepcopy(settings.pod))
        _merge(pod, deepcopy(more))
    head["metadata"]["annotations"][_ANNOTATION] = LiteralScalarString(job.sweep_text)
    return manifest


def _at_once(job: Job) -> int:
    """Units that a worker trains at the same time."""
    settings, need = job.cluster.kubernetes, job.config.resources
    has = [settings.cpus_per_worker / need.cpus, *([settings.gpus_per_worker / need.gpus] if need.gpus else [])]
    return max(1, int(min(has) + 1e-6))


def _merge(into: Any, more: Mapping[str, Any]) -> None:
    """Merge a part of a pod template into another: mappings key by key, lists by the names of their entries."""
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), Mapping):
            _merge(into[key], value)
        elif isinstance(value, list) and isinstance(into.get(key), list):
            name = "mountPath" if key == "volumeMounts" else "name"
            for item in value:
                if key == "containers":
                    item = {name: into[key][0][name], **item}
                same = [one for one in into[key] if isinstance(item, Mapping) and one.get(name) == item.get(name)]
                if same and name in item:
                    _merge(same[0], item)
                else:
                    into[key].append(item)
        else:
            into[key] = value


def _writable(job: Job) -> list[str]:
    """The paths at which a worker sees volumes that it can write.

    Raises:
        ConfigError: the settings hold something else in the place of a container or its volumes.
    """
    try:
        workers = _manifest(job)["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]
        mounts = workers["spec"]["containers"][0]["volumeMounts"]
        return [str(mount["mountPath"]) for mount in mounts if not mount.get("readOnly")]
    except (AttributeError, KeyError, TypeError) as error:
        raise ConfigError(f"cluster.kubernetes.pod or worker_pod is no pod template of Kubernetes: {error}") from error
