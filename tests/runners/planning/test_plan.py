"""`plan` as a user sees it, with the data and without: every number in the text is in the JSON, and true."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.planning.prices import Kind, Known, Prices
from goal_sweep.sweeps import Unit, find_sweep, list_shipped, load_sweep
from tests.helpers.paths import SCENES
from tests.helpers.planning_cases import published_prices, rows_of

PUBLISHED = sorted(name for name in list_shipped() if name.startswith(("coco_", "f30k_")))
NONE = "model.backbones=[resnet152, convnext_base]"


@pytest.fixture
def as_json(planned: Callable[..., str]) -> Callable[..., dict[str, Any]]:
    return lambda *arguments: json.loads(planned(*arguments, "--json"))


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str, int], None]:
    """Puts a driver of so many GPUs of a name and of a memory in mebibytes on the PATH."""

    def put(count: int, name: str, mib: int) -> None:
        (tmp_path / "bin").mkdir()
        path = tmp_path / "bin" / "nvidia-smi"
        answer = f'case "$*" in *gpu=name*) echo "{name}";; *gpu=memory.total*) echo {mib};; esac'
        path.write_text("#!/bin/sh\n" + f"{answer}\n" * count)
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", str(path.parent), prepend=":")
        monkeypatch.setattr("os.cpu_count", lambda: 64)

    return put


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_sweep_file_states_the_cost_that_plan_computes(name: str) -> None:
    config, text = load_sweep(name, environ={}), find_sweep(name).read_text()
    for row, settings in zip(rows_of(published_prices(name)), config.stages, strict=True):
        assert (row["hours_from"], row["memory_from"]) == ("calibration", "calibration")
        assert f"{row['trainings']} cells" in text
        assert f"{row['steps_per_epoch']:,} steps an epoch" in text
        assert f"{row['steps']:,} steps" in text
        assert row["steps"] == row["trainings"] * settings.epochs * row["steps_per_epoch"]


def test_a_plan_without_the_data_says_where_its_numbers_come_from(
    planned: Callable[..., str], as_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    shown, found = planned("coco_vsepp"), as_json("coco_vsepp")
    assert shown.startswith("coco_vsepp: 45 cells = 1 backbone x 3 seeds x 15 objectives; data not on this machine")
    for fact in ("113,287 images", "566,435 captions", "5,975,100", "2,987,550", "~1,800", "NVIDIA GeForce RTX 3090"):
        assert fact in shown
    assert "ends after 20.9 days on 1 GPU" in shown
    assert [found[key] for key in ("sweep", "cells", "backbones", "seeds", "objectives")] == [
        "coco_vsepp",
        45,
        1,
        3,
        15,
    ]
    assert [(row["stage"], row["units"], row["steps_per_epoch"]) for row in found["stages"]] == [
        ("frozen", 3, 4426),
        ("finetune", 3, 4426),
    ]
    assert found["end_s"] == pytest.approx(20.9 * 86400, rel=0.01)
    assert not list(tmp_path.iterdir())  # planning leaves nothing behind


def test_the_text_has_no_number_that_the_json_lacks(
    planned: Callable[..., str], as_json: Callable[..., dict[str, Any]]
) -> None:
    shown, found = planned("coco_vsepp", "--devices", "8"), as_json("coco_vsepp", "--devices", "8")
    assert found["devices"]["name"] == "8 GPUs"
    assert "take 64 CPUs" in found["notes"][0]
    assert found["packing"][0].startswith("frozen: 45 trainings as 6 units of 7 to 8 on 8 GPUs: ")
    for line in (*found["packing"], *found["notes"]):
        assert line in shown
    for row in found["stages"]:
        (line,) = [line for line in shown.splitlines() if line.strip().startswith(f"{row['stage']}  ")]
        cells = re.findall(r"~?([\d,.]+)", line.partition("resnet152")[2])
        numbers = [float(cell.replace(",", "")) for cell in cells]
        keys = ("trainings", "done", "units", "steps_per_epoch", "steps", "disk_mb", "memory_mb", "gpu_hours")
        assert numbers == pytest.approx([row[key] for key in keys], rel=0.06)


def test_a_backbone_that_nobody_has_measured_is_named_and_leaves_no_end(
    planned: Callable[..., str], as_json: Callable[..., dict[str, Any]]
) -> None:
    shown, found = planned("coco_vsepp", "--set", NONE), as_json("coco_vsepp", "--set", NONE)
    assert "-- not known of convnext_base" in shown
    assert "when it ends is not known" in shown
    assert found["end_s"] is None
    assert [row["hours"] is None for row in found["stages"]] == [False, True] * 2


def test_a_card_that_is_too_small_is_said_with_the_hours_of_what_will_run(
    gpus: Callable[[int, str, int], None], as_json: Callable[..., dict[str, Any]]
) -> None:
    roomy = as_json("coco_vsepp")
    gpus(1, "NVIDIA GeForce RTX 3090", 24576)
    found = as_json("coco_vsepp")
    assert any("not even one cell fits" in line for line in found["packing"])
    assert any("stages.finetune.micro_batch=64" in line for line in found["packing"])
    before, after = roomy["stages"][1], found["stages"][1]
    assert after["hours"] / before["hours"] == pytest.approx(1.28, abs=0.02)
    assert after["memory_mb"] < 0.85 * 24576 * 1.048576 < before["memory_mb"]
    assert found["notes"] == []


def test_cpus_that_are_too_few_are_said(
    gpus: Callable[[int, str, int], None], as_json: Callable[..., dict[str, Any]]
) -> None:
    gpus(8, "NVIDIA H200", 143771)
    (idle,) = as_json("coco_vsepp", "--set", "resources.cpus=16")["notes"]
    for number in ("4 of the 8 units", "128 CPUs", "resources.cpus=8"):
        assert number in idle
    assert as_json("coco_vsepp")["notes"] == []


def test_the_search_of_a_tuned_sweep_is_in_the_table_and_in_the_end(as_json: Callable[..., dict[str, Any]]) -> None:
    found = as_json("tuned", "--devices", "1", "--store", "none")
    search, grid = found["stages"]
    assert (search["stage"], search["trainings"], search["done"]) == ("search: frozen", 240, 0)
    assert found["search"] == {"rounds": 1, "candidates": [16, 16]}
    assert grid["trainings"] == 90  # the sweep's own, and as many as the search may choose
    assert found["cells"] == 45
    assert found["end_s"] == pytest.approx(3600 * (search["hours"] + grid["hours"]), rel=0.01)
    assert search["alone_hours"] > 1.2 * search["hours"]  # each has a start of its own
    apart = as_json("tuned", "--devices", "1", "--store", "none", "--set", "execution.sharing=none")["stages"][0]
    assert apart["hours"] == pytest.approx(search["alone_hours"]) == pytest.approx(apart["alone_hours"])


def test_rounds_of_a_search_wait_for_each_other(as_json: Callable[..., dict[str, Any]]) -> None:
    tpe = ("--set", "tune.search=tpe", "--set", "tune.budget=6", "--set", "tune.batch=2")
    found = as_json("tuned", "--devices", "64", "--store", "none", *tpe)
    assert found["search"]["rounds"] == 3
    one = as_json("tuned", "--devices", "64", "--store", "none", "--set", "tune.budget=2")
    assert found["end_s"] > one["end_s"]


def test_the_text_of_a_tuned_sweep_names_its_search(planned: Callable[..., str]) -> None:
    shown = planned("tuned", "--devices", "1", "--store", "none")
    search, *_ = [line for line in shown.splitlines() if line.startswith("search random: ")]
    assert "search random: 16 candidates" in search
    assert re.search(r"0\.6\d device hours", search)  # each by itself; in shared units 0.48
    assert re.search(r"search: frozen .* ~0\.48", shown)
    assert "ends after 40 min on 1 core" in shown


def test_measured_prices_come_before_those_of_the_card(
    as_json: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def measure(units: Sequence[Unit], prices: Prices, at_once: int, *more: object) -> dict[Kind, Known]:
        seen.append((sorted(len(unit.trainings) for unit in units), at_once))
        return {unit.kind: Known("measured", 2.0, memory=1.0) for unit in units if unit.stage.name == "frozen"}

    monkeypatch.setattr("goal_sweep.runners.planning.measuring.measure", measure)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    given = (SCENES, "--store", "none", "--devices", "3", "--set", "seeds=[1]")
    before, found = as_json(*given)["stages"], as_json(*given, "--measure")["stages"]
    assert seen == [([5] * 6, 2)]  # as planned for three devices, and as many at a time as this machine has
    assert [row["hours_from"] for row in found] == ["measured", "calibration"]
    assert [row["memory_from"] for row in found] == ["measured", "calibration"]
    starts = 3 * 3.0 / 3600
    assert found[0]["hours"] - starts == pytest.approx(2 * (before[0]["hours"] - starts), rel=0.02)
    assert found[1]["hours"] == before[1]["hours"]


def test_data_that_is_there_and_wrong_is_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coco").mkdir()
    assert run(["plan", "coco_vsepp", "--set", "data.root=coco"]) == 2
    assert "data.annotations" in capsys.readouterr().err
    assert run(["plan", "coco_vsepp", "--set", "data.name=mine", "--set", "data.root=nowhere"]) == 2
    assert "dataset folder not found" in capsys.readouterr().err
