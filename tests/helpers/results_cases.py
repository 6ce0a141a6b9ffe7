"""Fabricates the results table of a sweep, training by training, and a small block."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from goal_sweep.analysis.blocks import BlockKey, BlockResults, CellSummary, Gap, Grid
from goal_sweep.analysis.results import SweepResults, sweep_results
from goal_sweep.analysis.statistics.aggregation import Inputs
from goal_sweep.goal_core.evaluation.metrics import METRICS, OBJECTIVES
from goal_sweep.sweeps.axes import Axis
from goal_sweep.sweeps.results import COLUMNS, EPOCHS, SETTING, Header, Requested
from goal_sweep.sweeps.tuning import Study, TuneConfig

NAMES = ["/".join(objective) for objective in OBJECTIVES]
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")
FINGERPRINT = "ab12cd34ef567890"
COMMIT = "0" * 40
_TYPES = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "binary": pa.binary()}


def recalls(objective: str, seed: int, shift: float = 0.0) -> dict[str, float]:
    """Test metrics that are easy to check: 40 + the objective's position / 10 + the seed's noise; t2i is 10 lower."""
    base = 40 + shift + NAMES.index(objective) / 10 + (-0.3, 0.0, 0.3)[seed % 3]
    values = {name: base + 20 * (k % 3) - (10 if k > 2 else 0) for k, name in enumerate(RECALLS)}
    return {f"test/{name}": value for name, value in values.items()} | {"test/rsum": sum(values.values())}


def of_epochs(last: int, **metrics: float) -> dict[str, list[float]]:
    """The list columns of a training with epochs 1 to ``last``: val rsum 301, 302, ..., and constant other metrics."""
    epochs = [float(epoch) for epoch in range(1, last + 1)]
    own = {"epoch": epochs, "time": [1.7e9 + epoch for epoch in epochs], "val/rsum": [300 + epoch for epoch in epochs]}
    own |= {name.replace("__", "/"): [value] * last for name, value in metrics.items()}
    return {EPOCHS + name: values for name, values in own.items()} if last else {}


@dataclass
class SweepWriter:
    """A results table in the making. Trainings that it requests and that nobody writes wait."""

    name: str = "demo"
    seeds: Sequence[int] = (1, 2, 3)
    objectives: Sequence[str] = tuple(NAMES)
    stages: Sequence[str] = ("frozen",)
    points: Mapping[str, Sequence[str]] | None = None
    axes: Sequence[Axis] = ()
    tune: TuneConfig | None = None
    studies: Sequence[Study] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)

    def write(
        self,
        objective: str = "con/con",
        seed: int = 1,
        stage: str = "frozen",
        status: str = "done",
        *,
        metrics: Mapping[str, float] | None = None,
        epochs: Mapping[str, Sequence[float]] | None = None,
        settings: Mapping[str, str] | None = None,
        **columns: Any,
    ) -> dict[str, Any]:
        """Add a training.

        Args:
            objective: ``PAIR/TRIPLET``.
            seed: its seed.
            stage: its stage.
            status: its status.
            metrics: of the selected epoch; `recalls` by default, none where it is not done.
            epochs: the columns by epoch; two epochs by default.
            settings: by dotted path.
            columns: any other columns.

        Returns:
            The row, which may still be changed.
        """
        pair, triplet = objective.split("/")
        backbone, done = columns.get("backbone", "resnet152"), status == "done"
        words = [objective, seed, stage, backbone, columns.get("configuration", ""), columns.get("grid", "")]
        key = "-".join(str(word) for word in words if word != "")
        row: dict[str, Any] = {name: "" if kind == "string" else None for name, (kind, _) in COLUMNS.items()}
        row |= {
            "training": f"key-{key}",
            "cell": f"cell-{key}",
            "name": f"{objective} {backbone} seed {seed} ({stage})",
        }
        row |= {"stage": stage, "dataset": "coco", "framework": "vsepp", "backbone": backbone, "variant": "paper"}
        row |= {"pair": pair, "triplet": triplet, "seed": seed, "role": "report", "data_fingerprint": FINGERPRINT}
        row |= {"status": status, "attempts": 0 if status == "waiting" else 1}
        if done:
            row |= {"best_epoch": 2, "seconds": 9.0, "started": 1.7e9, "ended": 1.7e9 + 9, "git_commit": COMMIT}
        if metrics is None:
            metrics = recalls(objective, seed, 5 if stage == "finetune" else 0) if done else {}
        row |= {SETTING + name: value for name, value in (settings or {}).items()}
        row |= {**metrics, **(of_epochs(2 if done else 0) if epochs is None else epochs), **columns}
        self.rows.append(row)
        return row

    def write_all(
        self, seeds: Iterable[int] | None = None, skip: Iterable[tuple[str, int]] = (), **options: Any
    ) -> None:
        """Add the trainings of all objectives and seeds, but for those to skip."""
        left_out = set(skip)
        for objective in self.objectives:
            for seed in self.seeds if seeds is None else seeds:
                if (objective, seed) not in left_out:
                    self.write(objective, seed, **options)

    def header(self) -> Header:
        """What the table says of the sweep."""
        return Header(
            sweep=self.name,
            seeds=tuple(self.seeds),
            objectives=tuple((pair, triplet) for pair, triplet in (name.split("/") for name in self.objectives)),
            stages=tuple(self.stages),
            configurations={stage: tuple((self.points or {}).get(stage, ("",))) for stage in self.stages},
            requested=Requested(config={}, data_fingerprint=FINGERPRINT, weights={}),
            axes=tuple(self.axes),
            tune=self.tune,
            studies=tuple(self.studies),
            written=1.7e9,
            version="0",
        )

    def table(self) -> pa.Table:
        """The table: with every training that the sweep requests in each model that has any."""
        rows = [*self.rows, *self._waiting()]
        names = list(dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)]))
        return pa.Table.from_pylist(rows, pa.schema([(name, _type(name)) for name in names]))

    def results(self, folder: Path | None = None) -> SweepResults:
        """The table as a report reads it."""
        return sweep_results(self.header(), self.table(), folder)

    def _waiting(self) -> list[dict[str, Any]]:
        if self.axes or self.tune:
            return []
        models = {(row["backbone"], row["variant"], row["data_fingerprint"]) for row in self.rows}
        known = {_place(row) for row in self.rows}
        waiting = SweepWriter(rows=[])
        for objective, seed, stage in product(self.objectives, self.seeds, self.stages):
            for backbone, variant, data in sorted(models):
                if (backbone, variant, data, stage, objective, seed) not in known:
                    own = {"backbone": backbone, "variant": variant, "data_fingerprint": data}
                    waiting.write(objective, seed, stage, "waiting", **own)
        return waiting.rows


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    model = row["backbone"], row["variant"], row["data_fingerprint"]
    return (*model, row["stage"], f"{row['pair']}/{row['triplet']}", row["seed"])


def _type(name: str) -> pa.DataType:
    if name in COLUMNS:
        return _TYPES[COLUMNS[name][0]]
    if name.startswith(EPOCHS):
        return pa.list_(pa.float64())
    return pa.string() if name.startswith(SETTING) else pa.float64()


def large_results(runs: int, blocks: int = 10, epochs: int = 30) -> SweepResults:
    """Results of at least so many finished trainings: all objectives in every block, as many seeds as needed.

    Args:
        runs: how many trainings.
        blocks: how many backbones.
        epochs: the epochs of each.
    """
    seeds = -(-runs // (blocks * len(NAMES)))
    writer = SweepWriter("large", seeds=range(1, seeds + 1))
    generator = np.random.default_rng(1)
    measured = ["val/rsum", "train/pos_sim", "train/neg_sim", "train/active", "train/grad_norm"]
    measured += ["time/train_s", "time/val_s", "time/step_ms", "time/data_wait_share"]
    settings = {f"stages.frozen.setting{number}": "1" for number in range(40)}
    rising = np.arange(1, epochs + 1) / epochs
    for block, (number, objective), seed in product(range(blocks), enumerate(NAMES), writer.seeds):
        level = 40 + number / 5
        columns = {EPOCHS + name: (level * rising + generator.random(epochs)).tolist() for name in measured}
        columns |= of_epochs(epochs) | columns
        tests = {metric.test: level + float(generator.random()) for metric in METRICS.values()}
        backbone = f"backbone{block}"
        writer.write(objective, seed, epochs=columns, metrics=tests, settings=settings, backbone=backbone)
    return writer.results()


FAILED = Gap(seed=3, status="failed", reason="loss is NaN | 50% of <x_1>\nat step 7")


def example() -> BlockResults:
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
    return BlockResults(key=key, protocol="Mean ± std over seeds 1, 2, 3. Data ab.", grids=grids)


def inputs_of(results: SweepResults | None = None, **known: Any) -> Inputs:
    """What sections of a report are computed from; ``known`` stands for what it would compute, by its name."""
    inputs = Inputs(results=results or SweepWriter().results())
    vars(inputs).update(known)
    return inputs
