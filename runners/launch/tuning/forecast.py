"""What a search will train, before it runs. The earlier candidates are taken for the better ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from runners.launch.tuning.search import Ended, Read, replay
from sweeps import ResolvedSweep, Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The rest of a search, and what follows it."""

    rounds: tuple[tuple[Training, ...], ...]
    """All trainings of candidates. Those of a round wait for the scores of the round before."""
    candidates: tuple[int, int]
    """Candidates of the objective that has the fewest, because its settings have no more values, and of that with most.
    """
    grid: tuple[Training, ...]
    """The trainings that report: those of the sweep's own settings, and of others that the search may choose."""


def foresee(sweep: ResolvedSweep, read: Read) -> Forecast:
    """Foresee the search of a sweep that has a `tune` block.

    Args:
        sweep: the sweep.
        read: reads how trainings ended.
    """
    tune, last = sweep.config.tune, sweep.config.stages[-1].name
    assert tune is not None
    bare, metric = replace(sweep, trails=()), tune.metric

    def foreseen(trainings: Sequence[Training]) -> Mapping[Training, Ended]:
        return {
            training: end or {"metrics": {metric: -float(training.number or 0)}, "epochs": training.epochs}
            for training, end in read(trainings).items()
        }

    searched = replay(bare, foreseen)
    rounds: dict[tuple[int, int], list[Training]] = {}
    for training in searched.trainings:
        if training.number is not None:
            batch = training.number // tune.batch if tune.search == "tpe" else 0
            rounds.setdefault((batch, training.begins if training.stage.name == last else 0), []).append(training)
    counts = [len(trail.candidates) for trail in searched.trails]
    # The choice is not known: the last candidate of each objective stands for it, because the first has the sweep's own
    # settings, and then no cell would be added.
    chosen = [replace(trail, chosen=len(trail.candidates) - 1) for trail in searched.trails]
    return Forecast(
        rounds=tuple(tuple(rounds[key]) for key in sorted(rounds)),
        candidates=(min(counts), max(counts)),
        grid=tuple(replace(bare, trails=sweep.trails if sweep.has_chosen else tuple(chosen)).reporting),
    )
