"""Whether a cluster has room for a unit, and what the user hears while it has none."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from goal_core.basics.errors import DeviceError, UnfinishedError
from sweeps import ResourceConfig

BUSY_S = 90.0
"""Seconds without a running unit after which machines that could hold one count as taken by others."""


class NoCapacityError(UnfinishedError):
    """No machine had room for a unit for as long as the user wanted to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of one unit."""

    cpus: int
    gpus: float
    accelerator: str = ""
    """Kind of GPU as Ray names it, such as `A100`; empty for any."""

    @classmethod
    def of(cls, config: ResourceConfig) -> Resources:
        """As a sweep asks for them."""
        return cls(cpus=config.cpus, gpus=config.gpus, accelerator=config.accelerator)

    @property
    def bundle(self) -> dict[str, float]:
        """What is asked of Ray. It says `accelerator_type:A100` 1.0 of each machine with such GPUs."""
        kind = {f"accelerator_type:{self.accelerator}": 0.001} if self.accelerator else {}
        return {"CPU": float(self.cpus)} | ({"GPU": self.gpus} if self.gpus else {}) | kind

    def shared_by(self, units: int) -> Resources:
        """The resources of one of several units that share a GPU. Ray counts GPUs in steps of 0.0001, and rounds."""
        return replace(self, gpus=int(self.gpus * 10_000 / units) / 10_000) if units > 1 else self

    def __str__(self) -> str:
        kind = f" of type {self.accelerator}" if self.accelerator else ""
        return f"{self.cpus} CPU and {self.gpus:g} GPU{kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine of the cluster, as Ray describes it."""

    id: str
    """Ray's id of it."""
    host: str
    address: str
    resources: Mapping[str, float]
    """All of it, whoever uses it."""

    @classmethod
    def of_ray(cls, node: Mapping[str, Any]) -> Machine:
        """Read an element of `ray.nodes()`."""
        return cls(
            id=str(node["NodeID"]),
            host=str(node.get("NodeManagerHostname", "")),
            address=str(node.get("NodeManagerAddress", "")),
            resources=node.get("Resources") or {},
        )

    @property
    def name(self) -> str:
        """How messages name it."""
        return f"{self.host} ({self.address})"

    def fits(self, need: Resources) -> bool:
        """Whether it could hold a unit if nothing else ran there."""
        return all(self.resources.get(name, 0.0) >= amount for name, amount in need.bundle.items())

    def describe(self) -> str:
        """Write its CPUs and GPUs."""
        kinds = [key.partition(":")[2] for key in self.resources if key.startswith("accelerator_type:")]
        what = f" ({', '.join(sorted(kinds))})" if kinds else ""
        return f"{self.resources.get('CPU', 0):g} CPU and {self.resources.get('GPU', 0):g} GPU{what}"


def check_here(need: Resources, here: Machine | None = None) -> None:
    """Check that a unit fits this machine.

    Args:
        need: the resources of a unit.
        here: this machine as Ray counts it; None counts what Ray may find at most, and starts nothing.

    Raises:
        DeviceError: it does not; names the settings with which it would.
    """
    if here is None:  # only Ray finds out the kind of a GPU
        here, need = _this_machine(), replace(need, accelerator="")
    if here.fits(need):
        return
    has = {name: int(here.resources.get(kind, 0)) for name, kind in (("gpus", "GPU"), ("cpus", "CPU"))}
    smaller = [f"--set resources.{name}={count}" for name, count in has.items() if getattr(need, name) > count]
    fits = f"{' '.join(smaller)} fits it; " if smaller else ""
    raise DeviceError(
        f"a unit needs {need} (resources.*), but this machine has {here.describe()}; {fits}--address trains on a "
        "cluster"
    )


def _this_machine() -> Machine:
    """What Ray may find on this machine at most."""
    from torch import cuda  # counts GPUs without starting one

    counted = {"CPU": float(os.cpu_count() or 1), "GPU": float(cuda.device_count())}
    with contextlib.suppress(ValueError):  # Ray says what is wrong with it
        counted |= json.loads(os.environ.get("RAY_OVERRIDE_RESOURCES", "{}"))
    return Machine(id="", host=socket.gethostname(), address="", resources=counted)


def has_autoscaler(status: bytes | None, is_version_2: bool) -> bool:
    """Whether the cluster adds machines by itself.

    Args:
        status: what Ray's monitor wrote about the machines, as JSON. Where nobody adds machines, the monitor makes up a
            node type of its own for each.
        is_version_2: whether Ray says that its second autoscaler runs.
    """
    if is_version_2 or not status:
        return is_version_2
    try:
        kinds = json.loads(status)["autoscaler_report"]["node_type_mapping"]
        return any(kind != f"node_{node}" for node, kind in kinds.items())
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def check_possible(machines: Sequence[Machine], need: Resources, *, grows: bool, wait: float | None) -> None:
    """Check before a launch that it does not wait for what can never come.

    A cluster that adds machines by itself, or has none to work with yet, is waited for.

    Args:
        machines: the machines alive.
        need: the resources of a unit.
        grows: whether the cluster adds machines by itself.
        wait: seconds that the user wants to wait for room; None if he has not said.

    Raises:
        DeviceError: there are machines to work with, but none is large enough, and none will be added.
    """
    workers = [machine for machine in machines if machine.resources.get("CPU", 0) or machine.resources.get("GPU", 0)]
    if grows or wait or not workers or any(machine.fits(need) for machine in workers):
        return
    raise DeviceError(
        f"a unit needs {need} (resources.*), but no machine of the cluster is that large, and it has no autoscaler to "
        f"add one; its machines have {_kinds(workers)}. --wait MINUTES waits for one that joins later"
    )


def _kinds(machines: Sequence[Machine]) -> str:
    return "; ".join(sorted({machine.describe() for machine in machines})) or "no CPU or GPU"


class CapacityWatch:
    """Says when there is no room for a unit, and when there is again.

    Args:
        need: the resources of a unit.
        say: shows a line to the user.
        wait: seconds without room after which `check` gives up; None never does.
        clock: seconds; for tests.
    """

    def __init__(
        self,
        need: Resources,
        say: Callable[[str], None],
        wait: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._need, self._say, self._wait, self._clock = need, say, wait, clock
        self._without: float | None = None
        """Since when there has been no room."""
        self._idle_since = clock()
        """Since when no unit has run although there is a machine for one."""

    def check(self, machines: Sequence[Machine], *, running: int, avoided: Collection[str] = ()) -> None:
        """Look at the cluster; call this every few seconds while units are left.

        Args:
            machines: the machines alive.
            running: how many units run.
            avoided: ids of the machines that are left alone.

        Raises:
            NoCapacityError: there has been no room for as long as the user wanted to wait.
        """
        now = self._clock()
        if running or not any(machine.fits(self._need) for machine in machines):
            self._idle_since = now
        problem = self._problem(machines, avoided, idle=now - self._idle_since)
        if not problem:
            if self._without is not None:
                self._say("there is room for a unit again")
            self._without = None
            return
        if self._without is None:
            self._without = now
            self._say(f"waiting for capacity: {problem}")
        if self._wait is not None and now - self._without >= self._wait:
            raise NoCapacityError(
                f"no room for a unit for {self._wait / 60:g} min (--wait): {problem}; the same command continues"
            )

    def _problem(self, machines: Sequence[Machine], avoided: Collection[str], *, idle: float) -> str:
        """Why no unit can start; empty if one can, or may soon."""
        large = [machine for machine in machines if machine.fits(self._need)]
        if not large:
            return f"a unit needs {self._need}, and the cluster has {_kinds(machines)} now"
        free = [machine for machine in large if machine.id not in avoided]
        if idle >= BUSY_S:
            return f"a unit needs {self._need}, and {len(free)} machines of that size are taken by others, or starting"
        return ""
