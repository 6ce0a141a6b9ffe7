"""How long reading and reporting ten thousand runs takes.

    python -m benchmarks.report [--runs 10000] [--blocks 10] [--epochs 30]

A tracking database is made of made-up runs (15 objectives in each block, as many seeds as fit), written straight into
MLflow's tables, for writing them through MLflow would take an hour. Then it is read and reported as `goal-sweep report`
does. Must stay below 60 s on two cores.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import random
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlflow import MlflowClient

from analysis import aggregate, fetch_runs, write_report
from analysis import run_schema as schema
from analysis.statistics import COSTS, CURVES
from benchmarks.machine import print_machine

NAME = "benchmark"
NUM_PARAMS = 40


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the database, time the reading and the report, print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--profile", action="store_true", help="print where the report's time goes")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        seeds = -(-given.runs // (given.blocks * len(schema.OBJECTIVES)))
        uri, runs = make_database(Path(folder), given.blocks, seeds, given.epochs)
        print(f"{runs} runs: {given.blocks} blocks x 15 objectives x {seeds} seeds, {given.epochs} epochs each")
        print_machine()
        began, worked = time.perf_counter(), time.process_time()
        blocks = aggregate(fetch_runs(uri, NAME))
        shown("read and aggregated", began, worked)
        assert sum(cell.n for block in blocks for cell in block.grids[schema.RSUM.key].cells.values()) == runs
        profiler = cProfile.Profile()
        began, worked = time.perf_counter(), time.process_time()
        if given.profile:
            profiler.enable()
        result = write_report(uri, NAME, Path(folder, "report"))
        profiler.disable()
        shown("read and reported", began, worked)
        size = sum(path.stat().st_size for path in result.files) / 1e6
        print(
            f"{len(result.files)} files, {size:.0f} MB; {result.num_counted} of {result.num_expected} results counted"
        )
        if given.profile:
            pstats.Stats(profiler).sort_stats("cumulative").print_stats(35)


def shown(what: str, began: float, worked: float) -> None:
    """Print wall clock and CPU seconds since ``began`` and ``worked``."""
    print(f"{what}: {time.perf_counter() - began:.1f} s ({time.process_time() - worked:.1f} s of CPU)", flush=True)


def make_database(folder: Path, num_blocks: int, num_seeds: int, num_epochs: int) -> tuple[str, int]:
    """An MLflow database of finished runs; returns its URI and how many runs it holds."""
    path = folder / "mlflow.db"
    uri = f"sqlite:///{path}"
    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment(NAME, artifact_location=(folder / "artifacts").as_uri())
    tags = {schema.TAG_ROLE: schema.ROLE_SWEEP, schema.TAG_SWEEP: NAME}
    tags |= {schema.TAG_SEEDS: json.dumps(list(range(num_seeds))), schema.TAG_STAGES: '["frozen"]'}
    tags |= {schema.TAG_OBJECTIVES: json.dumps(["/".join(objective) for objective in schema.OBJECTIVES])}
    client.create_run(experiment, run_name=NAME, tags=tags)
    cells = [
        (b, *objective, seed) for b in range(num_blocks) for objective in schema.OBJECTIVES for seed in range(num_seeds)
    ]
    with sqlite3.connect(path) as database:
        for start in range(0, len(cells), 500):
            write_runs(database, experiment, cells[start : start + 500], num_epochs)
    client._tracking_client.store.engine.dispose()
    return uri, len(cells)


def write_runs(
    database: sqlite3.Connection, experiment: str, cells: list[tuple[int, str, str, int]], num_epochs: int
) -> None:
    """Insert runs with their tags, parameters, epochs and final metrics."""
    for block, pair, triplet, seed in cells:
        run_id, now = uuid.uuid4().hex, 1_700_000_000_000
        name = f"{pair}/{triplet} backbone{block} seed {seed} (frozen)"
        row = {
            "run_uuid": run_id, "name": name, "source_type": "UNKNOWN", "source_name": "", "entry_point_name": "",
            "user_id": "benchmark", "status": "FINISHED", "start_time": now, "end_time": now + 1000,
            "source_version": "", "lifecycle_stage": "active", "artifact_uri": "/nowhere", "experiment_id": experiment,
        }  # fmt: skip
        insert(database, "runs", [row])
        insert(
            database,
            "tags",
            [{"key": k, "value": v, "run_uuid": run_id} for k, v in tags_of(block, pair, triplet, seed)],
        )
        params = [{"key": f"stages.frozen.setting{n}", "value": "1", "run_uuid": run_id} for n in range(NUM_PARAMS)]
        insert(database, "params", params)
        epochs, latest = [], {}
        for key, step, value in metrics_of(block, pair, triplet, seed, num_epochs):
            epochs.append(
                {"key": key, "value": value, "timestamp": now + step, "step": step, "is_nan": 0, "run_uuid": run_id}
            )
            latest[key] = epochs[-1]
        insert(database, "metrics", epochs)
        insert(database, "latest_metrics", list(latest.values()))


def tags_of(block: int, pair: str, triplet: str, seed: int) -> Iterator[tuple[str, str]]:
    """A run's tags."""
    yield schema.TAG_ROLE, schema.ROLE_CELL
    known = {
        schema.TAG_PAIR: pair, schema.TAG_TRIPLET: triplet, schema.TAG_SEED: str(seed), schema.TAG_STAGE: "frozen",
        schema.TAG_BACKBONE: f"backbone{block}", schema.TAG_FRAMEWORK: "vsepp", schema.TAG_DATASET: "coco",
        schema.TAG_VARIANT: "paper", schema.TAG_STATUS: schema.STATUS_DONE,
    }  # fmt: skip
    yield from known.items()
    key = f"{block} {pair} {triplet} {seed}"
    yield from ((tag, key) for tag in (schema.TAG_CELL, schema.TAG_STAGE_KEY))
    yield from (
        (tag, "0" * 16) for tag in (schema.TAG_DATA_FINGERPRINT, schema.TAG_GIT_COMMIT, schema.TAG_SETTINGS_KEY)
    )


def metrics_of(block: int, pair: str, triplet: str, seed: int, num_epochs: int) -> Iterator[tuple[str, int, float]]:
    """A run's metrics by epoch, and its final ones."""
    noise = random.Random(f"{block} {pair} {triplet} {seed}")
    level = 40 + schema.OBJECTIVES.index((pair, triplet)) / 5
    for epoch in range(1, num_epochs + 1):
        for key in (*CURVES, *COSTS):
            yield key, epoch, level * epoch / num_epochs + noise.random()
    for key in schema.TEST_METRICS:
        yield key, num_epochs, level + noise.random()


def insert(database: sqlite3.Connection, table: str, rows: list[dict[str, object]]) -> None:
    """Insert rows of equal columns."""
    columns = ", ".join(rows[0])
    marks = ", ".join("?" * len(rows[0]))
    database.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", [tuple(row.values()) for row in rows])


if __name__ == "__main__":
    main()
