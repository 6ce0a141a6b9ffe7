"""One run for each objective of a block: the mean and the spread over its seeds, for MLflow's table of runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from runners.results import ResultsTable
from runners.tracking import schema as names
from sweeps import content_id
from sweeps.results import TEST, VAL

_BLOCK = ("dataset", "framework", "backbone", "stage", "variant", "point", "grid", "data_fingerprint")
_GROUP = (*_BLOCK, "pair", "triplet")


@dataclass(frozen=True, slots=True)
class ObjectiveMean:
    """What the run of an objective shows."""

    key: str
    """Different for every objective of every block."""
    name: str
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    """``mean/NAME`` and ``std/NAME`` (over n - 1) of each final metric that all finished seeds have."""
    num_seeds: int
    digest: str


def objective_means(table: ResultsTable) -> Iterator[ObjectiveMean]:
    """The means of a results table; objectives with fewer than two finished seeds have none.

    Args:
        table: the sweep's table.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in table.rows((*_GROUP, "status", "seed", "role", TEST, VAL)):
        if row["role"] == "report":
            groups[tuple(row[name] or "" for name in _GROUP)].append(row)
    for group, rows in groups.items():
        done = [row for row in rows if row["status"] == "done"]
        if len(done) > 1:
            yield _mean(dict(zip(_GROUP, group, strict=True)), done, len(rows))


def _mean(group: Mapping[str, str], done: list[dict[str, Any]], asked: int) -> ObjectiveMean:
    objective, of = f"{group['pair']}/{group['triplet']}", f"{len(done)} of {asked}"
    metrics: dict[str, float] = {}
    for name in (name for name in done[0] if name.startswith((TEST, VAL))):
        values = [row[name] for row in done]
        if all(value is not None and math.isfinite(value) for value in values):
            shown = name if name.startswith(TEST) else names.SELECTED + name.removeprefix(VAL)
            metrics |= {f"mean/{shown}": fmean(values), f"std/{shown}": stdev(values)}
    own = {tag: group[column] for tag, column in names.COLUMNS_OF_TAGS.items() if group.get(column)}
    tags = own | {names.ROLE: names.ROLE_MEAN, names.OBJECTIVE: objective, names.SEEDS: of, **names.SOURCE}
    places = " ".join(filter(None, (group["backbone"], group["point"], group["grid"])))
    return ObjectiveMean(
        key=content_id([*group.values()]),
        name=f"{objective} {places} ({group['stage']}), mean of {of} seeds",
        tags=tags,
        metrics=metrics,
        num_seeds=len(done),
        digest=content_id([tags, metrics]),
    )
