"""The trail of a search: `tuning.json`, which the report reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

from runners.launch.tuning.replay import Search
from sweeps import Candidate, ResolvedSweep
from sweeps.axes import AxisValue
from sweeps.tuning.space import Dimension, names_of

FORMAT = 1


def trail_of(sweep: ResolvedSweep, search: Search) -> dict[str, Any]:
    """What was tried and what was chosen. Equal searches give equal content.

    Args:
        sweep: the sweep.
        search: its search.

    Returns:
        The content of ``tuning.json``: the block of the sweep file, and for each backbone and objective its candidates
        in the order of their numbers, with their values by name, their scores, and the number that was chosen.
    """
    config, tune = sweep.config, sweep.config.tune
    assert tune is not None
    early = tune.stop_early
    return {
        "format": FORMAT,
        "metric": tune.metric,
        "budget": tune.budget,
        "search": tune.search,
        "search_seed": tune.search_seed,
        "seeds": list(tune.seeds),
        "stop_early": None if early is None else {"first": early.first, "factor": early.factor},
        "space": [
            _setting(Dimension(key=key, domain=domain), names_of(tune)[key]) for key, domain in tune.space.items()
        ],
        "blocks": [
            {
                "dataset": config.data.name,
                "framework": config.model.framework,
                "backbone": model.backbone.name,
                "objectives": [_objective(sweep, search, model.backbone.name, *name) for name in sweep.spaces],
            }
            for model in config.model.models
        ],
    }


def describe(sweep: ResolvedSweep, search: Search) -> str:
    """What a sweep does now, in words."""
    tune = sweep.config.tune
    assert tune is not None
    count, ended = len(search.candidates), len(search.outcomes)
    if search.is_over:
        changed = sum(bool(one.values) for one in search.chosen)
        return (
            f"search over: {changed} of {len(search.chosen)} objectives get other constants than the sweep's own; "
            "the default and the tuned grid report"
        )
    each = Counter(one.study for one in search.candidates).values()
    made = " to ".join(str(number) for number in sorted({min(each), max(each)}))
    rungs = sorted({one.until for one in search.candidates if one.until and search.of(one) is None})
    until = f", to epoch {rungs[0]}" if rungs else ""
    return f"search {tune.search}: {made} of {tune.budget} candidates per objective{until}, {ended} of {count} ended"


def _setting(one: Dimension, name: str) -> dict[str, Any]:
    own: dict[str, Any] = {"key": one.key, "name": name, "kind": one.domain.kind}
    if one.domain.values:
        return own | {"values": [_plain(value) for value in one.domain.values]}
    low, high = one.domain.bounds
    return own | {"low": low, "high": high}


def _objective(sweep: ResolvedSweep, search: Search, backbone: str, pair: str, triplet: str) -> dict[str, Any]:
    def is_its(one: Candidate) -> bool:
        return one.study == (backbone, pair, triplet)

    return {
        "pair": pair,
        "triplet": triplet,
        "names": list(sweep.spaces[pair, triplet].names),
        "candidates": [_candidate(sweep, search, one) for one in filter(is_its, search.candidates)],
        "chosen": next((one.number for one in filter(is_its, search.chosen)), None),
    }


def _candidate(sweep: ResolvedSweep, search: Search, one: Candidate) -> dict[str, Any]:
    outcome, shown = search.of(one), sweep.spaces[one.pair, one.triplet].shown(one.values)
    return {
        "number": one.number,
        "values": {name: _plain(value) for name, value in shown.items()},
        "default": not one.values,
        "score": None if outcome is None else outcome.score,
        "scores": {} if outcome is None else {str(seed): score for seed, score in sorted(outcome.scores.items())},
        "epochs": 0 if outcome is None else outcome.epochs,
        "stopped": one.until != 0 and outcome is not None,
        "failed": (outcome.failed or None) if outcome is not None else None,
    }


def _plain(value: AxisValue) -> Any:
    return list(value) if isinstance(value, tuple) else value
