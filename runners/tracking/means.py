"""One run for each objective of a block: the mean and the spread over its seeds, for MLflow's table of runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from goal_sweep.runners.results import ResultsTable
from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.values import LoggedStep, Row, final_of
from goal_sweep.sweeps import content_id
from goal_sweep.sweeps.results import TEST, VAL

BLOCK = ("dataset", "framework", "backbone", "stage", "variant", "point", "grid", "data_fingerprint")
"""The columns of the results table that tell one block from another."""
_ASKED = (*BLOCK, "pair", "triplet", "status", "seed", "role", "best_epoch", "ended", TEST, VAL)


@dataclass(frozen=True, slots=True)
class ObjectiveMean:
    """What the run of an objective shows."""

    objective: str
    name: str
    """Of the run."""
    tags: Mapping[str, str]
    final: LoggedStep
    """``mean/NAME`` and ``std/NAME`` (over n - 1) of each final metric that is finite for all finished seeds, at the
    number of these seeds as its step."""

    @property
    def digest(self) -> str:
        """16 hex digits that change with anything that the run shows."""
        return content_id([self.name, self.tags, self.final.metrics])


def objective_means(table: ResultsTable) -> Iterator[ObjectiveMean]:
    """The means of a sweep's results table; objectives with fewer than two finished seeds have none."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in table.rows(_ASKED):
        if row["role"] == "report":
            groups[(*(row[name] or "" for name in BLOCK), f"{row['pair']}/{row['triplet']}")].append(row)
    for (*_, objective), rows in groups.items():
        finals = [final_of(row).metrics for row in rows if row["status"] == "done"]
        if len(finals) > 1:
            yield _mean(objective, rows[0], finals, f"{len(finals)} of {len(rows)}")


def _mean(objective: str, row: Row, finals: list[Mapping[str, float]], of: str) -> ObjectiveMean:
    metrics: dict[str, float] = {}
    for name in sorted(set.intersection(*map(set, finals))):
        values = [final[name] for final in finals]
        metrics |= {f"mean/{name}": fmean(values), f"std/{name}": stdev(values)}
    tags = block_of(row) | {"goal.pair": row["pair"], "goal.triplet": row["triplet"]}
    tags |= {names.ROLE: names.ROLE_MEAN, names.SEEDS: of, **names.SOURCE}
    name = f"{objective} {title_of(row)}, mean of {of} seeds"
    return ObjectiveMean(objective, name, tags, LoggedStep(len(finals), metrics, int(1000 * time.time())))


def block_of(row: Row) -> dict[str, str]:
    """The tags that the runs of a row's block have in common."""
    return {tag: row[column] for tag, column in names.COLUMNS_OF_TAGS.items() if column in BLOCK and row[column]}


def title_of(row: Row) -> str:
    """What a row's block is called in MLflow."""
    return f"{' '.join(row[name] for name in ('backbone', 'point', 'grid') if row[name])} ({row['stage']})"
