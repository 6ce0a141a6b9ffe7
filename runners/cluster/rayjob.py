"""The manifest of a Kubernetes job: a RayJob of the KubeRay operator, from a template."""

from __future__ import annotations

import io
import shlex
from collections.abc import Mapping
from copy import deepcopy
from importlib import metadata
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from runners.cluster.backend import Job, template
from runners.execution.session.node import PATIENT

_FOLDER, _ANNOTATION = "/goal-sweep", "goal-sweep/sweep.yaml"
_SAVE_S = 25
"""Seconds that a pod waits before Ray in it ends: the driver gives its cells 20 to save."""
_MAX_RESTARTS = 5
"""How often the driver starts again in the same cluster when it stopped before the end."""


def render_manifest(job: Job) -> str:
    """Write the manifest as YAML. It holds no secret, only references to secrets."""
    settings = job.cluster.kubernetes
    wait = f"sleep {min(_SAVE_S, settings.grace_period - 5)}"
    text = template("rayjob.yaml.j2").render(
        id=job.id,
        sweep=job.config.name,
        k=settings,
        folder=_FOLDER,
        annotation=_ANNOTATION,
        labels={"app.kubernetes.io/name": "goal-sweep", "app.kubernetes.io/instance": job.id},
        environment=_environment(job),
        entrypoint=_entrypoint(job),
        ray_version=metadata.version("ray"),
        autoscaling=settings.max_workers > settings.workers,
        # The head lets the driver save, and the workers stay until its cells have saved. The image may lack pkill.
        save="for pid in $(grep -lz runners.cli /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3); "
        f"do [ $pid -eq $$ ] || kill -TERM $pid; done; {wait}",
        wait=wait,
    )
    round_trip = YAML(typ="rt")
    round_trip.indent(mapping=2, sequence=4, offset=2)
    round_trip.width = 10_000  # no command is broken into lines
    manifest = round_trip.load(text)
    cluster = manifest["spec"]["rayClusterSpec"]
    pods = {"head_pod": cluster["headGroupSpec"]["template"], "worker_pod": cluster["workerGroupSpecs"][0]["template"]}
    for name, pod in pods.items():
        _merge(pod, deepcopy(settings.pod))
        _merge(pod, deepcopy(getattr(settings, name)))
    pods["head_pod"]["metadata"]["annotations"][_ANNOTATION] = LiteralScalarString(job.sweep_text)
    stream = io.StringIO()
    round_trip.dump(manifest, stream)
    return stream.getvalue()


def _entrypoint(job: Job) -> str:
    """The driver's command. A driver that stopped before the end (75) starts again; SIGTERM to the pod ends it."""
    settings = job.cluster.kubernetes
    words = ["python", "-m", "runners.cli", "launch", f"{_FOLDER}/sweep.yaml", "--address", "auto"]
    words += ["--store", settings.store or job.store]
    words += ["--tracking-uri", settings.tracking] if settings.tracking else []
    words += ["--wait-for-launch", "180", *job.options]
    once = f"{shlex.join(words)}; status=$?; [ $status -eq 75 ] || break; sleep 10"
    return f"sh -c {shlex.quote(f'for run in $(seq {_MAX_RESTARTS}); do {once}; done; exit $status')}"


def _environment(job: Job) -> list[dict[str, Any]]:
    settings = job.cluster.kubernetes
    plain = {**PATIENT, **settings.environment, "GOAL_SWEEP_CODE": job.code}
    variables: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in plain.items()]
    for name, reference in settings.secrets.items():
        secret, _, key = reference.partition("/")
        variables.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return variables


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
