"""Trackers hear of each training while a launch goes on, beside MLflow and under its names, and harm none."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from wandb.proto.wandb_internal_pb2 import Record

from goal_sweep.runners.launch import launch as launch_module
from tests.helpers.in_process import without_ray
from tests.helpers.launches import goal_sweep_here
from tests.helpers.product import STORE, check_mlflow, tiny_in

pytestmark = [pytest.mark.usefixtures("without_plugins"), pytest.mark.integration]
PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"
(EXAMPLE,) = (one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "trackers.reg" in one)
FINAL = ("test/", "selected/")
Told = tuple[dict[str, str], dict[str, list[tuple[int, float]]]]
"""Of a training, by name: its parameters; and each metric's values, with their steps."""


def launch(folder: Path, plugins: dict[str, str], empty_database: Path, patch: pytest.MonkeyPatch, *also: str) -> str:
    """Launch the tiny sweep with plugins and further arguments. Returns what was said."""
    tiny_in(folder, 2)
    for name, text in plugins.items():
        (folder / name).write_text(text)
    (folder / STORE).mkdir()
    shutil.copy(empty_database, folder / STORE / "mlflow.db")
    without_ray(patch)
    done = goal_sweep_here(folder, "launch", "tiny.yaml", "--set", f"plugins=[{','.join(plugins)}]", *also)
    assert done.returncode == 0, done.stdout + done.stderr
    check_mlflow(folder, 2)
    return done.stdout + done.stderr


TRACKER = """
import time
from goal_sweep.trackers import trackers

@trackers.register("mine")
class Mine:
    def __init__(self, sweep):
        pass

    def __getattr__(self, name):
        {does}
"""
FAILS = TRACKER.format(does="return lambda training, told: (told.clear(), 1 / 0)")


def mlflow_runs(store: Path) -> Iterator[tuple[str, Told]]:
    client = MlflowClient(f"sqlite:///{store / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny").experiment_id
    for run in client.search_runs([experiment], "tags.`goal.role` = 'report'"):
        history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        curves = {name: [(point.step, point.value) for point in points] for name, points in history.items()}
        yield run.data.tags["goal.stage_key"], (run.data.params, curves)


def tensorboard_runs(store: Path) -> Iterator[tuple[str, Told]]:
    for folder in (store / "tensorboard" / "tiny").iterdir():
        events = EventAccumulator(str(folder)).Reload()
        start = HParamsPluginData.FromString(events.PluginTagToContent("hparams")["_hparams_/session_start_info"])
        params = {name: value.string_value for name, value in start.session_start_info.hparams.items()}
        curves = {
            name: [(point.step, point.value) for point in events.Scalars(name)] for name in events.Tags()["scalars"]
        }
        yield start.session_start_info.group_name, (params, curves)


def wandb_records(path: Path) -> Iterator[Record]:
    """The records of an offline run: LevelDB's log format, whose blocks of 32 KiB cut long ones, after 7 bytes."""
    content, at, parts = path.read_bytes(), 7, b""
    while at < len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts, at = parts + content[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def wandb_runs(store: Path) -> Iterator[tuple[str, Told]]:
    for path in (store / "wandb").glob("offline-run-*/*.wandb"):
        records = list(wandb_records(path))
        (run,) = (one.run for one in records if one.WhichOneof("record_type") == "run")
        params = {one.key: json.loads(one.value_json) for one in run.config.update if not one.key.startswith("_")}
        curves: dict[str, list[tuple[int, float]]] = {}
        for record in records:
            logged = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            final = {one.key or one.nested_key[0]: json.loads(one.value_json) for one in record.summary.update}
            said = logged or {name: value for name, value in final.items() if name.startswith(FINAL)}
            for name, value in said.items():
                curves.setdefault(name, []).append((logged.get("_step", 0), value))
        (ended,) = (one.exit.exit_code for one in records if one.WhichOneof("record_type") == "exit")
        assert (run.project, ended) == ("tiny", 0)
        yield run.run_id, (params, curves)


def test_built_in_trackers_get_what_mlflow_gets_and_a_plugin_that_fails_harms_none(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    also = ("--set", "tracking.also=[wandb, tensorboard]")
    told = launch(tmp_path / "run", {"mine.py": FAILS, "lines.py": EXAMPLE}, empty_database, monkeypatch, *also)
    assert (told.count("an update is skipped"), told.count("mine: ZeroDivisionError: division by zero")) == (1, 2)
    store = tmp_path / "run" / STORE
    expected = dict(mlflow_runs(store))
    assert len(expected) == 4
    told_of = [float(line.split()[-1]) for line in (tmp_path / "run" / "tiny.txt").read_text().splitlines()]
    assert sorted(told_of) == sorted(curves["test/rsum"][-1][1] for _, curves in expected.values())
    for found in (dict(tensorboard_runs(store)), dict(wandb_runs(store))):
        assert found.keys() == expected.keys()
        for training, (params, curves) in expected.items():
            own = {name: points for name, points in found[training][1].items() if not name.startswith("_")}
            assert (found[training][0], own.keys()) == (params, curves.keys())
            for name, points in curves.items():
                if not name.startswith(FINAL):
                    assert [step for step, _ in own[name]] == [step for step, _ in points]
                assert [value for _, value in own[name]] == pytest.approx([value for _, value in points], rel=1e-6)


@pytest.mark.parametrize("verb", ["validate", "plan", "launch"])
def test_a_library_that_is_missing_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    without_ray(monkeypatch)
    done = goal_sweep_here(tiny_in(tmp_path / "run"), verb, "tiny.yaml", "--set", "tracking.also=[wandb, tensorboard]")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, "pip install 'goal-sweep[wandb]'" in line, "[tensorboard]" in line) == (2, True, False)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("does", "said"), [("raise SystemExit(3)", "mine: SystemExit: 3"), ("time.sleep(60)", "")], ids=["leaves", "hangs"]
)
def test_a_tracker_that_leaves_or_hangs_is_told_once_and_harms_nobody(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch, does: str, said: str
) -> None:
    monkeypatch.setattr(launch_module, "CATCH_UP_S", 5.0 if "sleep" in does else 60.0)
    told = launch(tmp_path / "run", {"mine.py": TRACKER.format(does=does)}, empty_database, monkeypatch)
    assert told.count("an update is skipped") == bool(said)
    assert said in told
