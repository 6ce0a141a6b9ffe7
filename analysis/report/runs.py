"""The trainings behind each cell of a table: their numbers, and where their log, checkpoint and MLflow run are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import quote

from goal_sweep.analysis.blocks import Block, Objective
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.sweeps.results import METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One seed of a cell."""

    seed: int
    state: str
    """``done``, or why there is no number."""
    values: Mapping[str, float]
    """By the metric's key; empty if the training does not count."""
    url: str
    """The run in MLflow; empty without one."""
    files: Mapping[str, str]
    """``log`` and ``checkpoint``, as their paths in the store."""
    links: Mapping[str, str]
    """The paths of those that exist, from the report's folder."""


BlockRuns = Mapping[Objective, list[RunRow]]
"""The trainings of a block by ``(pair, triplet)``, in table order; seeds in order."""


def runs_of(inputs: Inputs, report_folder: Path, mlflow_page: str) -> list[tuple[Block, BlockRuns]]:
    """The trainings of each block of which any was started, failed ones too.

    Args:
        inputs: the report's inputs.
        report_folder: where the page will be, from which the files are linked.
        mlflow_page: the address of the sweep's experiment in MLflow; empty without one.
    """
    results, made = inputs.results, list[tuple[Block, BlockRuns]]()
    for block in inputs.blocks:
        runs = results.of_block(results.runs, block.key)
        if not (runs["attempts"] > 0).any():
            continue
        cells: dict[Objective, list[RunRow]] = {key: [] for key, cell in block.cells.items() if cell.requested}
        for run in runs.sort_values("seed").to_dict("records"):
            counts, started = run["state"] == "done", run["attempts"] > 0
            files = {name: str(run[name]) for name in ("log", "checkpoint")}
            row = RunRow(
                seed=int(run["seed"]),
                state=": ".join(filter(None, (str(run["state"]), str(run["reason"])))),
                values={m.key: float(run[m.test]) for m in METRICS.values()} if counts else {},
                url=_run_url(mlflow_page, str(run["training"])) if mlflow_page and started else "",
                files=files,
                links={
                    name: link for name, path in files.items() if (link := _link(results.folder, path, report_folder))
                },
            )
            cells[str(run["pair"]), str(run["triplet"])].append(row)
        made.append((block, cells))
    return made


def _run_url(mlflow_page: str, training: str) -> str:
    """Where MLflow shows the run of a training: its experiment, filtered by the training's key."""
    of_training = quote(f"tags.`goal.stage_key` = '{training}'")
    return f"{mlflow_page}/runs?workflowType=machine_learning&searchFilter={of_training}"


def _link(store: Path | None, path: str, report_folder: Path) -> str:
    if store is None or not path or not (store / path).is_file():
        return ""
    return PurePath(os.path.relpath((store / path).resolve(), report_folder.resolve())).as_posix()
