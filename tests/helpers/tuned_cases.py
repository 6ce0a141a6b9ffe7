"""Write a tuned sweep to MLflow as its driver would: candidates, ``tuning.json``, and both grids."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from mlflow.entities import Metric, Param, RunTag

from tests.helpers.analysis_cases import FINGERPRINT, OBJECTIVES, SweepWriter, recalls

SPACE: list[dict[str, Any]] = [
    {"key": "objectives.params.tau", "name": "tau", "kind": "loguniform", "low": 1.0, "high": 20.0},
    {"key": "objectives.params.margin", "name": "margin", "kind": "uniform", "low": 0.05, "high": 0.4},
    {"key": "stages.frozen.lr", "name": "lr", "kind": "choice", "values": [0.002, 0.004, 0.008]},
]
DEFAULT = {"tau": 10.0, "margin": 0.2, "lr": 0.008}
"""The sweep's own settings."""
BEST = {"tau": 3.0, "margin": 0.1, "lr": 0.004}
"""Where the planted score is highest."""
BUDGET = 16
TUNE_SEED = 101


def names_of(objective: str) -> list[str]:
    """The dimensions that an objective has: only nca, cir and the ms rows have tau."""
    has_tau = not objective.endswith("/con") or "-ms" in objective
    return [name for name in ("tau", "margin", "lr") if name != "tau" or has_tau]


def quality(objective: str, values: Mapping[str, float]) -> float:
    """How many points of recall the settings cost, at most 0: tau matters most, above all for cir."""
    weight = 4.0 if objective.endswith("/cir") else 1.5
    cost = 0.0
    if "tau" in values:
        cost += weight * math.log(values["tau"] / BEST["tau"]) ** 2
    cost += 30 * (values.get("margin", BEST["margin"]) - BEST["margin"]) ** 2
    return -(cost + 1.0 * abs(math.log2(values.get("lr", BEST["lr"]) / BEST["lr"])))


def trail(objective: str, budget: int = BUDGET, search_seed: int = 1, **changes: Any) -> dict[str, Any]:
    """The entry of one objective in ``tuning.json``, by random search; ``changes`` replace its parts."""
    generator = np.random.default_rng([search_seed, OBJECTIVES.index(objective)])
    names, candidates = names_of(objective), []
    for number in range(budget):
        drawn = {
            "tau": float(math.exp(generator.uniform(0, math.log(20)))),
            "margin": float(generator.uniform(0.05, 0.4)),
            "lr": float(generator.choice([0.002, 0.004, 0.008])),
        }
        own = DEFAULT if number == 0 else drawn
        values = {name: own[name] for name in names}
        noise = float(generator.normal(0, 0.6))
        score = round(300 + OBJECTIVES.index(objective) / 2 + 6 * quality(objective, values) + noise, 3)
        candidates.append(candidate(number, values, score, default=number == 0))
    chosen = max(candidates, key=lambda one: one["score"])["number"]
    pair, _, triplet = objective.partition("/")
    return {"pair": pair, "triplet": triplet, "names": names, "candidates": candidates, "chosen": chosen} | changes


def candidate(number: int, values: Mapping[str, Any], score: float | None, **changes: Any) -> dict[str, Any]:
    """One candidate of a trail."""
    scores = {} if score is None else {str(TUNE_SEED): score}
    own = {"number": number, "values": dict(values), "default": False, "score": score, "scores": scores}
    return own | {"epochs": 8, "stopped": False, "failed": None} | changes


def tuning(
    objectives: Iterable[str] = OBJECTIVES, trails: Sequence[Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """The content of ``tuning.json``; ``changes`` replace its parts."""
    found = [trail(objective) for objective in objectives] if trails is None else list(trails)
    block = {"dataset": "coco", "framework": "vsepp", "backbone": "resnet152", "objectives": found}
    whole = {"format": 1, "metric": "val/rsum", "budget": BUDGET, "search": "random", "search_seed": 1}
    return whole | {"seeds": [TUNE_SEED], "stop_early": None, "space": SPACE, "blocks": [block]} | changes


def write_candidates(writer: SweepWriter, content: Mapping[str, Any], finished: int | None = None) -> None:
    """Write a run for each candidate, without test numbers; those from ``finished`` on still wait."""
    for entry in content["blocks"][0]["objectives"]:
        objective = f"{entry['pair']}/{entry['triplet']}"
        for one in entry["candidates"]:
            done = finished is None or one["number"] < finished
            status = "waiting" if not done else "done" if one["failed"] is None else "failed"
            own = {"pair": entry["pair"], "triplet": entry["triplet"], "seed": str(TUNE_SEED), "stage": "frozen"}
            own |= {"cell": f"try-{objective}-{one['number']}", "stage_key": f"try-{objective}-{one['number']}"}
            own |= {"backbone": "resnet152", "framework": "vsepp", "dataset": "coco", "variant": "paper"}
            own |= {"status": status, "git_commit": "0" * 40, "data_fingerprint": FINGERPRINT}
            own |= {"role": "candidate", "candidate": str(one["number"])}
            tags = {f"goal.{name}": value for name, value in own.items()} | {"mlflow.parentRunId": writer.parent or ""}
            run = writer.client.create_run(writer.experiment_id, run_name=f"{objective} candidate {one['number']}")
            now = int(time.time() * 1000)
            metrics = [Metric("val/rsum", one["score"], now, 1)] if status == "done" else []
            writer.client.log_batch(run.info.run_id, metrics=metrics, tags=[RunTag(*item) for item in tags.items()])


def attach(writer: SweepWriter, content: Any) -> None:
    """Log ``tuning.json`` to the parent run; a text is written as it is."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "tuning.json")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        writer.client.log_artifact(str(writer.parent), str(path))


def write_parent(writer: SweepWriter, content: Mapping[str, Any], seeds: Sequence[int] = (1, 2, 3)) -> None:
    """Write the parent run, which states the keys of both grids."""
    objectives = [f"{one['pair']}/{one['triplet']}" for one in content["blocks"][0]["objectives"]]
    keys = [f"{name}-{grid}" for name in objectives for grid in ("default", "tuned")]
    settings = ["lr-default", *(f"lr-{objective}" for objective in objectives)]
    tags = {"goal.objective_keys": json.dumps(keys), "goal.settings_keys": json.dumps(settings)}
    writer.write_parent(seeds=seeds, objectives=objectives, **tags)


def write_cell(
    writer: SweepWriter, objective: str, seed: int, grid: str, values: Mapping[str, Any], **changes: Any
) -> str:
    """Write a reporting run of a grid: ``default``, ``tuned`` or ``default,tuned``."""
    side = "default" if grid.startswith("default") else "tuned"
    metrics = changes.pop("metrics", None) or recalls(objective, seed, quality(objective, values) * 2)
    keys = {"objective_key": f"{objective}-{side}", "stage_key": f"{objective}-{side}-{seed}"}
    keys |= {"settings_key": "lr-default" if side == "default" else f"lr-{objective}"}
    run_id = writer.write(objective, seed, metrics=metrics, **(keys | {"grid": grid} | changes))
    params = {
        ("stages.frozen.lr" if name == "lr" else f"objective.{name}"): f"{v:g}" if v == int(v) else repr(v)
        for name, v in values.items()
    }
    writer.client.log_batch(run_id, params=[Param(name, text) for name, text in params.items()])
    return run_id


def write_grids(
    writer: SweepWriter, content: Mapping[str, Any], seeds: Sequence[int] = (1, 2, 3), noise: float = 0.2
) -> None:
    """Write both grids: the default, and what was chosen; a choice of the default is one training of both."""
    generator = np.random.default_rng(5)
    for entry in content["blocks"][0]["objectives"]:
        objective = f"{entry['pair']}/{entry['triplet']}"
        choice = entry["candidates"][entry["chosen"]]
        default = {name: DEFAULT[name] for name in entry["names"]}
        for seed in seeds:
            for grid, values in (("default", default), ("tuned", choice["values"])):
                if grid == "default" and choice["default"]:
                    grid = "default,tuned"
                elif choice["default"]:
                    continue
                shift = quality(objective, values) * 2 + float(generator.normal(0, noise))
                write_cell(writer, objective, seed, grid, values, metrics=recalls(objective, seed, shift))


def write_tuned(writer: SweepWriter, content: Mapping[str, Any], **options: Any) -> None:
    """Write a whole tuned sweep."""
    write_parent(writer, content, **{name: options[name] for name in ("seeds",) if name in options})
    write_candidates(writer, content)
    attach(writer, content)
    write_grids(writer, content, **options)
