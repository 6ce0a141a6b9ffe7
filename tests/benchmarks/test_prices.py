"""What the benchmark says of a card is a card to plan with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import prices
from benchmarks.program import Report, parse
from goal_sweep.goal_core.training import UnitPlan
from goal_sweep.runners.execution.capacity import Resources
from goal_sweep.runners.planning.cards import choose_card
from goal_sweep.runners.planning.devices import Devices


def test_prices_are_a_card_of_planning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def image_ms(given: object, unit: UnitPlan, *, train: bool = False) -> float:
        return 6.0 if train else 2.0

    monkeypatch.setattr(prices, "_image_ms", image_ms)
    monkeypatch.setattr(prices, "_heads", lambda *arguments: {"ms": 3.0, "gmac_s": 2e-4, "step_s": 0.004})
    path = tmp_path / "gpu.json"
    report = Report(str(path))
    prices.measure(parse(None, prices.OPTIONS, ["--batch", "8", "--images", "24", "--steps", "1"]), report)
    card, line = choose_card(Devices(count=1, need=Resources(cpus=1, gpus=0)), str(path))
    assert line == ""
    assert (card.kind, card.measured_in) == ("cpu", "fp32")
    assert set(prices.OPTIONS["backbones"]) <= card.forward_ms.keys()
    assert card.forward_ms["resnet152"] == {"image_size": 224, "fp32": 2.0}
    assert card.forward_ms["swin_base_patch4_window12_384"]["image_size"] == 384
    assert (card.train_factor, card.gmac_s, card.step_s) == (3.0, 2e-4, 0.004)
    assert json.loads(path.read_text())["prices"]["source"].startswith("python -m benchmarks.gpu, torch ")


def test_a_backbone_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def image_ms(given: object, unit: UnitPlan, *, train: bool = False) -> float:
        if unit.model.backbone.name == "resnet50":
            raise MemoryError("no room")
        return 2.0

    monkeypatch.setattr(prices, "_image_ms", image_ms)
    monkeypatch.setattr(prices, "_heads", lambda *arguments: {"ms": 3.0, "step_s": 0.004})  # wide is no slower
    report = Report()
    prices.measure(parse(None, prices.OPTIONS, ["--batch", "8", "--images", "24", "--steps", "1"]), report)
    found = report.extra["prices"]
    assert "resnet50" not in found["forward_ms"]
    assert len(found["forward_ms"]) == len(prices.OPTIONS["backbones"]) - 1
    assert "gmac_s" not in found
    assert list(report.failed.values()) == ["MemoryError: no room"]
