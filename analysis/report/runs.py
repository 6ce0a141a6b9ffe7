"""The trainings behind each cell of a table: their numbers, and where their log, checkpoint and MLflow run are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import quote

from analysis.blocks import Block, Objective
from analysis.report.inputs import Inputs
from sweeps.results import METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file in the store."""

    text: str
    """Its path in the store."""
    link: str
    """Its path from the report's folder."""


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
    log: StoredFile | None
    checkpoint: StoredFile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRuns:
    """The trainings of one block."""

    block: Block
    cells: Mapping[Objective, tuple[RunRow, ...]]
    """By ``(pair, triplet)``, in table order; seeds in order."""


def runs_of(inputs: Inputs, report_folder: Path, mlflow_page: str) -> tuple[BlockRuns, ...]:
    """The trainings of each block that has a number.

    Args:
        inputs: the report's inputs.
        report_folder: where the page will be, from which the files are linked.
        mlflow_page: the address of the sweep's experiment in MLflow; empty without one.
    """
    results, made = inputs.results, []
    for block in inputs.blocks:
        if not block.is_empty:
            cells: dict[Objective, list[RunRow]] = {key: [] for key, cell in block.cells.items() if cell.requested}
            for run in results.of_block(results.runs, block.key).sort_values("seed").to_dict("records"):
                counts, started = run["state"] == "done", run["attempts"] > 0
                files = [_stored(results.folder, str(run[name]), report_folder) for name in ("log", "checkpoint")]
                cells[str(run["pair"]), str(run["triplet"])].append(
                    RunRow(
                        seed=int(run["seed"]),
                        state=": ".join(filter(None, (str(run["state"]), str(run["reason"])))),
                        values={m.key: float(run[m.test]) for m in METRICS.values()} if counts else {},
                        url=_run_url(mlflow_page, str(run["training"])) if mlflow_page and started else "",
                        log=files[0],
                        checkpoint=files[1],
                    )
                )
            made.append(BlockRuns(block=block, cells={key: tuple(rows) for key, rows in cells.items()}))
    return tuple(made)


def _run_url(mlflow_page: str, training: str) -> str:
    """Where MLflow shows the run of a training: its experiment, filtered by the training's key."""
    of_training = quote(f"tags.`goal.stage_key` = '{training}'")
    return f"{mlflow_page}/runs?workflowType=machine_learning&searchFilter={of_training}"


def _stored(store: Path | None, path: str, report_folder: Path) -> StoredFile | None:
    if store is None or not path or not (store / path).is_file():
        return None
    link = os.path.relpath((store / path).resolve(), report_folder.resolve())
    return StoredFile(text=path, link=PurePath(link).as_posix())
