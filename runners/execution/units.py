"""Run units as Ray Tune trials. Loading this module loads Ray.

Tune starts and places them. The launch knows what there is to run, and the store what is done, so Tune remembers
nothing and is never restored.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.search import Searcher

from goal_sweep.goal_core.basics.atomic import scratch_folder
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.goal_core.training import TrainingEvent
from goal_sweep.runners.execution.job import Death, UnfitMachineError, Work
from goal_sweep.runners.execution.session import AGAIN, RaySession

_PENDING = "32"
"""Units that ask a cluster for room at the same time. The more there are, the faster an autoscaler adds machines."""
_NODE_ID = "ray.io/node-id"
"""The label that Ray gives to each machine."""


def run_units(session: RaySession, work: Work, room: int) -> None:
    """Train units until the work is over or stops. Raises `UnfinishedError` where Ray has ended.

    What ends Tune alone, such as Ray's word that a worker took too much memory, costs a start of the units that ran.

    Args:
        room: units that this machine holds; so many workers start together. A cluster may grow.
    """
    os.environ.setdefault("TUNE_MAX_PENDING_TRIALS_PG", str(room) if session.address is None else _PENDING)
    while not work.is_over and not work.stopping:
        _fit(session, _Queue(work))


def train_trial(config: Mapping[str, Any]) -> None:
    """What Ray Tune runs: train the unit of a `Start`, and report its events, each with Ray's id of the machine."""
    from goal_sweep.runners.execution.worker import run_unit  # with torch, which a driver does without

    node = ray.get_runtime_context().get_node_id()

    def report(events: Sequence[TrainingEvent] = (), **more: Any) -> None:
        tune.report({"node": node, "events": list(events), **more})  # waits until the driver has read it

    report()  # where the unit begins
    try:
        run_unit(ray.get(config["job"]), report)
    except UnfitMachineError as error:
        report(unfit=str(error))


class _NotKept:
    """Tune writes its parts into a file that nothing reads. Ours hold what cannot be written."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Queue(_NotKept, Searcher):  # type: ignore[misc]  # ray is not typed
    """Gives Tune one start after the other, and lets it wait while none can begin."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        self.numbers: set[int] = set()
        """Of the starts that Tune was given and that have not ended."""

    def suggest(self, trial_id: str) -> Any:
        self.work.step()
        if self.work.is_over or self.work.stopping:
            return Searcher.FINISHED
        if (start := self.work.next()) is None:
            return None
        self.numbers.add(start.number)
        return {"number": start.number, "job": ray.put(start.job), "avoid": [*start.avoid]}

    def end(self, number: int, death: Death | None) -> None:
        """Tell, once, that a start has ended."""
        if number in self.numbers:
            self.numbers.remove(number)
            self.work.ended(number, death)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass

    def save(self, checkpoint_path: str) -> None:
        pass


class _Ears(_NotKept, tune.Callback):  # type: ignore[misc]  # ray is not typed
    def __init__(self, queue: _Queue) -> None:
        self._queue = queue

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._queue.work.reported(trial.config["number"], result)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._queue.end(trial.config["number"], None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        text = ""
        with suppress(OSError, TypeError):  # Tune keeps the last error in a file, if it can
            text = Path(trial.error_file).read_text()
        self._queue.end(trial.config["number"], Death.read(text))

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._queue.work.step()


class _End(_NotKept, tune.Stopper):  # type: ignore[misc]  # ray is not typed
    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._work.stopping


def _fit(session: RaySession, queue: _Queue) -> None:
    bundle = session.need.bundle

    def resources(config: Mapping[str, Any]) -> Any:  # Ray writes it, and what it holds, into a file
        others = [{_NODE_ID: f"!in({','.join(config['avoid'])})"}] if config["avoid"] else None
        return tune.PlacementGroupFactory([bundle], bundle_label_selector=others)

    ears = _Ears(queue)
    # Tune must write its bookkeeping somewhere; nothing reads it.
    with scratch_folder() as scratch:
        tuner = tune.Tuner(
            tune.with_resources(train_trial, resources),
            tune_config=tune.TuneConfig(
                num_samples=-1,  # the queue says when it is over
                search_alg=queue,
                trial_name_creator=lambda trial: f"unit-{trial.config['number']:04d}",
                trial_dirname_creator=lambda trial: f"unit-{trial.config['number']:04d}-{trial.trial_id}",
                # Reusing a CPU worker saves seconds of imports; a used CUDA context may not be clean.
                reuse_actors=session.need.gpus == 0,
            ),
            run_config=tune.RunConfig(
                name="units", storage_path=str(scratch), verbose=0, stop=_End(queue.work), callbacks=[ears]
            ),
        )
        try:
            tuner.fit()
        except Exception as error:  # such as a RuntimeError around what Ray says of a worker that it has ended
            if not isinstance(error, tune.TuneError | ray.exceptions.RayError | RuntimeError):
                raise
            if not session.machines():
                last = str(error).strip().rpartition("\n")[2].strip() or type(error).__name__
                raise UnfinishedError(f"Ray stopped: {last}; {AGAIN}") from error
            death: Death | None = Death.read(str(error))
        else:
            death = None
    for number in sorted(queue.numbers):  # Tune has stopped them, or not begun them
        queue.end(number, death)
