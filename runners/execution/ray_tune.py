"""Run units as Ray Tune trials.

Tune starts, places and follows trials. It does not have to remember anything: the store knows what is done, so every
launch gives Tune a fresh list of the remaining units and never restores Tune's own state.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Sequence

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.execution.session.session import RayLostError, RaySession
from goal_sweep.runners.execution.session.supervisor import AGAIN
from goal_sweep.runners.execution.trial import train_trial
from goal_sweep.runners.execution.unit_job import UnitJob, UnitObserver
from goal_sweep.runners.execution.unit_watch import UnitWatch

MAX_PENDING = 200
"""Units that ask Ray for room at the same time. The more there are, the faster an autoscaler adds machines."""


class _Leave(BaseException):
    """Leaves Tune, which would clean up after an `Exception` and wait for what is lost."""

    def __init__(self, error: GoalError | OSError) -> None:
        super().__init__(str(error))
        self.error = error


class RayUnits(RaySession):
    """A running Ray that trains units."""

    def run(self, jobs: Sequence[UnitJob], observer: UnitObserver) -> None:
        """Train units and those that follow them, until each is done or given up, or the observer stops them.

        Args:
            jobs: the units that can start at once. Those of the lowest rank start first, as resources allow.
            observer: receives starts, events and losses, and gives the units that follow one that has ended.

        Raises:
            RayLostError: Ray failed, or its processes have ended, for which Tune itself would wait forever.
            DeviceError: every machine of the cluster lacks what the units need.
            GoalError: goal-sweep does not know this version of Ray.
        """
        list_machines = None if self.address is None else self.machines
        watch = UnitWatch(jobs, observer, self.resources, list_machines)
        while not watch.is_over:
            self._run(watch, observer)
            if observer.stopping:
                return
            if not watch.is_over and not watch.is_stuck:
                # Tune's own handler took the signal, before the observer's was in its place again.
                observer.step()
                signal.raise_signal(signal.SIGUSR1)

    def _run(self, watch: UnitWatch, observer: UnitObserver) -> None:
        """Run units until all have ended, or those that wait must begin anew."""
        os.environ.setdefault("TUNE_MAX_PENDING_TRIALS_PG", str(MAX_PENDING))
        from ray import tune
        from ray.exceptions import RayError

        from goal_sweep.runners.execution import tune_parts

        watch.restart()

        def check() -> bool:
            observer.step()
            try:
                watch.ask()
                if self.watch.lost:
                    raise RayLostError(f"{self.watch.lost}; {AGAIN}")
                if self.watch.answers_lately:
                    watch.step()
            except (GoalError, OSError) as error:
                raise _Leave(error) from None
            return watch.ends

        def name(trial: object) -> str:
            return f"unit-{trial.config['unit']:04d}"  # type: ignore[attr-defined]  # ray is not typed

        # A machine that will not grow needs no more than it can start at once; each unit has a core.
        most = (os.cpu_count() or 1) if self.address is None else MAX_PENDING
        # Tune must write its bookkeeping somewhere; nothing reads it.
        with (
            tempfile.TemporaryDirectory(prefix="goal-sweep-tune-") as scratch,
            tune_parts.memory_kills_end_one_worker(),
        ):
            tuner = tune.Tuner(
                tune.with_resources(train_trial, tune_parts.request),
                tune_config=tune.TuneConfig(
                    num_samples=-1,  # the queue says when it is over
                    search_alg=tune_parts.UnitQueue(watch, elsewhere=self.address is not None, most=most, check=check),
                    scheduler=tune_parts.UnitOrder(),
                    trial_name_creator=name,
                    trial_dirname_creator=lambda trial: f"{name(trial)}-{trial.trial_id}",
                    # Reusing a CPU worker saves seconds of imports; a used CUDA context may not be clean.
                    reuse_actors=self.resources.gpus == 0,
                ),
                run_config=tune.RunConfig(
                    name="units",
                    storage_path=scratch,
                    verbose=0,
                    stop=tune_parts.UnitStopper(watch),
                    callbacks=[tune_parts.UnitCallback(watch, observer.step, check)],
                ),
            )
            try:
                tuner.fit()
            except _Leave as leave:
                raise leave.error from None
            except (RayError, tune.TuneError, RuntimeError) as error:
                # Tune gives a whole traceback.
                last = str(error).strip().rpartition("\n")[2].strip() or type(error).__name__
                raise RayLostError(f"Ray stopped: {last}; {AGAIN}") from error
