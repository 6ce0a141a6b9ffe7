"""`goal-sweep import`: an archive's results into a store, and from there into MLflow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from goal_core.errors import GoalError
from runners.store.archive import import_results, read_archive, write_sweep_file
from runners.store.store import Store
from runners.tracking.sync import SweepTracking, tracked_sweep
from runners.tracking.uri import resolve_uri

_WAIT = 600.0


def import_archive(file: Path, store: str, tracking_uri: str | None) -> Iterator[str]:
    """Check an archive, add its results to a store, and write their runs.

    Args:
        file: the archive.
        store: the results folder.
        tracking_uri: MLflow tracking URI; None takes the database in the store.

    Yields:
        What was done, a line each.

    Raises:
        GoalError: the archive is not whole or contradicts the store, or MLflow refuses.
    """
    archive = read_archive(file)
    target = Store(store)
    outcome = import_results(archive, target)
    yield f"{archive.config.name}: {len(outcome.added)} results added, {len(outcome.known)} were there already"
    if outcome.begun:
        yield f"  {len(outcome.begun)} left alone: begun in {target.root} and not finished; a launch continues them"
    uri = resolve_uri(tracking_uri or "sqlite:///{store}/mlflow.db", target.root)
    path = write_sweep_file(archive, target, uri)
    sweep = tracked_sweep(archive.config, archive.cells, archive.data_fingerprint, archive.weights)
    with SweepTracking(uri, sweep, target, archive.cells, live=False) as tracking:
        tracking.sync_all(wait=_WAIT)
        if tracking.trouble:
            raise GoalError(f"the results are imported, but {tracking.trouble}")
    yield f"report: goal-sweep report {path}"
