"""Write a sweep to MLflow as its driver would, and build a small block."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from analysis.blocks import Block, BlockKey, CellSummary, Gap, Grid
from analysis.run_schema import METRICS, PAIRS, TEST_METRICS, TRIPLETS

OBJECTIVES = [f"{p}/{t}" for p in ("con", "lin", "sig", "lin-ms", "sig-ms") for t in ("con", "nca", "cir")]
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")
FINGERPRINT = "ab12cd34ef567890"


def recalls(objective: str, seed: int, shift: float = 0.0) -> dict[str, float]:
    """Test metrics that are easy to check: 40 + the objective's position / 10 + the seed's noise; t2i is 10 lower."""
    base = 40 + shift + OBJECTIVES.index(objective) / 10 + (-0.3, 0.0, 0.3)[seed % 3]
    values = {name: base + 20 * (k % 3) - (10 if k > 2 else 0) for k, name in enumerate(RECALLS)}
    return {f"test/{k}": v for k, v in values.items()} | {"test/rsum": sum(values.values())}


@dataclass
class SweepWriter:
    """Writes a sweep to MLflow as its driver would, and also what a driver should never write."""

    uri: str
    client: MlflowClient
    experiment_id: str
    name: str
    parent: str | None = None

    def write_parent(
        self, seeds: Iterable[int] = (1, 2, 3), objectives: Iterable[str] = OBJECTIVES, **tags: str
    ) -> str:
        asked = {"goal.seeds": json.dumps(list(seeds)), "goal.objectives": json.dumps(list(objectives))}
        all_tags = {"goal.role": "sweep", "goal.sweep": self.name, "goal.stages": '["frozen"]'} | asked | tags
        self.parent = self.client.create_run(self.experiment_id, run_name=self.name, tags=all_tags).info.run_id
        return self.parent

    def write(
        self,
        objective: str = "con/con",
        seed: int = 1,
        stage: str = "frozen",
        status: str = "done",
        metrics: dict[str, float] | None = None,
        without: Iterable[str] = (),
        epochs: Iterable[int] = (1, 2),
        **tags: str,
    ) -> str:
        """Write one run. Keyword tags are given without their ``goal.`` prefix; ``without`` names tags to leave out."""
        pair, triplet = objective.split("/")
        backbone = tags.get("backbone", "resnet152")
        key = f"{objective}-{seed}-{stage}-{backbone}"
        values = {"cell": f"cell-{key}", "stage": stage, "stage_key": f"key-{key}", "pair": pair, "triplet": triplet}
        values |= {
            "seed": tags.pop("seed_text", str(seed)),
            "backbone": backbone,
            "framework": "vsepp",
            "dataset": "coco",
            "variant": "paper",
        }
        values |= {"status": status, "git_commit": "0" * 40, "data_fingerprint": FINGERPRINT} | tags
        named = {f"goal.{k}": v for k, v in values.items() if k not in set(without)}
        named |= {"goal.role": "cell"} | ({"mlflow.parentRunId": self.parent} if self.parent else {})
        run_name = f"{objective} {backbone} seed {seed} ({stage})"
        run = self.client.create_run(self.experiment_id, run_name=run_name)
        if metrics is None:
            metrics = recalls(objective, seed, 5 if stage == "finetune" else 0) if status == "done" else {}
        now = int(time.time() * 1000)
        rows = [Metric(k, v, now, 7) for k, v in metrics.items()] + [
            Metric("val/rsum", 300.0 + e, now, e) for e in epochs
        ]
        self.client.log_batch(run.info.run_id, metrics=rows, tags=[RunTag(k, v) for k, v in named.items()])
        return str(run.info.run_id)

    def write_all(self, seeds: Iterable[int] = (1, 2, 3), skip: Iterable[tuple[str, int]] = (), **kwargs: str) -> None:
        for objective in OBJECTIVES:
            for seed in seeds:
                if (objective, seed) not in set(skip):
                    self.write(objective, seed, **kwargs)


def with_params(writer: SweepWriter, run_id: str, **params: str) -> None:
    """Gives a run parameters; two underscores in a name stand for a dot."""
    rows = [Param(name.replace("__", "."), value) for name, value in params.items()]
    writer.client.log_batch(run_id, params=rows)


def counted_runs(
    value: Callable[[int, int, int, int], float], seeds: int = 3, blocks: Iterable[str] = ("d",)
) -> pd.DataFrame:
    """Runs of all objectives, whose metrics are ``value(block, seed, pair, triplet)``; all but the seed from 0."""
    rows = []
    cells = product(enumerate(blocks), range(1, seeds + 1), enumerate(PAIRS), enumerate(TRIPLETS))
    for (block, dataset), seed, (p, pair), (t, triplet) in cells:
        row = {"dataset": dataset, "framework": "vsepp", "backbone": "r", "variant": "paper", "data_fingerprint": "f"}
        row |= {"stage": "frozen", "pair": pair, "triplet": triplet, "seed": seed}
        rows.append(row | dict.fromkeys(TEST_METRICS, value(block, seed, p, t)))
    return pd.DataFrame(rows)


BINS = 4
"""Of the triplet records that `record_bytes` makes."""


def record_bytes(entries: list[list[int]], epochs: list[int] | None = None, weight: float = 0.5) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(
        file,
        low=np.float64(-1),
        high=np.float64(1),
        num_bins=np.int64(BINS),
        epochs=np.array(epochs or sorted({row[0] for row in entries}), np.int32),
        entries=np.array(entries, np.int32).reshape(-1, 3),
        weight=np.full((BINS, BINS), weight),
    )
    return file.getvalue()


FAILED = Gap(seed=3, status="failed", reason="loss is NaN | 50% of <x_1>\nat step 7")


def example() -> Block:
    """A block of two rows and columns: a full cell, one that lacks a seed, an empty one, and one not in the sweep."""
    cells = {
        ("con", "con"): CellSummary(mean=40.0, std=0.25, n=3),
        ("con", "nca"): CellSummary(mean=42.04, std=None, n=1, gaps=(FAILED, Gap(seed=2, status="absent", reason=""))),
        ("sig-ms", "con"): CellSummary(mean=None, std=None, n=0, gaps=(FAILED,)),
        ("sig-ms", "nca"): CellSummary(mean=None, std=None, n=0, requested=False),
    }
    key = BlockKey(
        dataset="coco", framework="vse_infty", backbone="r_152", stage="train", variant="paper", data_fingerprint="ab"
    )
    grids = {key: Grid(metric=metric, cells=cells) for key, metric in METRICS.items()}
    return Block(key=key, slug=key.slug, protocol="Mean ± std over seeds 1, 2, 3. Data ab.", grids=grids)
