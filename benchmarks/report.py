"""How long reading and reporting many runs takes: `python -m benchmarks.report [--runs 10000] [--blocks 10]`.

A tracking database of made-up runs (15 objectives in each block, as many seeds as fit) is written straight into the
tables of MLflow, which would take an hour. Then it is read and reported as `goal-sweep report` does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

from mlflow import MlflowClient

from analysis import aggregate, fetch_runs, write_report
from analysis import run_schema as schema
from analysis.statistics import COSTS, CURVES
from benchmarks.program import Report, Row, run

OPTIONS = {"runs": 10_000, "blocks": 10, "epochs": 30}
NAME = "benchmark"
STARTED = 1_700_000_000_000


def measure(given: argparse.Namespace, report: Report) -> None:
    """Make the database, time the reading and the report."""
    with tempfile.TemporaryDirectory() as scratch:
        seeds = -(-given.runs // (given.blocks * len(schema.OBJECTIVES)))
        uri = _database(Path(scratch), given.blocks, seeds, given.epochs)
        table = f"{given.blocks} blocks x 15 objectives x {seeds} seeds, {given.epochs} epochs"
        report.row(table, "read and aggregated", lambda: _timed(lambda: aggregate(fetch_runs(uri, NAME))))
        report.row(table, "read and reported", lambda: _timed(lambda: write_report(uri, NAME, Path(scratch, "report"))))


def _timed(call: Callable[[], object]) -> Row:
    began, worked = time.perf_counter(), sum(os.times()[:4])  # with that of the processes that draw
    call()
    return {"s": time.perf_counter() - began, "s of CPU": sum(os.times()[:4]) - worked}


def _database(folder: Path, blocks: int, seeds: int, epochs: int) -> str:
    """An MLflow database of finished runs; returns its URI."""
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment(NAME, artifact_location=(folder / "artifacts").as_uri())
    objectives = json.dumps(["/".join(objective) for objective in schema.OBJECTIVES])
    tags = {schema.TAG_ROLE: schema.ROLE_SWEEP, schema.TAG_SWEEP: NAME, schema.TAG_SEEDS: json.dumps([*range(seeds)]),
            schema.TAG_STAGES: '["frozen"]', schema.TAG_OBJECTIVES: objectives}  # fmt: skip
    client.create_run(experiment, run_name=NAME, tags=tags)
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        for number, (block, objective, seed) in enumerate(product(range(blocks), schema.OBJECTIVES, range(seeds))):
            _insert(database, experiment, f"{number:032x}", block, objective, seed, epochs)
    return uri


def _insert(
    database: sqlite3.Connection, experiment: str, run_id: str, block: int, objective: tuple[str, str], seed: int,
    epochs: int,
) -> None:  # fmt: skip
    """A run with its tags, parameters, and metrics by epoch and at the end."""

    def insert(table: str, rows: Sequence[Mapping[str, object]]) -> None:
        columns, marks = ", ".join(rows[0]), ", ".join("?" * len(rows[0]))
        database.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", [[*row.values()] for row in rows])

    pair, triplet, zero, own = *objective, "0" * 16, {"run_uuid": run_id}
    name = f"{pair}/{triplet} backbone{block} seed {seed} (frozen)"
    empty = dict.fromkeys(("source_name", "entry_point_name", "source_version"), "")
    times = {"start_time": STARTED, "end_time": STARTED + 1000, "experiment_id": experiment, "user_id": "benchmark"}
    kind = {"source_type": "UNKNOWN", "status": "FINISHED", "lifecycle_stage": "active", "artifact_uri": "/nowhere"}
    insert("runs", [own | {"name": name} | empty | times | kind])
    tags = {
        schema.TAG_ROLE: schema.ROLE_CELL, schema.TAG_PAIR: pair, schema.TAG_TRIPLET: triplet,
        schema.TAG_SEED: str(seed), schema.TAG_STAGE: "frozen", schema.TAG_BACKBONE: f"backbone{block}",
        schema.TAG_FRAMEWORK: "vsepp", schema.TAG_DATASET: "coco", schema.TAG_VARIANT: "paper",
        schema.TAG_STATUS: schema.STATUS_DONE, schema.TAG_CELL: run_id, schema.TAG_STAGE_KEY: run_id,
        schema.TAG_DATA_FINGERPRINT: zero, schema.TAG_GIT_COMMIT: zero, schema.TAG_SETTINGS_KEY: zero,
    }  # fmt: skip
    params = {f"stages.frozen.setting{number}": "1" for number in range(40)}
    for table, values in (("tags", tags), ("params", params)):
        insert(table, [{"key": key, "value": value, **own} for key, value in values.items()])
    noise, level = random.Random(run_id), 40 + schema.OBJECTIVES.index(objective) / 5
    points = [(key, epoch, level * epoch / epochs) for epoch in range(1, epochs + 1) for key in (*CURVES, *COSTS)]
    points += [(key, epochs, level) for key in schema.TEST_METRICS]
    metrics = [
        {"key": key, "value": value + noise.random(), "timestamp": STARTED + step, "step": step, "is_nan": 0, **own}
        for key, step, value in points
    ]
    insert("metrics", metrics)
    insert("latest_metrics", [*{row["key"]: row for row in metrics}.values()])


if __name__ == "__main__":
    sys.exit(run(__doc__, OPTIONS, measure))
