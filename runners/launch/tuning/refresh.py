"""The results table of a sweep as its store is now, without the sweep's data."""

from __future__ import annotations

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.launch.tuning.search import ends_of, replay
from goal_sweep.runners.results import listed_again, read_results, update_results
from goal_sweep.runners.store import Store
from goal_sweep.sweeps import SweepPlaces
from goal_sweep.sweeps.results import TUNED


def refreshed_results(store: Store, config: SweepPlaces) -> bytes | None:
    """The content of a sweep's results table, brought up to date with the store; None if the store has none.

    The table shows the sweep as it was last launched, whatever its file says now. What an earlier goal-sweep trained
    under other keys, or a plugin that does not run now, stays as it was written.
    """
    before = read_results(store, config.name)
    if before is None:
        return None
    try:
        sweep = listed_again(before.header, config)
    except ConfigError:  # of settings that this goal-sweep does not know
        return before.content
    if sweep.config.tune is not None and not sweep.studies:
        sweep = replay(sweep, lambda trainings: ends_of(store, trainings, sweep.config.resources.max_attempts))
    asked = {training.key for training in sweep.trainings}
    if any(row["training"] not in asked for row in before.rows(("training", "grid")) if row["grid"] != TUNED):
        return before.content
    return update_results(store, sweep, must_write=False).content
