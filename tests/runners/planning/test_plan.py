"""`plan` as a user sees it, with the data and without: every number in the text is in the JSON, and true."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.runners.planning.packing import Kind, Speed
from goal_sweep.sweeps import Unit, find_sweep, list_shipped, load_sweep

PUBLISHED = sorted(name for name in list_shipped() if name.startswith(("coco_", "f30k_")))
TINY = ("coco_vsepp+smoke", "--store", "none")


@pytest.fixture
def as_json(planned: Callable[..., str]) -> Callable[..., dict[str, Any]]:
    return lambda *arguments: json.loads(planned(*arguments, "--json"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_sweep_file_states_the_cost_that_plan_computes(
    name: str, as_json: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOAL_F30K", raising=False)
    config, text = load_sweep(name, environ={}), find_sweep(name).read_text()
    for row, settings in zip(as_json(name)["stages"], config.stages, strict=True):
        assert row["time_from"] == "counted"
        assert f"{row['trainings']} cells" in text
        assert f"{row['steps_per_epoch']:,} steps an epoch" in text
        assert f"{row['steps']:,} steps" in text
        assert row["steps"] == row["trainings"] * settings.epochs * row["steps_per_epoch"]


def test_the_text_has_no_number_that_the_json_lacks(
    planned: Callable[..., str], as_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    shown, found = planned("coco_vsepp", "--devices", "8"), as_json("coco_vsepp", "--devices", "8")
    assert max(len(line) for line in shown.splitlines() if line.startswith(" ")) <= 80
    assert shown.startswith("coco_vsepp: 45 cells = 1 backbone x 3 seeds x 15 objectives; data not on this machine")
    for fact in ("113,287 images", "566,435 captions", "counted", "A100", "on 8 GPUs"):
        assert fact in shown
    assert [found[key] for key in ("cells", "backbones", "seeds", "objectives")] == [45, 1, 3, 15]
    assert "take 64 CPUs" in found["notes"][0]
    assert found["packing"][0].startswith("frozen: 45 trainings as 6 units of 7 to 8 on 8 GPUs: ")
    for line in (*found["packing"], *found["notes"]):
        assert line in shown
    for row in found["stages"]:
        (line,) = [line for line in shown.splitlines() if line.strip().startswith(f"{row['stage']}  ")]
        cells = re.findall(r"[\d,.]+", line.partition("resnet152")[2])
        numbers = [float(cell.replace(",", "")) for cell in cells]
        keys = ("done", "trainings", "units", "steps", "disk_mb", "memory_mb", "hours")
        assert numbers == pytest.approx([row[key] for key in keys], rel=0.06)
    assert not list(tmp_path.iterdir())  # planning leaves nothing behind


def test_a_backbone_that_nobody_has_measured_is_named_and_leaves_no_end(
    planned: Callable[..., str], as_json: Callable[..., dict[str, Any]]
) -> None:
    both = ("coco_vsepp", "--set", "model.backbones=[resnet152, convnext_base]")
    shown, found = planned(*both), as_json(*both)
    assert "-- disk and memory are not known of convnext_base" in shown
    assert "The time is not known; try --measure" in shown
    assert found["end_s"] is None
    assert [row["hours"] is None for row in found["stages"]] == [False, True] * 2


def test_the_search_of_a_tuned_sweep_is_in_the_table_and_in_the_end(
    planned: Callable[..., str], as_json: Callable[..., dict[str, Any]]
) -> None:
    one = ("tuned", "--devices", "1", "--store", "none")
    found = as_json(*one)
    search, grid = found["stages"]
    assert (search["stage"], search["trainings"], search["done"]) == ("search: frozen", 240, 0)
    assert found["search"] == {"rounds": 1, "candidates": [16, 16]}
    assert grid["trainings"] == 90  # the sweep's own, and as many as the search may choose
    assert found["end_s"] == pytest.approx(3600 * (search["hours"] + grid["hours"]), rel=0.01)
    assert "search random: 16 candidates" in planned(*one)
    tpe = as_json(*one, "--set", "tune.search=tpe", "--set", "tune.budget=6", "--set", "tune.batch=2")
    assert tpe["search"]["rounds"] == 3


def test_what_is_measured_comes_before_what_is_counted(as_json: Callable[..., dict[str, Any]], monkeypatch):
    def measured(units: Sequence[Unit], *more: object) -> dict[Kind, Speed]:
        return {unit.kind: Speed(2.0, "measured here") for unit in units if unit.stage.name == "frozen"}

    monkeypatch.setattr("goal_sweep.runners.cli.plan.measured", measured)
    before, found = as_json(*TINY)["stages"], as_json(*TINY, "--measure")["stages"]
    assert [row["time_from"] for row in found] == ["measured here", "counted"]
    assert found[0]["hours"] > before[0]["hours"]
    assert found[1]["hours"] == before[1]["hours"]
