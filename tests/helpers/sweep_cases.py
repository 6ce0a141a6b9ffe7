"""Small sweeps, resolved or opened without their data."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from goal_sweep.goal_core.data.config import ScenesConfig
from goal_sweep.goal_core.models.config import BackboneConfig
from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.runners.execution.job import CODE_DIGEST, UnitJob, software
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.store import Store
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, SweepObjectives, load_sweep, pack
from goal_sweep.sweeps.schema import SweepModel
from tests.helpers.paths import SCENES

SETTINGS = ["seeds=[1]", "objectives={only: [con/con, sig/cir]}"]


def resolved(*objectives: str, seeds: tuple[int, ...] = (1,), **settings: Any) -> ResolvedSweep:
    """A sweep named `s` with one stage, and with all objectives if none is given."""
    config = SweepConfig(
        name="s",
        data=ScenesConfig(name="scenes"),
        model=SweepModel(backbones=(BackboneConfig(name="test_byobnet", weights="random"),)),
        objectives=SweepObjectives(only=objectives),
        seeds=seeds,
        stages=(StageConfig(name="frozen", epochs=3, lr=0.1),),
        **settings,
    )
    return ResolvedSweep(config=config, data_fingerprint="f", weights={"test_byobnet": "random"})


def scenes(*overrides: str) -> ResolvedSweep:
    """The sweep of `SCENES`."""
    config = load_sweep(SCENES, overrides)
    weights = {item.name: "random" for item in config.model.backbones}
    return ResolvedSweep(config=config, data_fingerprint="fingerprint", weights=weights)


def opened_in(folder: Path | str, *more: str) -> OpenedSweep:
    """The sweep of `SCENES` with two objectives and one seed, opened without drawing its scenes."""
    config = load_sweep(SCENES, [*SETTINGS, f"store={folder}", *more])
    store = Store(folder)
    store.prepare()
    dataset: Any = SimpleNamespace(fingerprint="print", name="scenes", notes=())
    weights = {"test_byobnet": "random"}
    return OpenedSweep(config=config, data_fingerprint="print", weights=weights, dataset=dataset, store=store)


def job_of(sweep: OpenedSweep, launch: str = "L", **changes: Any) -> UnitJob:
    """The first unit of a sweep, as a launch on this machine sends it to a worker."""
    config = sweep.config
    job = UnitJob(
        unit=pack(sweep.by_stage[0], config.execution)[0],
        execution=config.execution,
        resources=config.resources,
        plugins=(),
        store=sweep.store.location,
        launch=launch,
        elsewhere=False,
        code=CODE_DIGEST,
        software=software(),
    )
    return replace(job, **changes)
