"""The one rule for "within noise" in the terminal. This module calls `analysis`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from goal_sweep import analysis
from goal_sweep.goal_core.basics.atomic import replace_bytes
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.launch.view.grids import Judgement
from goal_sweep.runners.store.storage.place import cache_folder
from goal_sweep.sweeps import content_id

_RULE = ("comparison.py", "spread.py")
"""The modules of `analysis.statistics` that the answer depends on."""


def judge(values: Mapping[tuple[str, str], Mapping[int, float]]) -> Judgement | None:
    """Find the best of a grid and what is within noise of it.

    The answer is remembered, because pandas, scipy and the simulation of the rule take longer than all else that
    `status` does.

    Args:
        values: of each objective (pair, triplet), the points of each seed that is done.

    Returns:
        None where no objective has two seeds.
    """
    if all(len(of_seed) < 2 for of_seed in values.values()):
        return None
    rows = [[*objective, seed, value] for objective, of_seed in values.items() for seed, value in of_seed.items()]
    rule = [(Path(analysis.__path__[0]) / "statistics" / name).read_text(encoding="utf-8") for name in _RULE]
    path = cache_folder() / "within-noise" / content_id([rows, rule])
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(path.read_bytes())
        return Judgement(best=tuple(known["best"]), level=frozenset(map(tuple, known["level"])))
    found = _compared(values)
    with contextlib.suppress(OSError, GoalError):  # where nothing can be written, the next command judges again
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, json.dumps({"best": found.best, "level": sorted(found.level)}).encode())
    return found


def _compared(values: Mapping[tuple[str, str], Mapping[int, float]]) -> Judgement:
    import pandas as pd

    from goal_sweep.analysis.statistics.comparison import compare

    compared = compare(pd.DataFrame({objective: pd.Series(of_seed) for objective, of_seed in values.items()}))
    assert compared.best is not None
    return Judgement(best=compared.best, level=compared.level)
