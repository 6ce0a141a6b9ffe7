"""The product as its user has it: commands in a folder, and what they leave in the store and in MLflow."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

STORE = "goal-sweep-store"
EPOCHS = 6
TINY = """
name: tiny
data: {format: scenes, num_train: 24, num_val: 10, num_test: 10, image: {size: 32, resize: 32, augment: none}}
model: {backbones: [{name: test_resnet, weights: random}], text: {word_dim: 8}, embed_dim: 16}
objectives: {only: [con/con, sig-ms/cir]}
seeds: [1]
stages:
  - {name: frozen, epochs: EPOCHS, lr: 1e-3, batch_size: 16, warmup_epochs: 1}
  - {name: finetune, epochs: 1, lr: 1e-4, batch_size: 16}
execution: {sharing: trunk, cells_per_unit: 0}
"""
"""Two objectives, two stages on images: four trainings, two units."""


def tiny_in(folder: Path, epochs: int = EPOCHS) -> Path:
    """A folder with the tiny sweep."""
    folder.mkdir(parents=True)
    (folder / "tiny.yaml").write_text(TINY.replace("EPOCHS", str(epochs)))
    return folder


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "goal_sweep.runners.cli", *arguments]


def run(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, status: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, to its end, with an exit status if one is given."""
    done = subprocess.run(
        command(*arguments), cwd=folder, env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert status in (None, done.returncode), done.stdout + done.stderr
    return done


def results(folder: Path) -> dict[str, dict[str, float]]:
    """The final metrics of every finished training, by cell and stage."""
    found = folder.glob(f"{STORE}/cells/*/*/result.json")
    return {f"{path.parts[-3]}/{path.parts[-2]}": json.loads(path.read_text())["metrics"] for path in sorted(found)}


def histories(folder: Path) -> dict[str, list[dict[str, float]]]:
    """The metrics of every epoch of every training, without times, by cell and stage."""
    found = {}
    for path in sorted(folder.glob(f"{STORE}/cells/*/*/metrics*.jsonl")):
        rows = [json.loads(line)["metrics"] for line in path.read_text().splitlines()]
        found[f"{path.parts[-3]}/{path.parts[-2]}"] = [
            {name: value for name, value in row.items() if not name.startswith(("time/", "system/"))} for row in rows
        ]
    return found


def num_epochs(folder: Path) -> int:
    """The epochs that all trainings have saved."""
    return sum(map(len, histories(folder).values()))


def attempts(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The attempts at every training, by cell and stage."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob(f"{STORE}/cells/*/*/attempts/*.json"), key=lambda path: int(path.stem)):
        found.setdefault(f"{path.parts[-4]}/{path.parts[-3]}", []).append(json.loads(path.read_text()))
    return found


def files(folder: Path) -> dict[str, bytes]:
    """The content of every file of the trainings in the store."""
    found = (path for path in folder.glob(f"{STORE}/cells/**/*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def status(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """What `status --json` says, a row a training."""
    asked = run(folder, "status", "tiny.yaml", "--json", *arguments)
    assert asked.returncode == 0, asked.stderr
    rows: list[dict[str, Any]] = json.loads(asked.stdout)
    return rows


def check_mlflow(folder: Path, epochs: int = EPOCHS, trainings: int = 4) -> None:
    """Check that MLflow has one parent run, one finished run a training, the store's numbers, and no value twice."""
    client = MlflowClient(f"sqlite:///{folder / STORE / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("tiny").experiment_id], max_results=1000)
    assert sum(run.data.tags["goal.role"] == "sweep" for run in runs) == 1
    own = [run for run in runs if run.data.tags["goal.role"] == "report"]
    assert len({run.data.tags["goal.stage_key"] for run in own}) == len(own) == trainings
    stored = results(folder)
    for each in own:
        tags, metrics = each.data.tags, each.data.metrics
        assert (tags["goal.status"], each.info.status) == ("done", "FINISHED")
        last = epochs if tags["goal.stage"] == "frozen" else 1
        steps = [metric.step for metric in client.get_metric_history(each.info.run_id, "val/rsum")]
        assert sorted(steps) == list(range(1, last + 1))
        of_store = stored[f"{tags['goal.cell']}/{tags['goal.stage']}-{tags['goal.stage_key']}"]
        assert {name: value for name, value in metrics.items() if name.startswith("test/")} == {
            name: value for name, value in of_store.items() if name.startswith("test/")
        }
        assert "selected/val_rsum" in metrics


def run_by_every_process(folder: Path, code: str) -> dict[str, str]:
    """An environment in which every Python process runs some code, written into a new folder, when it starts."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    root = str(Path(__file__).parents[2])
    paths = [str(folder), root, os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
