"""What the driver of a launch costs per event, for 100, 1,000 and 10,000 trainings on a simulated cluster.

    python -m benchmarks.orchestration [--trainings 100 1000 10000] [--machines 64] [--profile]

The driver is the real one: the launcher with its view, Ray Tune, and the store, in memory. The workers are
simulated: each start, report and end of a unit is there as soon as Tune asks for it, so that all time is the
driver's, except what the simulation itself spends on the results of its trainings, which is subtracted. CPU time is
counted, from the first event to the end, so that Ray's start and other work on the machine do not matter. MLflow is
left out, because it is written on a thread of its own. The cost per event must not grow with the number of trainings.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import os
import pstats
import resource
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from benchmarks.machine import print_machine
from goal_core.training import EpochDone, TrainingDone
from runners.execution import ray_tune
from runners.execution.capacity import Machine
from runners.launch import launcher as launching
from runners.launch.opened_sweep import OpenedSweep
from runners.launch.plan import LaunchOptions
from runners.store import Store
from sweeps import load_sweep

EPOCHS = 3
METRICS = {"val/rsum": 100.0, "train/hinge": 0.1, "time/epoch": 1.0}


class Simulated:
    """The simulated cluster: what its machines would report, and the time that this takes here."""

    def __init__(self, machines: int) -> None:
        self.machines = [
            Machine(id=f"{number:056x}", host=f"node{number}", address=f"10.0.0.{number}", resources={"CPU": 1.0})
            for number in range(machines)
        ]
        self.seconds = 0.0
        self.times: list[float] = []
        """CPU seconds of the driver alone, at each event."""
        self.store: Store | None = None

    def actors(self, resource_manager: Any) -> SimulatedActors:
        """Takes the place of Tune's manager of actors."""
        return SimulatedActors(self)


class SimulatedActors:
    """Starts, trains and stops at once, on as many machines as there are. The interface is that of Ray Tune."""

    def __init__(self, cluster: Simulated) -> None:
        self._cluster = cluster
        self._free = deque(machine.id for machine in cluster.machines)
        self._waiting: deque[tuple[Any, dict[str, Any]]] = deque()
        self._machines: dict[Any, str] = {}
        self._configs: dict[Any, dict[str, Any]] = {}
        self._tasks: deque[tuple[Any, str, Any]] = deque()
        self._steps: dict[Any, int] = {}
        self._live_actors_to_ray_actors_resources: dict[Any, tuple[None, None]] = {}
        self._number = 0

    def add_actor(
        self, cls: Any, resource_request: Any, kwargs: Any, on_start: Any, on_stop: Any, on_error: Any
    ) -> Any:
        from ray.air.execution._internal.tracked_actor import TrackedActor

        self._number += 1
        actor = TrackedActor(self._number, on_start=on_start, on_stop=on_stop, on_error=on_error)
        actor.__class__.__hash__ = lambda self: hash(self.actor_id)  # type: ignore[method-assign]
        self._waiting.append((actor, kwargs["config"]))
        return actor

    def next(self, timeout: float | None = None) -> bool:
        while self._waiting and self._free:
            actor, config = self._waiting.popleft()
            self._machines[actor], self._configs[actor], self._steps[actor] = self._free.popleft(), config, 0
            self._live_actors_to_ray_actors_resources[actor] = (None, None)
            self._tasks.append((actor, "start", None))
        if not self._tasks:
            return False
        actor, method, on_result = self._tasks.popleft()
        self._cluster.times.append(time.process_time() - self._cluster.seconds)
        if method == "start":
            actor._on_start(actor)
        elif method == "train":
            on_result(actor, self._report(actor))
        elif method == "reset":
            on_result(actor, True)
        return True

    def _report(self, actor: Any) -> dict[str, Any]:
        began = time.process_time()
        import ray

        step = self._steps[actor]
        self._steps[actor] += 1
        job = ray.get(self._configs[actor]["job"])
        (training,) = job.unit.trainings
        report: dict[str, Any] = {"node": self._machines[actor], "events": [], "training_iteration": step + 1}
        if 1 <= step <= EPOCHS:
            record = {"epoch": step, "metrics": METRICS}
            report["events"] = [EpochDone(key=training.key, record=record)]
        elif step == EPOCHS + 1:
            report["events"] = [TrainingDone(key=training.key, result=self._finish(training, job.launch_id))]
        elif step > EPOCHS + 1:
            report |= {"done": True, "__duplicate__": True}
        self._cluster.seconds += time.process_time() - began
        return report

    def _finish(self, training: Any, launch_id: str) -> dict[str, Any]:
        from tests.helpers.store_cases import result, train

        assert self._cluster.store is not None
        folder = self._cluster.store.folder(training)
        folder.claim(launch_id)
        train(folder, 1)
        return result(1)

    def schedule_actor_task(
        self, tracked_actor: Any, method_name: str, args: Any = None, kwargs: Any = None, on_result: Any = None,
        on_error: Any = None, _return_future: bool = False,
    ) -> None:  # fmt: skip
        if method_name == "reset":
            self._configs[tracked_actor], self._steps[tracked_actor] = args[0], 0
        if method_name in ("train", "reset"):
            self._tasks.append((tracked_actor, method_name, on_result))

    def remove_actor(self, tracked_actor: Any, kill: bool = False, stop_future: Any = None) -> bool:
        if tracked_actor not in self._machines:
            self._waiting = deque(entry for entry in self._waiting if entry[0] != tracked_actor)
            return False
        self._tasks = deque(task for task in self._tasks if task[0] != tracked_actor)
        self._free.append(self._machines.pop(tracked_actor))
        del self._configs[tracked_actor], self._live_actors_to_ray_actors_resources[tracked_actor]
        if tracked_actor._on_stop:
            tracked_actor._on_stop(tracked_actor)
        return True

    def clear_actor_task_futures(self, tracked_actor: Any) -> None:
        pass

    def is_actor_started(self, tracked_actor: Any) -> bool:
        return tracked_actor in self._machines

    def is_actor_failed(self, tracked_actor: Any) -> bool:
        return False

    def get_live_actors_resources(self) -> dict[str, float]:
        return {}

    def cleanup(self) -> None:
        pass

    num_live_actors = property(lambda self: len(self._machines))
    num_pending_actors = property(lambda self: len(self._waiting))
    num_total_actors = property(lambda self: len(self._machines) + len(self._waiting))
    num_actor_tasks = property(lambda self: len(self._tasks))


def opened(folder: Path, trainings: int) -> OpenedSweep:
    """The scenes sweep with so many trainings, opened without drawing its scenes."""
    seeds = -(-trainings // 15)
    settings = [
        f"store={folder}",
        f"seeds={list(range(seeds))}",
        "execution.sharing=none",
        "execution.cells_per_unit=0",
    ]
    config = load_sweep("scenes", settings)
    config = load_sweep("scenes", [*settings, f"stages=[{{name: frozen, epochs: {EPOCHS}, lr: 0.1}}]"])
    store, dataset = Store(folder), SimpleNamespace(fingerprint="print", name="scenes", splits={})
    store.prepare()
    weights = {item.name: "random" for item in config.model.backbones}
    return OpenedSweep(config=config, data_fingerprint="print", weights=weights, dataset=dataset, store=store)  # type: ignore[arg-type]


def measure(trainings: int, machines: int, profile: bool) -> None:
    """Launch a sweep on the simulated cluster, and print what its driver costs."""
    from ray.tune.execution import tune_controller

    from tests.helpers.in_process import NoTracking

    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        cluster = Simulated(machines)
        sweep = opened(Path(folder, "store"), trainings)
        cluster.store = sweep.store
        number = len(sweep.trainings)
        tune_controller.RayActorManager = cluster.actors
        ray_tune._machines = lambda: cluster.machines
        ray_tune.RayUnits._most_pending = ray_tune.MAX_PENDING  # type: ignore[assignment, method-assign]  # a cluster
        launching.sweep_prices = lambda sweep: None  # type: ignore[assignment, return-value]  # there are no data to price
        launching.SweepTracking = NoTracking  # type: ignore[misc, assignment]
        OpenedSweep.check_trainable = lambda self: None  # type: ignore[method-assign]
        console = Console(file=io.StringIO(), width=120)
        sizes: list[int] = []
        watch_snapshots(sizes)
        profiler = cProfile.Profile()
        if profile:
            profiler.enable()
        outcome = launching.launch_sweep(sweep, LaunchOptions(), console, lambda *words, **named: " ".join(words))
        profiler.disable()
        events, tenth = len(cluster.times), len(cluster.times) // 10
        seconds = time.process_time() - cluster.seconds - cluster.times[0]
        first, last = (
            1000 * (cluster.times[end - 1] - cluster.times[end - tenth]) / tenth for end in (3 * tenth, 7 * tenth)
        )
        assert outcome.status == 0, console.file.getvalue()[-2000:]  # type: ignore[attr-defined]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{number:6,} trainings, {events:6,} events: {1000 * seconds / events:.2f} ms per event with the end "
            f"({first:.2f} in the third tenth, {last:.2f} in the seventh), {seconds:.1f} s in all; Tune's state "
            f"{sum(sizes) / 1e6:.2f} MB in {len(sizes)} writes; the driver's peak so far {memory:,.0f} MB",
            flush=True,
        )
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def watch_snapshots(sizes: list[int]) -> None:
    """Note the size of each state that Tune writes to disk."""
    from ray.tune.execution.tune_controller import TuneController

    save = getattr(TuneController, "original_save", TuneController.save_to_dir)
    TuneController.original_save = save

    def noted(controller: Any) -> None:
        save(controller)
        with suppress(OSError):
            sizes.append(os.path.getsize(controller.experiment_state_path))

    TuneController.save_to_dir = noted


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each size in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--machines", type=int, default=64)
    parser.add_argument("--profile", action="store_true", help="print where the driver's time goes")
    given = parser.parse_args(arguments)
    print_machine()
    for trainings in given.trainings:
        measure(trainings, given.machines, given.profile)


if __name__ == "__main__":
    main()
