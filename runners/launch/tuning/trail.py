"""The trail of a search: `tuning.json`, which the report reads."""

from __future__ import annotations

from typing import Any

from sweeps import ResolvedSweep, Trail, to_mapping
from sweeps.tuning import Dimension, dimensions_of

FORMAT = 1


def trail_of(sweep: ResolvedSweep) -> dict[str, Any]:
    """What was tried and what was chosen. Equal searches give equal content.

    Args:
        sweep: the sweep with its trails.

    Returns:
        The content of ``tuning.json``: the block of the sweep file, and for each backbone and objective its candidates
        in the order of their numbers, with their values by name, their scores, and the number that was chosen.
    """
    config, tune = sweep.config, sweep.config.tune
    assert tune is not None
    own = to_mapping(tune)
    return {
        "format": FORMAT,
        **{name: own[name] for name in ("metric", "budget", "search", "search_seed", "seeds", "stop_early")},
        "space": [_setting(name, dimension) for name, dimension in dimensions_of(tune).items()],
        "blocks": [
            {
                "dataset": config.data.name,
                "framework": config.model.framework,
                "backbone": model.backbone.name,
                "objectives": [_objective(trail) for trail in sweep.trails if trail.backbone == model.backbone.name],
            }
            for model in config.model.models
        ],
    }


def _setting(name: str, dimension: Dimension) -> dict[str, Any]:
    own: dict[str, Any] = {"key": dimension.key, "name": name, "kind": dimension.domain.kind}
    if dimension.domain.values:
        return own | {"values": to_mapping(dimension.domain.values)}
    low, high = dimension.domain.bounds
    return own | {"low": low, "high": high}


def _objective(trail: Trail) -> dict[str, Any]:
    candidates = [to_mapping(own) | {"stopped": own.stopped, "failed": own.failed or None} for own in trail.candidates]
    return {**to_mapping(trail), "candidates": candidates}
