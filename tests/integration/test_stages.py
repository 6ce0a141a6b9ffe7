"""A real launch of two stages with Ray: a slow cell of the first stage holds back no other cell's second stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.launches import attempts, check_mlflow, goal_sweep, results, sweep_in, tampered_trainer

pytestmark = [pytest.mark.integration, pytest.mark.exhaustive, pytest.mark.timeout(900)]


def test_a_training_starts_when_the_one_before_it_is_done(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    # The frozen stage of con/con takes a minute, the other cell's a few seconds.
    slow = "time.sleep(0.6 if objective == 'con/con' and cell.unit.stage.name == 'frozen' else 0)"
    environment = tampered_trainer(tmp_path / "site", slow)
    launched = goal_sweep(folder, "launch", "tiny.yaml", "--set", "execution.cells_per_unit=1", environment=environment)
    assert launched.returncode == 0, launched.stdout + launched.stderr
    ends = {cell: records[-1]["ended"] for cell, records in attempts(folder).items()}
    begins = {cell: records[0]["started"] for cell, records in attempts(folder, "finetune").items()}
    last, first = max(ends, key=ends.__getitem__), min(begins, key=begins.__getitem__)
    assert begins[first] < ends[last] - 10
    assert begins[last] > ends[last]
    assert results(folder) == results(unbroken)
    check_mlflow(folder)
