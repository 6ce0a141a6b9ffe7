"""The devices at hand for a sweep: how many units can train at the same time, and how much memory each has."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from goal_sweep.runners.execution.session import Machine, Resources
from goal_sweep.runners.planning.estimates import card_named

_KIND: Final = "accelerator_type:"
_MIB: Final = 1.048576
"""Megabytes in a mebibyte, in which drivers tell memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Equal devices. What `resources` asks for counts as one: a GPU, a part of one, or some cores."""

    count: int
    """How many units can train at the same time; at least 1."""
    need: Resources
    gpu: str = ""
    """The name of the GPUs, as the driver of this machine or Ray says it; empty if it is not known."""
    memory_mb: float | None = None
    """Of each; None if it is not known."""
    notes: tuple[str, ...] = ()
    """What the user should know: CPUs that are too few, or that this machine has no such devices."""

    def __str__(self) -> str:
        amount, name = (self.need.gpus, "GPU") if self.need.gpus else (self.need.cpus, "core")
        several = "s" if self.count > 1 or amount > 1 else ""
        return f"{self.count} {name}{several}" if amount == 1 else f"{self.count} x {amount:g} {name}{several}"


def of_machines(machines: Sequence[Machine], need: Resources, *, here: bool = False) -> Devices:
    """The devices of a cluster or, if ``here``, of this machine, whose driver tells the GPUs. Free or not."""
    fitting = [machine.resources for machine in machines if machine.fits(need)]
    kinds = [key.removeprefix(_KIND) for has in fitting for key in has if key.startswith(_KIND)]
    memory = [1000 * card.memory for card in map(card_named, kinds) if card is not None]
    if not need.gpus:
        memory = [has["memory"] / 1e6 / _at_once(has, need) for has in fitting if "memory" in has]
    elif here:
        memory = [float(mib) * _MIB for mib in _ask_driver("memory.total") if mib.strip().isdigit()] or memory
        kinds = _ask_driver("name") or kinds
    idle = idle_gpus(machines, need) if need.gpus else ""
    missing = "" if fitting else f"no machine has what a unit needs, {need} (resources): it waits for one that joins"
    return Devices(
        count=max(1, sum(_at_once(has, need) for has in fitting)),
        need=need,
        gpu=kinds[0] if kinds and need.gpus else "",
        memory_mb=min(memory) * (need.gpus or 1.0) if memory else None,
        notes=tuple(filter(None, (idle, missing))),
    )


def to_plan_for(need: Resources, count: int | None) -> Devices:
    """The devices of this machine, or a number of them that the user names; one where it has too little for a unit."""
    gpus = len(_ask_driver("memory.total")) if need.gpus else 0
    ram = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    has = {"CPU": float(os.cpu_count() or 1), "GPU": float(gpus), "memory": ram}
    here, anywhere = Machine(id="", resources=has), replace(need, accelerator="")
    devices = replace(of_machines([here], anywhere, here=True), need=need)
    if need.accelerator.casefold() not in devices.gpu.casefold():  # the sweep will run on other GPUs
        card = card_named(need.accelerator)
        devices = replace(devices, gpu=need.accelerator, memory_mb=card and 1000 * card.memory * need.gpus)
    if count is not None:
        devices = replace(devices, count=count)
        cpus = f"{devices} take {count * need.cpus} CPUs, {need.cpus} for each (resources.cpus)"
        return replace(devices, notes=(cpus,) if need.gpus else ())
    if here.fits(anywhere):
        return devices
    missing = f"a unit needs {need}, this machine has {here.describe()}: planned as if there were {devices}"
    return replace(devices, notes=(missing,))


def idle_gpus(machines: Sequence[Machine], need: Resources) -> str:
    """Why GPUs stay idle for want of CPUs, and what would do; empty if none do."""
    having = [machine.resources for machine in machines if machine.fits(replace(need, cpus=0))]
    room = [int(has["GPU"] / need.gpus + 1e-6) for has in having]
    now, most, cpus = sum(_at_once(has, need) for has in having), sum(room), sum(has.get("CPU", 0.0) for has in having)
    if now == most:
        return ""
    each = min(int(has.get("CPU", 0.0) / units) for has, units in zip(having, room, strict=True))
    less = f", or resources.cpus={each}" if each else ""
    return (
        f"{now} of the {most} units for which there are GPUs can train at a time, because each takes {need.cpus} of "
        f"{cpus:g} CPUs (resources.cpus); {most * need.cpus} CPUs{less} would use every GPU"
    )


def _at_once(has: Mapping[str, float], need: Resources) -> int:
    wanted = {"CPU": need.cpus} | ({"GPU": need.gpus} if need.gpus else {})
    return int(min(has.get(name, 0.0) / amount + 1e-6 for name, amount in wanted.items()))


def _ask_driver(what: str) -> list[str]:
    """A property of each GPU of this machine; empty where there is no driver."""
    query = ("nvidia-smi", "--format=csv,noheader,nounits", f"--query-gpu={what}")
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
