"""Prices and devices of sweeps whose data is not on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from goal_sweep.goal_core.data import SplitCounts, published_counts
from goal_sweep.goal_core.models.sizes import DataSize
from goal_sweep.runners.execution.capacity import Machine, Resources
from goal_sweep.runners.planning.devices import Devices
from goal_sweep.runners.planning.estimate import plan_rows
from goal_sweep.runners.planning.prices import Prices
from goal_sweep.sweeps import SweepConfig, load_sweep
from goal_sweep.sweeps.overview import unopened


def devices_of(config: SweepConfig, count: int = 1, **more: Any) -> Devices:
    """Devices for a sweep, as many as asked for; nothing is known of their GPUs."""
    return Devices(count=count, need=Resources.of(config.resources), **more)


def published_prices(
    name: str,
    *overrides: str,
    splits: Mapping[str, SplitCounts] | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> Prices:
    """The prices of a shipped sweep with its published data, or with some of other sizes."""
    config = load_sweep(name, overrides, environ=environ)
    size = DataSize.of(splits or published_counts(config.data))
    return Prices(config=config, size=size)


def rows_of(prices: Prices, count: int = 1, **more: Any) -> list[dict[str, Any]]:
    """The rows of a plan of everything that a sweep trains."""
    trainings = unopened(prices.config).trainings
    return plan_rows([("", trainings)], prices, devices_of(prices.config, count, **more), set(trainings))[0]


def machine(**resources: float) -> Machine:
    """A machine as Ray describes it; `accelerator_type__H100=1` says what its GPUs are."""
    named = {name.replace("__", ":"): amount for name, amount in resources.items()}
    return Machine(id="1", host="a", address="b", resources=named)
