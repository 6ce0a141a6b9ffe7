"""Ways of training that differ are called different."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import equality
from benchmarks.program import Report, parse
from benchmarks.units import data_of, photographs, unit_of
from goal_core.training.cells import state


class Outcome:
    def __init__(self, factor: float) -> None:
        self.first = {("0", "optimizer.1.exp_avg"): torch.ones(4) * factor}
        self.last = {**self.first, ("0", "heads.weight"): torch.full((4,), 2.0), ("0", "steps"): torch.tensor(3)}
        self.metrics = {"0": {"train/hinge": 5.0, "val/rsum": 7.0}}
        self.times = [0.1, 0.2, 0.3]


@pytest.mark.parametrize(("factor", "equal", "bits"), [(1.0, "yes", "yes"), (1.0005, "yes", "no"), (1.002, "NO", "no")])
def test_gradients_within_a_thousandth_are_equal(
    factor: float, equal: str, bits: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcomes = iter([Outcome(factor), Outcome(1.0)] * 6)
    monkeypatch.setattr(equality, "_trained", lambda *_, **__: next(outcomes))
    report = Report(str(tmp_path / "rows.json"))
    options: dict[str, Any] = {**equality.OPTIONS, "images": 24}
    equality.measure(parse(None, options, []), report)
    rows = report.tables["way / other"]
    assert len(rows) == 6
    assert {(row["equal"], row["bit for bit"]) for row in rows.values()} == {(equal, bits)}
    assert rows["heads / trunk"]["gradients"] == pytest.approx(factor - 1, rel=1e-3)
    assert rows["heads / trunk"]["ms a step"] == pytest.approx(200)
    assert set(report.failed) == (set(rows) if equal == "NO" else set())
    assert json.loads((tmp_path / "rows.json").read_text())["failed"] == report.failed


def test_a_training_that_resumes_without_its_moments_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--images 40 --size 32 --batch 16 --embed-dim 16 --word-dim 8 --workers 0".split()
    given = parse(None, equality.OPTIONS, words)
    with photographs(given) as root:
        unit = unit_of(given, data_of(root, 32, "none"), stage_settings={"lr": 1e-3, "checkpoint_every": 1})
        whole = equality._compared(unit, unit, equality.STOP)
        monkeypatch.setattr(state, "restore_optimizer", lambda *_: None)
        lost = equality._compared(unit, unit, equality.STOP)
    assert (whole["equal"], whole["bit for bit"]) == ("yes", "yes")
    assert (lost["equal"], lost["bit for bit"]) == ("NO", "no")
