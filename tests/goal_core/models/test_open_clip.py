"""Two towers of open_clip, from a file of their weights."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from goal_sweep.goal_core.basics.errors import ConfigError, WeightsError
from goal_sweep.goal_core.evaluation.evaluate import open_checkpoint
from goal_sweep.goal_core.models import BackboneConfig, ModelConfig, VectorsConfig
from goal_sweep.goal_core.models.frameworks import framework_of, initial_weights_id
from goal_sweep.goal_core.models.open_clip_towers import build_open_clip, open_clip_tokens
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.training_cases import DATA, FINETUNE, FROZEN, folders_of, same_weights, train_killed, unit_of

open_clip = pytest.importorskip("open_clip")
TINY = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
TEXTS = ["A small, red circle isn't 7 px", "the large square and a circle on the blue square of the green circle"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> BackboneConfig:
    """As open_clip's training saves it."""
    folder = tmp_path_factory.mktemp("open_clip")
    (folder / "tiny.json").write_text(json.dumps(TINY))
    open_clip.add_model_config(folder / "tiny.json")
    torch.manual_seed(0)
    model = open_clip.create_model("tiny")
    torch.save({"state_dict": {f"module.{key}": one for key, one in model.state_dict().items()}}, folder / "tiny.pt")
    return BackboneConfig(name="open_clip:tiny", weights=str(folder / "tiny.pt"))


def model_of(tiny: BackboneConfig) -> ModelConfig:
    return ModelConfig(framework="dual", backbone=tiny, embed_dim=12, vectors=VectorsConfig(text_head="none"))


def test_ids_and_vectors_are_those_of_the_library(tiny: BackboneConfig) -> None:
    """Longer captions are cut as there."""
    model, tokenizer = open_clip.create_model("tiny", pretrained=tiny.weights).eval(), open_clip.get_tokenizer("tiny")
    wanted: Tensor = tokenizer(TEXTS)
    ids = [torch.tensor(open_clip_tokens(tiny.name).encode(text)) for text in TEXTS]
    tokens, lengths = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True), torch.tensor([len(one) for one in ids])
    assert lengths.tolist() == [11, 12]
    assert torch.equal(tokens, wanted[:, : tokens.shape[1]])
    backbone, pixels = build_open_clip(tiny, image_size=32), torch.randint(256, (2, 3, 32, 32)).byte()
    with torch.no_grad():
        torch.testing.assert_close(backbone.texts(tokens, lengths), model.encode_text(wanted))
        normalised = (pixels.float() - backbone.mean) / backbone.std
        torch.testing.assert_close(backbone(pixels), model.encode_image(normalised))
    assert backbone.own["temperature"].exp().item() == pytest.approx(1 / 0.07, rel=1e-4)


def test_they_train_shared_or_alone_and_killed_or_not(tiny: BackboneConfig, tmp_path: Path) -> None:
    for stage, stops in ((replace(FROZEN, epochs=2, warmup_epochs=0, lr_drops=()), 1), (replace(FINETUNE, lr=1e-3), 4)):
        unit = unit_of("con/con", "infonce/loss", model=model_of(tiny), data=DATA, stage=stage)
        grid, plan = unit.trainings
        unit = replace(unit, trainings=(grid, plan := replace(plan, objective=plan.objective.of_model())))
        shared, alone = (folders_of(unit, tmp_path / stage.name / name) for name in ("shared", "alone"))
        train_unit(unit, shared)
        train_killed(replace(unit, trainings=(plan,)), alone, stops)
        assert same_weights(shared[plan.key], alone[plan.key])
        assert open_checkpoint(alone[plan.key].root).evaluate()["metrics"] == alone[plan.key].result()


def test_mistakes_are_one_line(tiny: BackboneConfig) -> None:
    framework = framework_of(model_of(tiny))
    framework.check(model_of(tiny), DATA)
    assert initial_weights_id(model_of(tiny)).startswith("sha256:")
    with pytest.raises(ConfigError, match="sees images of 32 px, got 64"):
        build_open_clip(tiny, image_size=64)
    with pytest.raises(WeightsError, match="did you mean 'ViT-B-32'"):
        build_open_clip(replace(tiny, name="open_clip:ViT-B-322"), image_size=32)
    with pytest.raises(WeightsError, match=r"tiny\.pt as 'ViT-B-32'"):
        build_open_clip(replace(tiny, name="open_clip:ViT-B-32"), image_size=224)
    with pytest.raises(WeightsError, match="take the model from there"):
        open_clip_tokens("open_clip:ViT-B-16-SigLIP")
