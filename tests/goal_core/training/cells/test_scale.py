"""The scale of an objective beside image-text matching: what it is, and that nothing else changes it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from goal_sweep.goal_core.basics.errors import DivergedError
from goal_sweep.goal_core.checkpoints.initial_model import InitialModel
from goal_sweep.goal_core.data.batches import BatchSource
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.training import UnitPlan
from goal_sweep.goal_core.training.cells.optim import BATCHES, scale_from
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.training_cases import XVLM, XVLM_DATA, XVLM_DROPS, PlainFolder, folders_of, unit_of

STAGE = replace(XVLM_DROPS, batch_size=8)
DATA = replace(XVLM_DATA, num_train=5, num_val=6, num_test=6, image=replace(XVLM_DATA.image, augment="none"))
NAMES = ("con/nca", "sig-ms/cir")


def xvlm_unit(*names: str, weight: float = 1.0, **changes: Any) -> UnitPlan:
    model = replace(XVLM, xvlm=replace(XVLM.xvlm, objective_weight=weight, rerank_top=0))
    return replace(unit_of(*names, stage=STAGE, model=model, data=DATA), **changes)


def scales(folder: PlainFolder) -> dict[str, float]:
    return dict(json.loads((folder.root / "result.json").read_text())["scales"])


def embedded(unit: UnitPlan) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Images, texts and ids of the first batches, from the initial weights."""
    dataset = open_dataset(unit.data)
    initial = InitialModel(unit.model, unit.data, dataset)
    backbone = initial.backbone(unit.seed)
    assert backbone is not None
    heads = initial.heads(backbone, unit.seed).eval()
    source = BatchSource(
        dataset.splits["train"], initial.tokenizer, unit.data.image, batch_size=8, seed=unit.seed, drop_last=True
    )
    for batch, _ in zip(source.batches(1), range(BATCHES), strict=False):
        with torch.no_grad():
            image = heads.encode_images(backbone.eval()(batch.images))
            text = heads.encode_texts(batch.tokens, batch.lengths)
        yield image, text, batch.image_index


def contrastive(image: Tensor, text: Tensor, ids: Tensor) -> Tensor:
    """X-VLM's loss, written another way than in the package."""
    same = (ids[:, None] == ids).float()
    logits = (image @ text.T) / 0.07
    rows, columns = (
        -(functional.log_softmax(logits, dim=dim) * same / same.sum(dim, keepdim=True)).sum(dim).mean()
        for dim in (1, 0)
    )
    return (rows + columns) / 2


def test_the_gradient_of_the_scaled_objective_is_as_large_as_that_of_the_loss_it_replaces(tmp_path: Path) -> None:
    unit = xvlm_unit(*NAMES, stage=replace(STAGE, epochs=1))
    train_unit(unit, folders := folders_of(unit, tmp_path))
    for training in unit.trainings:
        objective, ours, theirs = training.objective.build(), 0.0, 0.0
        factor = scales(folders[training.key])["objective"]
        for image, text, ids in embedded(unit):
            for both, loss in (("ours", None), ("theirs", contrastive)):
                leaves = image.clone().requires_grad_(), text.clone().requires_grad_()
                scalar = factor * objective(*leaves, ids) / 16 if loss is None else loss(*leaves, ids)
                norm = float(torch.cat(torch.autograd.grad(scalar, leaves)).norm())
                ours, theirs = (ours + norm, theirs) if both == "ours" else (ours, theirs + norm)
        assert ours == pytest.approx(theirs, rel=1e-4)
        assert f"scale of the objective: {factor:.6g}" in folders[training.key].path("log.txt").read_text()
        assert folders[training.key].numbers()[0]["train/objective_scale"] == factor
    assert len({scales(folder)["objective"] for folder in folders.values()}) == 2


def test_the_scale_of_the_warm_up_is_the_same_for_all_objectives(tmp_path: Path) -> None:
    unit = xvlm_unit(*NAMES, stage=replace(STAGE, warmup_epochs=1, epochs=2))
    train_unit(unit, folders := folders_of(unit, tmp_path))
    one, two = map(scales, folders.values())
    assert one.keys() == {"hinge", "objective"}
    assert one["hinge"] == two["hinge"]


def test_the_weight_is_the_ratio_and_a_number_in_place_of_the_measured_scale_is_taken(tmp_path: Path) -> None:
    stage = replace(STAGE, epochs=1, lr=1e-9)
    found = {}
    cases: list[tuple[str, float, float | Literal["itc"]]]
    cases = [("one", 1.0, "itc"), ("half", 0.5, "itc"), ("fixed", 1.0, 10.0)]
    for name, weight, scale in cases:
        unit = xvlm_unit("con/nca", weight=weight, stage=stage)
        unit = replace(unit, model=replace(unit.model, xvlm=replace(unit.model.xvlm, objective_scale=scale)))
        train_unit(unit, folders := folders_of(unit, tmp_path / name))
        result = json.loads((folders["con-nca"].root / "result.json").read_text())
        found[name] = (result.get("scales"), folders["con-nca"].numbers()[0]["train/objective_to_matching"])
    assert found["one"][0] == found["half"][0]
    assert found["half"][1] == pytest.approx(found["one"][1] / 2, rel=1e-3)
    assert found["fixed"][0] is None
    assert found["fixed"][1] == pytest.approx(found["one"][1] * 10 / found["one"][0]["objective"], rel=1e-3)


def test_an_objective_without_a_gradient_cannot_be_scaled() -> None:
    assert scale_from([(1.0, 2.0), (0.0, 3.0)]) == 5
    with pytest.raises(DivergedError, match=r"set model\.xvlm\.objective_scale to a number"):
        scale_from([(0.0, 1.0)])
