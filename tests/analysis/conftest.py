from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag

OBJECTIVES = [f"{p}/{t}" for p in ("con", "lin", "sig", "lin-ms", "sig-ms") for t in ("con", "nca", "cir")]
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")
FINGERPRINT = "ab12cd34ef567890"


def recalls(objective: str, seed: int, shift: float = 0.0) -> dict[str, float]:
    """Test metrics a person can check: 40 + objective's place / 10 + seed's noise, t2i 10 points lower."""
    base = 40 + shift + OBJECTIVES.index(objective) / 10 + (-0.3, 0.0, 0.3)[seed % 3]
    values = {name: base + 20 * (k % 3) - (10 if k > 2 else 0) for k, name in enumerate(RECALLS)}
    return {f"test/{k}": v for k, v in values.items()} | {"test/rsum": sum(values.values())}


@dataclass
class SweepWriter:
    """Writes a sweep to tracking as its driver would, and anything a driver should not."""

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
        **tags: str,
    ) -> str:
        """One run; keyword tags lose their ``goal.`` prefix, and ``without`` names tags to leave out."""
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
            Metric("val/rsum", 300.0 + e, now, e) for e in (1, 2)
        ]
        self.client.log_batch(run.info.run_id, metrics=rows, tags=[RunTag(k, v) for k, v in named.items()])
        return str(run.info.run_id)

    def write_all(self, seeds: Iterable[int] = (1, 2, 3), skip: Iterable[tuple[str, int]] = (), **kwargs: str) -> None:
        for objective in OBJECTIVES:
            for seed in seeds:
                if (objective, seed) not in set(skip):
                    self.write(objective, seed, **kwargs)


@pytest.fixture(scope="session")
def new_sweep(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SweepWriter]:
    """Makes empty experiments in one tracking database, which the whole session shares."""
    folder: Path = tmp_path_factory.mktemp("tracking")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)

    def make(name: str) -> SweepWriter:
        experiment_id = client.create_experiment(name, artifact_location=(folder / "artifacts" / name).as_uri())
        return SweepWriter(uri=uri, client=client, experiment_id=experiment_id, name=name)

    return make


@pytest.fixture(scope="session")
def complete_sweep(new_sweep: Callable[[str], SweepWriter]) -> SweepWriter:
    """15 objectives x 3 seeds x 2 stages, all done."""
    sweep = new_sweep("complete")
    sweep.write_parent(**{"goal.stages": '["frozen", "finetune"]'})
    sweep.write_all()
    sweep.write_all(stage="finetune")
    return sweep


@pytest.fixture(scope="session")
def broken_sweep(new_sweep: Callable[[str], SweepWriter]) -> SweepWriter:
    """One of everything that can be wrong; what is right is the complete sweep's frozen stage."""
    sweep = new_sweep("broken")
    sweep.write_parent(**{"goal.stages": '["frozen", "finetune"]'})
    holes = [
        ("con/nca", 2),
        ("lin/con", 1),
        ("lin/con", 2),
        ("lin/con", 3),
        ("sig/con", 3),
        ("sig/nca", 1),
        ("sig/cir", 2),
    ]
    sweep.write_all(skip=holes)
    for seed in (1, 2, 3):
        sweep.write("lin/con", seed, status="failed", reason="NaN at epoch 2 | step 17")
    sweep.write("sig/con", 3, metrics=recalls("sig/con", 3) | {"test/i2t_r1": float("nan")})
    sweep.write("sig/nca", 1, status="running", metrics=recalls("sig/nca", 1))
    sweep.write("sig/cir", 2, status="waiting")
    sweep.write("sig-ms/cir", 1, metrics=recalls("sig-ms/cir", 1, shift=9))
    sweep.write("sig-ms/nca", 1, metrics=recalls("sig-ms/nca", 1, shift=9), stage_key="key-of-other-settings")
    sweep.write("con/con", 7)
    sweep.write("con/cir", 1, without=["stage_key"])
    sweep.write("con/cir", 1, stage_key="key-bad-seed", **{"seed_text": "one"})
    return sweep
