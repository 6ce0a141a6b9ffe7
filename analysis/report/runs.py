"""The trainings behind each cell of a table: their numbers, and where their log, checkpoint and MLflow run are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import quote

from goal_sweep.analysis.blocks import BlockResults, Objective
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.goal_core.evaluation.metrics import METRICS


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
    """From the report's folder; empty where there is no such file."""


BlockRuns = Mapping[Objective, list[RunRow]]
"""By ``(pair, triplet)``, in table order; seeds in order."""


def runs_of(inputs: Inputs, report_folder: Path, mlflow_page: str) -> list[tuple[BlockResults, BlockRuns]]:
    """The trainings of each block of which any was started, failed ones too; as of `write_report`."""
    results, made = inputs.results, list[tuple[BlockResults, BlockRuns]]()
    for block in inputs.blocks:
        runs = results.of_block(results.runs, block.key).sort_values("seed")
        if not (runs["attempts"] > 0).any():
            continue
        cells: dict[Objective, list[RunRow]] = {key: [] for key, cell in block.cells.items() if cell.requested}
        for run in runs.to_dict("records"):
            files = {name: str(run[name]) for name in ("log", "checkpoint")}
            of_training = quote(f"tags.`goal.stage_key` = '{run['training']}'")
            url = f"{mlflow_page}/runs?workflowType=machine_learning&searchFilter={of_training}"
            row = RunRow(
                seed=int(run["seed"]),
                state=": ".join(filter(None, (str(run["state"]), str(run["reason"])))),
                values={m.key: float(run[m.test]) for m in METRICS.values()} if run["state"] == "done" else {},
                url=url if mlflow_page and run["attempts"] > 0 else "",
                files=files,
                links={name: _link(run["store"], path, report_folder) for name, path in files.items()},
            )
            cells[str(run["pair"]), str(run["triplet"])].append(row)
        made.append((block, cells))
    return made


def _link(store: str, path: str, report_folder: Path) -> str:
    file = Path(store, path).resolve()
    if not (store and path and file.is_file()):
        return ""
    return PurePath(os.path.relpath(file, report_folder.resolve())).as_posix()
