"""The sweeps of the paper's blocks have the published settings."""

import pytest

from goal_sweep.goal_core.data.config import IdMappedConfig, KarpathyConfig, RegionsConfig
from goal_sweep.sweeps import load_sweep

SYSTEMS = ("vsepp", "vsepp_vit", "vse_infty_butd", "vse_infty_wsl")
NAMES = [f"{data}_{system}" for data in ("coco", "f30k") for system in SYSTEMS]


@pytest.mark.parametrize("name", NAMES)
def test_settings(name: str) -> None:
    config = load_sweep(name, environ={})
    assert config.data.name == name.split("_")[0]
    assert config.seeds == (1, 2, 3)
    assert len(config.objectives.names) == 15
    assert config.precision == "tf32"
    assert {(stage.batch_size, stage.grad_clip) for stage in config.stages} == {(128, 2)}


@pytest.mark.parametrize("name", [name for name in NAMES if "vsepp" in name])
def test_vsepp(name: str) -> None:
    config = load_sweep(name, environ={})
    frozen, finetune = config.stages
    assert (frozen.name, frozen.epochs, frozen.lr, frozen.lr_drops) == ("frozen", 30, 2e-4, (15,))
    assert (finetune.name, finetune.epochs, finetune.lr, finetune.lr_drops) == ("finetune", 15, 2e-5, ())
    assert {stage.optimizer for stage in config.stages} == {"adam"}
    assert {(stage.weight_decay, stage.warmup_epochs, stage.drop_last) for stage in config.stages} == {(0, 0, False)}
    assert (config.model.text.word_dim, config.model.embed_dim) == (300, 1024)
    assert isinstance(config.data, KarpathyConfig)
    assert config.data.image is not None
    assert (config.data.image.size, config.data.image.resize) == (224, 256)
    assert (config.data.max_captions, config.data.min_word_count) == (5, 4)


@pytest.mark.parametrize("name", [name for name in NAMES if "vse_infty" in name])
def test_vse_infty(name: str) -> None:
    config = load_sweep(name, environ={})
    (stage,) = config.stages
    assert (stage.epochs, stage.lr, stage.lr_drops, stage.weight_decay) == (25, 5e-4, (15,), 1e-4)
    assert (stage.optimizer, stage.warmup_epochs, stage.bert_lr_scale) == ("adamw", 1, 0.1)
    wsl = name.endswith("wsl")
    assert stage.drop_last != wsl
    assert (stage.frozen_epochs, stage.ramp_epochs, stage.backbone_lr_scale) == ((1, 1, 0.01) if wsl else (0, 0, 1.0))
    assert isinstance(config.data, RegionsConfig | IdMappedConfig)
    assert (config.data.max_val_images, config.model.vse_infty.size_augment) == (1000, 0.2)
    assert config.data.test_file == ("testall" if name.startswith("coco") else "test")


@pytest.mark.parametrize(("name", "rerank_top"), [("coco_xvlm", 256), ("f30k_xvlm", 128)])
def test_xvlm(name: str, rerank_top: int) -> None:
    config = load_sweep(name, environ={})
    (stage,) = config.stages
    assert (stage.name, stage.epochs, stage.lr, stage.batch_size, stage.drop_last) == ("finetune", 10, 3e-5, 160, True)
    assert (stage.optimizer, stage.weight_decay, stage.beta2, stage.grad_clip) == ("adamw", 0.01, 0.98, 0)
    assert (stage.schedule, stage.lr_warmup, stage.warmup_epochs) == ("linear", 0.1, 0)
    assert config.data.image is not None
    assert (config.data.image.size, config.data.image.augment) == (384, "xvlm")
    assert config.model.embed_dim == 256
    assert [backbone.name for backbone in config.model.backbones] == ["swin_base_patch4_window12_384"]
    xvlm = config.model.xvlm
    assert (xvlm.fusion_layer, xvlm.drop_path, xvlm.temperature, xvlm.rerank_top) == (6, 0.1, 0.07, rerank_top)
    assert (xvlm.objective_weight, xvlm.objective_scale) == (1, "itc")
    assert (config.seeds, len(config.objectives.names), config.precision) == ((1, 2, 3), 15, "tf32")
