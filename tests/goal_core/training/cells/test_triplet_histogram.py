"""The record of triplets: it counts every triplet once, survives a kill, and moves no number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from goal_sweep.goal_core.checkpoints import TRIPLETS
from goal_sweep.goal_core.objectives import ObjectiveConfig
from goal_sweep.goal_core.training import train_unit
from goal_sweep.goal_core.training.cells.triplet_histogram import NUM_BINS, TripletHistogram, weight_field
from tests.helpers.training_cases import FROZEN, PlainFolder, folders_of, same_weights, train_killed, unit_of

CPU = torch.device("cpu")
CON = ObjectiveConfig(pair="con", triplet="con")


def batch(pos: list[float], neg: list[float], valid: list[bool] | None = None) -> Any:
    return SimpleNamespace(
        pos=torch.tensor(pos), neg=torch.tensor(neg), valid=torch.tensor(valid or [True] * len(pos), dtype=torch.bool)
    )


def saved(record: TripletHistogram, folder: Path) -> dict[str, np.ndarray]:
    record.save(PlainFolder(folder), CON)
    with np.load(folder / TRIPLETS, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def test_triplets_are_counted_where_they_are(tmp_path: Path) -> None:
    record = TripletHistogram(CPU)
    record.add(batch([0.51, 0.51, -1.0, 1.0000001], [0.01, 0.01, -1.0, 1.0]))
    record.add(batch([0.9, 0.51], [0.0, 0.01], [False, True]))  # the first has no negative
    record.close_epoch(1)
    record.close_epoch(2)
    record.add(batch([0.0], [0.0]))
    record.close_epoch(3)
    file = saved(record, tmp_path)
    middle, last = 60 * NUM_BINS + 40, NUM_BINS * NUM_BINS - 1
    assert file["entries"].tolist() == [[1, 0, 1], [1, middle, 3], [1, last, 1], [3, 40 * NUM_BINS + 40, 1]]
    assert file["epochs"].tolist() == [1, 2, 3]
    assert [file[name].tolist() for name in ("low", "high", "num_bins")] == [-1, 1, NUM_BINS]


def test_the_weight_field_is_the_objectives_own() -> None:
    field = weight_field(ObjectiveConfig(pair="lin", triplet="con", params={"margin": 0.51}))
    middle = (np.arange(NUM_BINS) + 0.5) / (NUM_BINS / 2) - 1
    pos, neg = np.meshgrid(middle, middle, indexing="ij")
    assert np.array_equal(field.numpy(), (0.51 + neg - pos > 0).astype(np.float32))
    circle = weight_field(ObjectiveConfig(pair="con", triplet="cir"))
    assert circle[-1, 40] < 0.01 < 0.99 < circle[0, -1]  # the ideal triplet weighs nothing, the worst one fully


def test_a_stage_records_every_triplet_of_every_epoch(tmp_path: Path) -> None:
    unit = unit_of("sig-ms/cir")
    (folder,) = folders_of(unit, tmp_path).values()
    train_unit(unit, {"sig-ms-cir": folder})
    with np.load(folder.path(TRIPLETS), allow_pickle=False) as file:
        epochs, entries = file["epochs"], file["entries"]
    assert epochs.tolist() == [1, 2, 3]
    totals = [entries[entries[:, 0] == epoch, 2].sum() for epoch in epochs]
    assert totals == [2 * 16 * 5] * 3  # both directions of 16 images x 5 captions


def test_recording_moves_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = unit_of("con/con", "sig-ms/cir")
    recorded, bare = folders_of(unit, tmp_path / "recorded"), folders_of(unit, tmp_path / "bare")
    train_unit(unit, recorded)
    monkeypatch.setattr(TripletHistogram, "add", lambda self, stats: None)
    train_unit(unit, bare)
    for cell_id, folder in bare.items():
        assert folder.numbers() == recorded[cell_id].numbers()
        assert same_weights(folder, recorded[cell_id])


@pytest.mark.parametrize("stop", [4, 7])
def test_a_killed_stage_ends_with_the_same_record(tmp_path: Path, stop: int) -> None:
    unit = unit_of("con/con", stage=replace(FROZEN, checkpoint_every=2))
    unbroken, broken = folders_of(unit, tmp_path / "unbroken"), folders_of(unit, tmp_path / "broken")
    train_unit(unit, unbroken)
    train_killed(unit, broken, stop)
    assert broken["con-con"].path(TRIPLETS).read_bytes() == unbroken["con-con"].path(TRIPLETS).read_bytes()
