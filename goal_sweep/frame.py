"""The results of a sweep as a frame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from goal_sweep.goal_core.basics.errors import warn

if TYPE_CHECKING:
    from goal_sweep.analysis.results import SweepResults


def results(
    sweep: str | os.PathLike[str],
    *,
    by_epoch: bool = False,
    set: Sequence[str] = (),
    store: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Read the results of a sweep: those that a report is made of.

    Args:
        sweep: the sweep file, or the name of one that ships.
        by_epoch: give the course of the trainings instead: a row for each training and epoch, with ``training``,
            ``epoch`` and every metric, such as ``train/loss`` and ``val/rsum``.
        set: as ``--set`` of the commands, such as ``seeds=[1]``.
        store: the results folder, if it is not the sweep's own.

    Returns:
        A row for each training of the sweep as it was last launched, done or not (``status``), candidates of a search
        included (``role``); what its file asks for since then has none. The columns are those of ``results.parquet``
        but for those by epoch: ``setting/stages.frozen.lr`` and the other settings, as numbers where all of them are;
        ``val/rsum`` and the like of the selected epoch, ``test/rsum`` and the like of the same weights, in percent;
        ``seconds``; ``checkpoint``, as a path of this machine where the store is one.

    Raises:
        GoalError: the sweep file is wrong, or there are no results.
    """
    from goal_sweep.runners.cli.options import SweepArguments
    from goal_sweep.runners.cli.reports import report_target, warnings

    arguments = SweepArguments(os.fspath(sweep), [*set], place_of(store))
    found = (target := report_target(arguments.sweep, arguments.overrides)).results()
    for line in warnings(target, found):
        warn(line)
    return frame_of(found, by_epoch=by_epoch)


def place_of(store: str | os.PathLike[str] | None) -> str | None:
    """The results folder of a call; without one that of `GOAL_SWEEP_STORE`, as for the commands."""
    given = store or os.environ.get("GOAL_SWEEP_STORE")
    return os.fspath(given) if given else None


def frame_of(found: SweepResults, *, by_epoch: bool = False) -> pd.DataFrame:
    """Results as the frame of `results`."""
    from goal_sweep.analysis.results import with_numbers
    from goal_sweep.sweeps.results import EPOCHS

    frame = pd.concat([part for part in (found.runs, found.candidates) if len(part)] or [found.runs]).sort_index()
    if by_epoch:
        names = [name.removeprefix(EPOCHS) for name in found.table.column_names if name.startswith(EPOCHS)]
        return found.epochs(frame, [name for name in names if name != "epoch"])
    frame = with_numbers(frame).drop(columns="state")
    places = zip(frame.pop("store"), frame["checkpoint"], strict=True)
    frame["checkpoint"] = [os.path.join(store, path) if path else "" for store, path in places]
    return frame.reset_index(drop=True)
