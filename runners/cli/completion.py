"""What the shell completes: sweeps, and the objectives of one. No plugin of a sweep runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import typer

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.evaluation.metrics import OBJECTIVES
from goal_sweep.goal_core.objectives.variants import objective_name
from goal_sweep.sweeps import SweepConfig
from goal_sweep.sweeps.reading.load import is_named_sweep, list_shipped, load_places


def sweeps(incomplete: str) -> list[str]:
    """Sweep files, and the names of those that ship with goal-sweep. Without any, the shell completes files."""
    begun = Path(incomplete or ".")
    folder = begun if incomplete.endswith("/") or not incomplete else begun.parent
    files = sorted(str(path) for suffix in ("yaml", "yml") for path in folder.glob(f"*.{suffix}"))
    return _beginning([*files, *list_shipped()], incomplete)


def models(ctx: typer.Context, incomplete: str) -> list[str]:
    """As `sweeps`; after a sweep, its objectives."""
    words = [*(ctx.params.get("model") or ctx.params.get("words") or ())]
    return _objectives(words[-1], incomplete) if words and is_named_sweep(words[-1]) else sweeps(incomplete)


def objectives(ctx: typer.Context, incomplete: str) -> list[str]:
    """The objectives of the sweep that the command line names."""
    return _objectives(str(ctx.params.get("sweep")), incomplete)


def _objectives(sweep: str, incomplete: str) -> list[str]:
    names = OBJECTIVES
    with suppress(GoalError, OSError):  # of a sweep that cannot be read, or not without its plugins
        if isinstance(config := load_places(sweep), SweepConfig):
            names = config.objectives.names
    return _beginning((objective_name(*name) for name in names), incomplete)


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
