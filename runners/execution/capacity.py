"""What a unit needs, what machines have, and whether the one can ever fit the other."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from goal_sweep.goal_core.basics.errors import DeviceError
from goal_sweep.sweeps import ResourceConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a unit needs."""

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

    def __str__(self) -> str:
        kind = f" of type {self.accelerator}" if self.accelerator else ""
        return f"{self.cpus} CPU and {self.gpus:g} GPU{kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine of the cluster, as Ray describes it."""

    id: str
    resources: Mapping[str, float]
    """All of it, whoever uses it."""

    def fits(self, need: Resources) -> bool:
        """Whether it could hold a unit if nothing else ran there."""
        return all(self.resources.get(name, 0.0) >= amount for name, amount in need.bundle.items())

    def describe(self) -> str:
        """Write its CPUs and GPUs."""
        kinds = [key.partition(":")[2] for key in self.resources if key.startswith("accelerator_type:")]
        what = f" ({', '.join(sorted(kinds))})" if kinds else ""
        return f"{self.resources.get('CPU', 0):g} CPU and {self.resources.get('GPU', 0):g} GPU{what}"


def check_here(need: Resources, here: Machine | None = None) -> None:
    """Raises `DeviceError`, with the settings that would fit, where a unit does not fit this machine.

    Args:
        here: this machine as Ray counts it; None counts what Ray may find at most, and starts nothing.
    """
    if here is None:  # only Ray finds out the kind of a GPU
        here, need = _this_machine(gpus=need.gpus > 0), replace(need, accelerator="")
    if here.fits(need):
        return
    has = {name: int(here.resources.get(kind, 0)) for name, kind in (("gpus", "GPU"), ("cpus", "CPU"))}
    smaller = [f"--set resources.{name}={count}" for name, count in has.items() if getattr(need, name) > count]
    fits = f"{' '.join(smaller)} fits it; " if smaller else ""
    raise DeviceError(
        f"a unit needs {need} (resources.*), but this machine has {here.describe()}; {fits}--address trains on a "
        "cluster"
    )


def _this_machine(*, gpus: bool) -> Machine:
    """What Ray may find on this machine at most."""
    counted = {"CPU": float(os.cpu_count() or 1)}
    if gpus:
        from torch import cuda  # takes seconds; counts GPUs without starting one

        counted["GPU"] = float(cuda.device_count())
    with contextlib.suppress(ValueError):  # Ray says what is wrong with it
        counted |= json.loads(os.environ.get("RAY_OVERRIDE_RESOURCES", "{}"))
    return Machine(id="", resources=counted)
