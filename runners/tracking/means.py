"""One run for each objective of a block: the mean and the spread over its seeds, for MLflow's table of runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from goal_sweep.runners.results import ResultsTable
from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.values import LoggedStep, Row, final_of
from goal_sweep.sweeps import content_id
from goal_sweep.sweeps.results import TEST, VAL

_BLOCK = ("dataset", "framework", "backbone", "stage", "variant", "point", "grid", "data_fingerprint")
_ASKED = (*_BLOCK, "pair", "triplet", "status", "seed", "role", "best_epoch", "ended", TEST, VAL)


@dataclass(frozen=True, slots=True)
class ObjectiveMean:
    """What the run of an objective shows."""

    name: str
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
            groups[(*(row[name] or "" for name in _BLOCK), f"{row['pair']}/{row['triplet']}")].append(row)
    for (*_, objective), rows in groups.items():
        finals = [final_of(row).metrics for row in rows if row["status"] == "done"]
        if len(finals) > 1:
            yield _mean(objective, rows[0], finals, f"{len(finals)} of {len(rows)}")


def _mean(objective: str, row: Row, finals: list[Mapping[str, float]], of: str) -> ObjectiveMean:
    metrics: dict[str, float] = {}
    for name in sorted(set.intersection(*map(set, finals))):
        values = [final[name] for final in finals]
        metrics |= {f"mean/{name}": fmean(values), f"std/{name}": stdev(values)}
    block: Mapping[str, Any] = {name: row[name] for name in (*_BLOCK, "pair", "triplet") if row[name]}
    tags = {tag: str(block[column]) for tag, column in names.COLUMNS_OF_TAGS.items() if column in block}
    tags |= {names.ROLE: names.ROLE_MEAN, names.OBJECTIVE: objective, names.SEEDS: of, **names.SOURCE}
    place = " ".join(str(block[name]) for name in ("backbone", "point", "grid") if name in block)
    name = f"{objective} {place} ({row['stage']}), mean of {of} seeds"
    return ObjectiveMean(name, tags, LoggedStep(len(finals), metrics, int(1000 * time.time())))
