"""What changed since earlier launches of a sweep: settings, data and code, by its results table."""

from __future__ import annotations

from collections.abc import Iterator

from goal_sweep.runners.results.rows import DIFF_DIGITS
from goal_sweep.runners.results.table import ResultsTable, lost_results
from goal_sweep.runners.store.provenance import gather
from goal_sweep.sweeps import ResolvedSweep
from goal_sweep.sweeps.identity import flat_text
from goal_sweep.sweeps.results import Requested

_MAKE_MODELS = ("data", "model", "objectives", "seeds", "stages", "precision", "axes", "tune")
"""The settings that make a sweep's models."""
_MAX_SHOWN = 5


def edits_since(before: ResultsTable | None, sweep: ResolvedSweep) -> Iterator[str]:
    """What changed since an earlier launch of the sweep left its table, a line each."""
    if before is None:
        return
    if lost := lost_results(before, sweep):
        then, now = _settings(before.header.requested), _settings(sweep.requested)
        differ = [name for name in sorted(then | now) if then.get(name) != now.get(name)]
        shown = [f"{name} {then.get(name)} -> {now.get(name)}" for name in differ[:_MAX_SHOWN]]
        shown += [f"and {len(differ) - _MAX_SHOWN} more"] if len(differ) > _MAX_SHOWN else []
        yield (
            f"edited since an earlier launch: {', '.join(shown) or 'the code of objectives'}; {lost} finished "
            "trainings are not of this sweep any more. Their results are kept, but its report and MLflow page leave "
            "them out; under another name, both sweeps keep theirs"
        )
    if git_diff := gather().git_diff_sha256[:DIFF_DIGITS]:
        rows = before.rows(("status", "git_diff"))
        if without := sum(row["status"] == "done" and row["git_diff"] != git_diff for row in rows):
            yield (
                f"the source tree has uncommitted changes that {without} finished trainings ran without; another "
                "--store repeats them"
            )


def _settings(requested: Requested) -> dict[str, str]:
    """What makes a sweep's models, as text by dotted name."""
    config = {name: value for name, value in requested.config.items() if name in _MAKE_MODELS}
    stages = {stage["name"]: stage for stage in config["stages"]}
    made = {**config, "stages": stages, "data_fingerprint": requested.data_fingerprint, "weights": requested.weights}
    return dict(flat_text(made))
