"""The manifest of a Kubernetes job: a RayJob of the KubeRay operator, and the sweep file in a ConfigMap."""

from __future__ import annotations

import io
import shlex
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from runners.cluster.backend import Job
from sweeps import KubernetesConfig
from sweeps.clusters import toleration

_SWEEP_FOLDER = "/goal-sweep"
_SAVE_S = 25
"""Seconds that a pod waits before Ray in it ends: the driver gives its cells 20 to save."""
_MAX_RESTARTS = 5
"""How often the driver starts again in the same cluster when it stopped before the end."""


def render_manifest(job: Job) -> str:
    """Write the two documents of the manifest as YAML. They hold no secret, only references to secrets."""
    yaml = YAML(typ="rt")
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 10_000  # no command is broken into lines
    stream = io.StringIO()
    yaml.dump_all([_config_map(job), ray_job(job)], stream)
    return f"# goal-sweep {job.id}: the sweep {job.config.name}. Written by goal-sweep submit.\n{stream.getvalue()}"


def ray_job(job: Job) -> dict[str, Any]:
    """The RayJob as nested dicts."""
    settings = job.cluster.kubernetes
    autoscaling = settings.max_workers > settings.workers
    cluster: dict[str, Any] = {
        "rayVersion": metadata.version("ray"),
        "authOptions": {"mode": "token"},
        **({"enableInTreeAutoscaling": True} if autoscaling else {}),
        "headGroupSpec": {
            # No unit trains on the head, so that the driver outlives what trainings do to a machine.
            "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
            "template": _pod(job, head=True, autoscaling=autoscaling),
        },
        "workerGroupSpecs": [
            {
                "groupName": "workers",
                "replicas": settings.workers,
                "minReplicas": settings.workers,
                "maxReplicas": max(settings.workers, settings.max_workers),
                "rayStartParams": {},
                "template": _pod(job, head=False),
            }
        ],
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": _metadata(job),
        "spec": {
            "entrypoint": _entrypoint(job),
            "submissionMode": "K8sJobMode",
            "backoffLimit": settings.retries,
            # The submitter only follows the job; a second one would submit it twice.
            "submitterConfig": {"backoffLimit": 0},
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": settings.keep,
            "rayClusterSpec": cluster,
        },
    }


def _metadata(job: Job) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "goal-sweep", "app.kubernetes.io/instance": job.id}
    return {"name": job.id, "namespace": job.cluster.kubernetes.namespace, "labels": labels}


def _config_map(job: Job) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job),
        "data": {"sweep.yaml": LiteralScalarString(job.sweep_text)},
    }


def _entrypoint(job: Job) -> str:
    """The driver's command. A driver that stopped before the end (75) starts again; SIGTERM to the pod ends it."""
    settings = job.cluster.kubernetes
    words = ["python", "-m", "runners.cli", "launch", f"{_SWEEP_FOLDER}/sweep.yaml", "--address", "auto"]
    words += ["--store", settings.store or job.store]
    words += ["--tracking-uri", settings.tracking] if settings.tracking else []
    words += ["--wait-for-launch", "180", *job.options]
    once = f"{shlex.join(words)}; status=$?; [ $status -eq 75 ] || break; sleep 10"
    return f"sh -c {shlex.quote(f'for run in $(seq {_MAX_RESTARTS}); do {once}; done; exit $status')}"


def _pod(job: Job, *, head: bool, autoscaling: bool = False) -> dict[str, Any]:
    settings = job.cluster.kubernetes
    spot = settings.spot and not head
    selector = {**settings.node_selector, **(settings.spot_selector if spot else {})}
    tolerated = [*settings.tolerations, *(settings.spot_tolerations if spot else ())]
    spec: dict[str, Any] = {
        "containers": [_container(job, head=head)],
        "volumes": _volumes(job, head=head),
        "terminationGracePeriodSeconds": settings.grace_period,
    }
    if not autoscaling:  # Ray's autoscaler asks the API server; nothing else in the pods does
        spec["automountServiceAccountToken"] = False
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    if selector:
        spec["nodeSelector"] = dict(selector)
    if tolerated:
        spec["tolerations"] = [toleration(text) for text in tolerated]
    return {"metadata": {"labels": _metadata(job)["labels"]}, "spec": spec}


def _container(job: Job, *, head: bool) -> dict[str, Any]:
    settings = job.cluster.kubernetes
    cpus, memory = (
        (settings.head_cpus, settings.head_memory) if head else (settings.cpus_per_worker, settings.memory_per_worker)
    )
    limits: dict[str, Any] = {"cpu": str(cpus), "memory": memory}
    if settings.gpus_per_worker and not head:
        limits[settings.gpu_resource] = str(settings.gpus_per_worker)
    mounts: list[dict[str, Any]] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]
    mounts += [{"name": "sweep", "mountPath": _SWEEP_FOLDER, "readOnly": True}] if head else []
    mounts += [
        {"name": f"volume-{number}", "mountPath": volume.path, **({"readOnly": True} if volume.read_only else {})}
        for number, volume in enumerate(settings.volumes)
    ]
    return {
        "name": "ray-head" if head else "ray-worker",
        "image": settings.image,
        "env": _environment(job),
        "resources": {"limits": limits, "requests": dict(limits)},
        "volumeMounts": mounts,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _before_stop(settings, head=head)]}}},
    }


def _before_stop(settings: KubernetesConfig, *, head: bool) -> str:
    """What a pod does when it must go. The head lets the driver save; workers stay until its cells have saved."""
    wait = min(_SAVE_S, settings.grace_period - 5)
    if not head:
        return f"sleep {wait}"
    # The image may lack pkill.
    find = "grep -lz runners.cli /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3"
    return f"for pid in $({find}); do [ $pid -eq $$ ] || kill -TERM $pid; done; sleep {wait}"


def _environment(job: Job) -> list[dict[str, Any]]:
    settings = job.cluster.kubernetes
    plain: Mapping[str, str] = {
        **settings.environment,
        "GOAL_SWEEP_CODE": job.code,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_JOB_STOP_SIGNAL": "SIGTERM",
        "RAY_JOB_STOP_WAIT_TIME_S": "30",
    }
    found: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in plain.items()]
    for name, reference in settings.secrets.items():
        secret, _, key = reference.partition("/")
        found.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return found


def _volumes(job: Job, *, head: bool) -> list[dict[str, Any]]:
    settings = job.cluster.kubernetes
    # Ray's object store and the loaders' batches go through /dev/shm, of which a container has 64 MiB by default.
    found: list[dict[str, Any]] = [
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory}}
    ]
    if head:
        found.append({"name": "sweep", "configMap": {"name": job.id}})
    for number, volume in enumerate(settings.volumes):
        source: dict[str, Any] = {"hostPath": {"path": volume.host_path, "type": "Directory"}}
        if volume.claim:
            source = {"persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only}}
        found.append({"name": f"volume-{number}", **source})
    return found
