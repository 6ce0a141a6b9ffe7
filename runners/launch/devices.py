"""The devices at hand for a sweep: how many units can train at the same time, and how much memory each has."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from runners.execution.capacity import Machine, Resources

GPU_GB: Final[Mapping[str, float]] = {
    **{"T4": 16, "P100": 16, "V100": 16, "A10G": 24, "L4": 24, "L40S": 48, "A100": 40, "A100-40G": 40, "A100-80G": 80},
    **{"H100": 80, "H200": 141, "B200": 180},
}
"""Memory of a GPU in gigabytes, by the kind that Ray reports; of a kind that is sold with several sizes the smallest.
Source: the data sheets of the maker."""
MOST_GPUS: Final = 16
"""GPUs of the largest common machines, such as NVIDIA's DGX-2 and Google's a2-megagpu-16g."""
_QUERY = ("nvidia-smi", "--format=csv,noheader,nounits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Equal devices, each of which trains one unit at a time."""

    count: int
    """At least 1. What `resources.gpus` asks for counts as one device: a GPU, a part of one, or several."""
    kind: str
    """What messages call one: `GPU` or `core`."""
    memory_mb: float | None = None
    """Memory of each in megabytes, of several GPUs that of one; None if it is not known."""
    grows: bool = False
    """Whether machines come as long as units wait."""
    units_each: int = 1
    """How many units the cores beside a GPU leave room for on it; 1 where a unit does not ask for one whole GPU."""
    others_mb: float = 0.0
    """Megabytes of a GPU of this machine that others use now, of the GPU with the most."""
    missing: str = ""
    """Why there are no such devices, where a plan is made for them nevertheless; empty if there are."""

    def __str__(self) -> str:
        more = " and what joins them" if self.grows else ""
        name, of, rest = self.kind.partition(" of ")
        return f"{self.count} {name}{'s' if self.count > 1 else ''}{of}{rest}{more}"


def kind_of(need: Resources) -> str:
    """What messages call a device."""
    if need.gpus:
        if need.gpus > 1:
            return f"group of {need.gpus:g} GPUs"
        return "GPU" if need.gpus == 1 else f"{need.gpus:g} GPU"
    return "core" if need.cpus == 1 else f"group of {need.cpus} cores"


def of_machines(machines: Sequence[Machine], need: Resources, *, grows: bool = False) -> Devices:
    """The devices of a cluster, whoever uses them now.

    Args:
        machines: the machines alive.
        need: the resources of a unit.
        grows: whether the cluster adds machines by itself.
    """
    fitting = [machine for machine in machines if machine.fits(need)]
    count = sum(_at_once(machine.resources, need) for machine in fitting)
    memory = [one for one in (_memory_mb(machine, need) for machine in fitting) if one is not None]
    return Devices(
        count=max(1, count),
        kind=kind_of(need),
        memory_mb=min(memory) if memory else None,
        grows=grows,
        units_each=min((_units_each(machine.resources, need) for machine in fitting), default=1),
    )


def on_this_machine(need: Resources) -> Devices:
    """The devices of this machine; what a unit needs, once, where the machine has too little of it."""
    has = {"CPU": float(os.cpu_count() or 1), "memory": _ram_bytes()}
    sizes = _gpu_mb() if need.gpus else []
    if need.gpus:
        has["GPU"] = float(len(sizes) or 1)
    memory = min(1.0, need.gpus) * min(sizes) if sizes else None
    if not need.gpus:
        memory = has["memory"] / 1e6 / max(1, _at_once(has, need))
    return Devices(
        count=max(1, _at_once(has, need)),
        kind=kind_of(need),
        memory_mb=memory,
        missing=_lacks(has["CPU"], len(sizes), need),
        units_each=_units_each(has, need),
        others_mb=max(_used_mb(), default=0.0) if sizes else 0.0,
    )


def of_ray(machines: Sequence[Machine], need: Resources, *, grows: bool, is_cluster: bool) -> Devices:
    """The devices of a launch. Of this machine alone, its driver tells the memory, as it does for a plan.

    Args:
        machines: the machines alive.
        need: the resources of a unit.
        grows: whether the cluster adds machines by itself.
        is_cluster: whether there may be other machines than this one.
    """
    found = of_machines(machines, need, grows=grows)
    if is_cluster or not need.gpus:
        return found
    here = on_this_machine(need)
    return replace(found, memory_mb=here.memory_mb or found.memory_mb, others_mb=here.others_mb)


def to_plan_for(need: Resources, count: int | None) -> Devices:
    """The devices of this machine, or a number of them that the user names."""
    here = on_this_machine(need)
    if count is not None:
        here = replace(here, count=count, missing="")
    if need.gpus > MOST_GPUS and (here.missing or count is not None):
        return replace(here, missing=f"a unit trains on one machine, and common ones have at most {MOST_GPUS} GPUs")
    return here


def _lacks(cores: float, gpus: int, need: Resources) -> str:
    """What keeps a unit from training on this machine; empty for nothing."""
    if need.gpus and not gpus:
        return "no GPU is found on this machine"
    if need.gpus > gpus:
        return f"a unit needs {need.gpus:g} GPUs, this machine has {gpus}"
    return f"a unit needs {need.cpus} cores, this machine has {cores:g}" if need.cpus > cores else ""


def _at_once(has: Mapping[str, float], need: Resources) -> int:
    wanted = {"CPU": need.cpus} | ({"GPU": need.gpus} if need.gpus else {})
    return int(min(has.get(name, 0.0) / amount + 1e-6 for name, amount in wanted.items()))


def _units_each(has: Mapping[str, float], need: Resources) -> int:
    if need.gpus != 1:
        return 1
    return max(1, int(has.get("CPU", 0.0) / (need.cpus * max(1.0, has.get("GPU", 0.0))) + 1e-6))


def _memory_mb(machine: Machine, need: Resources) -> float | None:
    """Memory of a unit on a machine."""
    if not need.gpus:
        total = machine.resources.get("memory", 0.0)
        return total / 1e6 / max(1, _at_once(machine.resources, need)) if total else None
    kinds = [key.partition(":")[2] for key in machine.resources if key.startswith("accelerator_type:")]
    known = [GPU_GB[kind] for kind in kinds if kind in GPU_GB]
    return 1000 * min(1.0, need.gpus) * min(known) if known else None


def _gpu_mb() -> list[float]:
    """Memory of each GPU of this machine; empty where its driver does not say."""
    return _asked("memory.total")


def _used_mb() -> list[float]:
    """Memory of each GPU of this machine that is in use now."""
    return _asked("memory.used")


def _asked(what: str) -> list[float]:
    query = (*_QUERY, f"--query-gpu={what}")
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
        return [float(line) * 1.048576 for line in said.split()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def _ram_bytes() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
