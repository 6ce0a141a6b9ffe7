"""The runs behind each cell of a table: their numbers, and where their log and checkpoint are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

import pandas as pd

from analysis import run_schema as schema
from analysis.blocks import Block
from analysis.statistics import of_block
from analysis.tracking import SweepRuns, run_url

Locate = Callable[[str, str, str], Mapping[str, Path]]
"""Cell id, stage and stage key to those of the training's files that exist: ``log`` and ``checkpoint``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file in the results folder."""

    text: str
    """Its path in the results folder."""
    link: str
    """Its path from the report's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One seed of a cell."""

    seed: int
    state: str
    """``done``, or why there is no number."""
    values: Mapping[str, float]
    """By the metric's key; empty if the run does not count."""
    url: str = ""
    """The run in MLflow; empty without a run."""
    log: StoredFile | None = None
    checkpoint: StoredFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRuns:
    """The runs of one block."""

    block: Block
    cells: Mapping[tuple[str, str], tuple[RunRow, ...]]
    """By ``(pair, triplet)``, in table order; seeds in order."""


def runs_of(
    sweep: SweepRuns, blocks: Iterable[Block], report_folder: Path, locate: Locate | None = None
) -> tuple[BlockRuns, ...]:
    """The runs of each block that has a number.

    Args:
        sweep: the sweep and its runs.
        blocks: the report's blocks.
        report_folder: where the page will be, from which the files are linked.
        locate: finds the files of a training; None if the results folder is not at hand.
    """
    found = []
    for block in blocks:
        if block.is_empty:
            continue
        runs = of_block(sweep.runs[sweep.runs["requested"]], block.key)
        parts = {key: part for key, part in runs.groupby(["pair", "triplet"])}
        grid = next(iter(block.grids.values()))
        cells = {}
        for key, cell in grid.cells.items():
            if cell.requested:
                rows = _rows(parts[key], sweep.tracking_uri, report_folder, locate) if key in parts else []
                there = {row.seed for row in rows}
                absent = [RunRow(seed=gap.seed, state=gap.status, values={}) for gap in cell.gaps]
                cells[key] = tuple(sorted([*rows, *(a for a in absent if a.seed not in there)], key=lambda r: r.seed))
        found.append(BlockRuns(block=block, cells=cells))
    return tuple(found)


def _rows(runs: pd.DataFrame, tracking_uri: str, report_folder: Path, locate: Locate | None) -> list[RunRow]:
    rows = []
    for run in runs.to_dict("records"):
        counts = not run["excluded"]
        files = locate(str(run["cell"]), str(run["stage"]), str(run["stage_key"])) if locate else {}
        stored = {name: _stored(path, report_folder) for name, path in files.items()}
        reason = f"{run['excluded']}: {run['reason']}" if run["reason"] else str(run["excluded"])
        rows.append(
            RunRow(
                seed=int(run["seed"]),
                state="done" if counts else reason,
                values={m.key: float(run[m.test]) for m in schema.METRICS.values()} if counts else {},
                url=run_url(tracking_uri, str(run["experiment_id"]), str(run["run_id"])),
                log=stored.get("log"),
                checkpoint=stored.get("checkpoint"),
            )
        )
    return rows


def _stored(path: Path, report_folder: Path) -> StoredFile:
    # STORE/cells/CELL/TRAINING/FILE
    text = PurePath(*path.parts[-4:]).as_posix()
    return StoredFile(text=text, link=PurePath(os.path.relpath(path.resolve(), report_folder.resolve())).as_posix())
