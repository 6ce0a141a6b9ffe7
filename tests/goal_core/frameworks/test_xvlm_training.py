"""X-VLM in the trainer: side by side is alone, resumed is unbroken, evaluated again is the same, and it learns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from timm.layers import DropPath
from torch import nn

from goal_core.data.config import ImageConfig, RegionsConfig
from goal_core.errors import ConfigError
from goal_core.evaluation import reranked_ranks, retrieval_ranks
from goal_core.evaluation.ensemble import evaluate_ensemble
from goal_core.frameworks import framework_of
from goal_core.models import BackboneConfig, BertConfig, ModelConfig, XvlmConfig, XvlmHeads
from goal_core.objectives import GradientObjective, ObjectiveConfig
from goal_core.training import StageConfig, evaluate_checkpoint, train_unit
from goal_core.training import cell_trainer as cell_run_module
from goal_core.training.warmup import sum_hinge
from tests.helpers.training_cases import DATA, StopAt, StoppedError, folders_of, unit_of

MODEL = ModelConfig(
    framework="xvlm",
    backbone=BackboneConfig(name="swin_mini_patch8_window4", weights="random"),
    embed_dim=16,
    bert=BertConfig(weights="random", layers=2, width=16, heads=2),
    xvlm=XvlmConfig(fusion_layer=1, rerank_top=5),
)
PIXELS = replace(DATA, num_train=8, image=ImageConfig(size=64, resize=64, augment="xvlm"))
STAGE = StageConfig(
    name="finetune", epochs=2, lr=1e-3, batch_size=16, optimizer="adamw", weight_decay=0.01, beta2=0.98,
    schedule="linear", lr_warmup=0.1, grad_clip=0, drop_last=True, checkpoint_every=2,
)  # fmt: skip


def test_xvlm_side_by_side_alone_resumed_and_evaluated_again(tmp_path: Path) -> None:
    objectives = ("con/con", "sig-ms/cir")
    together = unit_of(*objectives, stage=STAGE, data=PIXELS, model=MODEL)
    shared = folders_of(together, tmp_path / "trunk")
    train_unit(together, shared)
    assert len({json.dumps(folder.numbers()) for folder in shared.values()}) == 2
    for objective in objectives:
        unit = unit_of(objective, stage=STAGE, data=PIXELS, model=MODEL)
        folders = folders_of(unit, tmp_path / "none")
        with pytest.raises(StoppedError):
            train_unit(unit, folders, StopAt(3))
        train_unit(unit, folders)
        for cell_id, folder in folders.items():
            assert folder.numbers() == shared[cell_id].numbers()
            ours, theirs = (load_file(f.path("best.safetensors")) for f in (folder, shared[cell_id]))
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[key], theirs[key]) for key in ours)
            again = evaluate_checkpoint(folder.root)["metrics"]
            assert again == {key: value for key, value in folder.numbers()[-1].items() if key.startswith("test")}
            assert {"test/rsum", "test_embed/rsum"} <= again.keys()
            assert {"train/itm", "train/itm_accuracy"} <= folder.numbers()[0].keys()
    with pytest.raises(ConfigError, match="re-ranks"):
        evaluate_ensemble([folder.root for folder in shared.values()])


def test_what_does_not_go_with_xvlm_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs images"):
        framework_of(MODEL).check(MODEL, RegionsConfig(name="tiny", root="."))
    shallow = replace(MODEL, xvlm=XvlmConfig(fusion_layer=2))
    with pytest.raises(ConfigError, match="fusion_layer must leave a layer"):
        framework_of(shallow).check(shallow, PIXELS)
    with pytest.raises(ConfigError, match=r"drop_path must be in \[0, 1\), got 1; temperature must be above 0"):
        XvlmConfig(drop_path=1, temperature=0)


def test_captions_of_one_image_are_no_negatives_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor | None] = []
    warmed: list[torch.Tensor | None] = []

    def spy(self, image_emb, text_emb, ids=None):
        seen.append(ids)
        return real(self, image_emb, text_emb, ids)

    def warm(image_BD, text_BD, margin, ids=None):
        warmed.append(ids)
        return sum_hinge(image_BD, text_BD, margin, ids)

    real = GradientObjective.forward_with_stats
    monkeypatch.setattr(GradientObjective, "forward_with_stats", spy)
    monkeypatch.setattr(cell_run_module, "sum_hinge", warm)
    unit = unit_of("con/con", stage=replace(STAGE, warmup_epochs=1), data=PIXELS, model=MODEL)
    train_unit(unit, folders_of(unit, tmp_path / "xvlm"))
    assert seen
    assert all(ids is not None and len(ids.unique()) < len(ids) for ids in seen)  # 8 images, 16 captions a batch
    assert warmed
    assert all(ids is not None for ids in warmed)
    seen.clear()
    other = unit_of("con/con")
    train_unit(other, folders_of(other, tmp_path / "vsepp"))
    assert seen
    assert set(seen) == {None}


def test_blocks_of_the_backbone_are_skipped_in_training_alone() -> None:
    model = replace(MODEL, xvlm=XvlmConfig(fusion_layer=1, drop_path=0.5))
    backbone = framework_of(model).backbone(model, PIXELS, 1)
    rates = [module.drop_prob for module in backbone.modules() if isinstance(module, DropPath)]
    assert max(rates) == 0.5
    pixels = torch.randint(0, 256, (8, 3, 64, 64), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)

    def outcomes(training: bool) -> int:
        backbone.train(training)
        with torch.no_grad():
            return len({float(backbone(pixels).sum()) for _ in range(3)})

    torch.manual_seed(0)
    assert outcomes(training=False) == 1
    assert outcomes(training=True) == 3
    assert not any(isinstance(module, nn.Dropout) and module.training for module in backbone.modules())


@pytest.mark.parametrize("name", ["con/con", "sig-ms/cir"])
def test_xvlm_learns_its_pairs_and_to_tell_them_from_others(name: str) -> None:
    model = replace(MODEL, bert=BertConfig(weights="random", layers=2, width=32, heads=2), embed_dim=32)
    heads = XvlmHeads(model, num_features=8, vocab_size=30, seed=1)
    objective = ObjectiveConfig(pair=name.split("/")[0], triplet=name.split("/")[1]).build()
    generator = torch.Generator().manual_seed(4)
    features, tokens = torch.randn(12, 4, 8, generator=generator), torch.randint(5, 30, (12, 5), generator=generator)
    lengths, ids = torch.full((12,), 5), torch.arange(12)
    optimizer = torch.optim.AdamW(heads.parameters(), lr=3e-3)
    torch.manual_seed(5)
    seen: list[float] = []
    for step in range(110):
        pairs = heads.forward_pairs(features, None, tokens, lengths)
        surrogate = objective(pairs.image_BD, pairs.text_BD, ids)
        if step < 40:
            surrogate = sum_hinge(pairs.image_BD, pairs.text_BD, objective.margin)
        loss, extra = heads.total_loss(surrogate, pairs, ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(extra["itm_accuracy"])
    heads.eval()
    with torch.no_grad():
        images, states = heads.image_tokens(features), heads.text_states(tokens, lengths)
        embedded = heads.embed_images(images), heads.embed_texts(states)
        ranks = reranked_ranks(*embedded, ids, lambda i, t: heads.match(images[i], states[t], lengths[t]), 3)
    assert seen[0] < 0.7  # at first it says "no match" to all
    assert sum(seen[-10:]) / 10 > 0.8
    assert ranks.metrics().rsum > 550  # chance: 8 percent at 1
    assert retrieval_ranks(*embedded, ids).metrics().rsum > 550
