"""Kubernetes: a RayJob, through `kubectl`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from goal_core.basics.atomic import replace_bytes
from goal_core.basics.errors import ConfigError
from runners.cluster.backend import (
    ClusterError,
    Job,
    JobState,
    NotInstalledError,
    Phase,
    RunCommand,
    check_variables,
    idle_gpus,
    run_command,
    succeed,
)
from runners.cluster.rayjob import render_manifest
from runners.store.submissions import Submission

_ENDED = ("Complete", "Failed", "ValidationFailed", "Suspended")
_LIVING = ("Running", "Suspending")
_ANSWER_S = 15
"""Seconds that the API server may take to answer a question."""


def stream_command(command: Sequence[str]) -> Iterator[str]:
    """The lines that a command prints, as they come.

    Raises:
        ClusterError: it is not installed here, or fails.
    """
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError as error:
        raise NotInstalledError(command[0]) from error
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

    def check(self, job: Job) -> None:
        """Refuse a job without an image or a store that the pods share, and one whose units fit no worker."""
        settings, need = job.cluster.kubernetes, job.config.resources
        if not settings.image:
            raise ConfigError("cluster.kubernetes.image is needed: an image with this version of goal-sweep")
        if not settings.store:
            raise ConfigError("cluster.kubernetes.store is needed: the results folder as the pods see it, on a volume")
        if "://" not in settings.store and not any(
            Path(settings.store).is_relative_to(volume.path) and not volume.read_only for volume in settings.volumes
        ):
            raise ConfigError(
                f"cluster.kubernetes.store ({settings.store}) lies on none of cluster.kubernetes.volumes that can be "
                "written, so its results would be lost with the pods"
            )
        if need.cpus > settings.cpus_per_worker or need.gpus > settings.gpus_per_worker:
            raise ConfigError(
                f"a unit needs {need.cpus} CPUs and {need.gpus:g} GPU (resources), but a worker has "
                f"{settings.cpus_per_worker} and {settings.gpus_per_worker} (cluster.kubernetes)"
            )
        check_variables(job, "kubernetes", {**settings.environment, **settings.secrets})

    def notes(self, job: Job) -> Iterator[str]:
        """GPUs that nothing would use."""
        have, need = job.cluster.kubernetes, job.config.resources
        if need.gpus:
            yield from idle_gpus(have.gpus_per_worker, have.cpus_per_worker, need, "cluster.kubernetes.cpus_per_worker")

    def render(self, job: Job) -> str:
        """The manifest that `kubectl create` gets."""
        return render_manifest(job)

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
        words = ("get", "rayjob", submission.id, "--output=json", f"--request-timeout={_ANSWER_S}s")
        done = self._run(_kubectl(submission.place, *words), "")
        if done.status and "NotFound" in done.err:
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
