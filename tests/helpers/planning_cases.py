"""Speeds and devices of sweeps whose data is not on this machine."""

from collections.abc import Mapping
from typing import Any

from goal_sweep.goal_core.data.formats.report import published_counts
from goal_sweep.goal_core.models.sizes import DataSize
from goal_sweep.runners.cli.plan import plan_of
from goal_sweep.runners.execution.session import Machine, Resources
from goal_sweep.runners.planning.devices import Devices
from goal_sweep.runners.planning.packing import Speeds
from goal_sweep.sweeps import SweepConfig, Unit, load_sweep, pack
from goal_sweep.sweeps.cells import unopened


def devices_of(config: SweepConfig, count: int = 1, **more: Any) -> Devices:
    """Devices for a sweep, as many as asked for; nothing is known of their GPUs."""
    return Devices(count=count, need=Resources.of(config.resources), **more)


def published_speeds(name: str, *overrides: str) -> Speeds:
    """The speeds of a shipped sweep with its published data, as they are counted."""
    config = load_sweep(name, overrides, environ={})
    return Speeds(config, DataSize.of(published_counts(config.data)))


def rows_of(name: str, *overrides: str, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of the plan of a shipped sweep on one device, with its published data."""
    rows: list[dict[str, Any]] = plan_of(unopened(load_sweep(name, overrides, environ=environ)), 1)["stages"]
    return rows


def unit_of(speeds: Speeds, stage: str, cells: int = 1) -> Unit:
    """A unit of the first cells of a stage."""
    units = pack(unopened(speeds.config).trainings, speeds.config.execution)
    return Unit(trainings=next(one for one in units if one.stage.name == stage).trainings[:cells])


def machine(**resources: float) -> Machine:
    """A machine as Ray describes it; `accelerator_type__H100=1` says what its GPUs are."""
    return Machine(id="1", resources={name.replace("__", ":"): amount for name, amount in resources.items()})
