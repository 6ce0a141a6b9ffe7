"""How long reading and reporting many trainings takes: `python -m benchmarks.report [--runs 10000] [--blocks 10]`.

A results table of made-up trainings (15 objectives in each block, as many seeds as fit) is read and reported as
`goal-sweep report` does.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.program import Report, Row, run
from goal_sweep.analysis.report.writing import write_report
from goal_sweep.analysis.results import read_results
from goal_sweep.analysis.statistics.aggregation import aggregate
from tests.helpers.results_cases import large_table

OPTIONS = {"runs": 10_000, "blocks": 10, "epochs": 30}


def measure(given: argparse.Namespace, report: Report) -> None:
    """Make the table, time the reading and the report."""
    content = large_table(given.runs, given.blocks, given.epochs)
    results = read_results(content, "benchmark")
    table = f"{len(results.runs)} trainings in {given.blocks} blocks, {given.epochs} epochs"
    report.row(table, "read and aggregated", lambda: _timed(lambda: aggregate(read_results(content, "benchmark"))))
    with tempfile.TemporaryDirectory() as folder:
        report.row(table, "reported", lambda: _timed(lambda: write_report(results, Path(folder))))


def _timed(call: Callable[[], object]) -> Row:
    began, worked = time.perf_counter(), sum(os.times()[:4])  # with that of the processes that draw
    call()
    return {"s": time.perf_counter() - began, "s of CPU": sum(os.times()[:4]) - worked}


if __name__ == "__main__":
    sys.exit(run(__doc__, OPTIONS, measure))
