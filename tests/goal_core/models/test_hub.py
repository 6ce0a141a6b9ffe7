"""Pretrained models of the transformers library: both towers, and text encoders, from a folder."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer, CLIPImageProcessor, SiglipImageProcessor

from goal_sweep.goal_core.basics.errors import ConfigError, WeightsError
from goal_sweep.goal_core.checkpoints.initial_model import InitialModel
from goal_sweep.goal_core.data.config import ImageConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.text import Subwords, tokenizer_from_json
from goal_sweep.goal_core.data.transforms import transform_of
from goal_sweep.goal_core.evaluation.evaluate import open_checkpoint
from goal_sweep.goal_core.evaluation.trained_model import load_model
from goal_sweep.goal_core.models import BackboneConfig, ModelConfig, TextConfig, VectorsConfig, VseInftyConfig, hub_id
from goal_sweep.goal_core.models.backbones import ImageBackbone
from goal_sweep.goal_core.models.frameworks import framework_of, initial_weights_id
from goal_sweep.goal_core.models.hub import Towers, build_dual, build_encoder, subwords_of, word_states
from goal_sweep.goal_core.models.open_clip_towers import open_clip_tokens
from goal_sweep.goal_core.training import StageConfig, UnitPlan
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers import training_cases as cases
from tests.helpers.few import few
from tests.helpers.tiny_models import SIZES, WORDS, clip_folder, encoder_folder, save_tokenizer, siglip_folder

FEW = replace(cases.DATA, num_train=8)
NAMES = ("con/con", "lin-ms/cir", "sig-ms/nca")
TEXTS = ["a small red circle", "the large square and a circle on the blue square of the green circle in a circle"]
STAGE = replace(cases.FROZEN, epochs=2, warmup_epochs=0, lr_drops=())


@pytest.fixture(scope="module", params=["clip", "siglip"])
def towers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    make = {"clip": clip_folder, "siglip": siglip_folder}[request.param]
    return make(tmp_path_factory.mktemp("towers"))


def towers_in(folder: str) -> ImageBackbone:
    return build_dual(BackboneConfig(name="tiny", weights=folder), image_size=32)


def dual(folder: Path, **changes: Any) -> ModelConfig:
    return ModelConfig(
        framework="dual", backbone=BackboneConfig(name="tiny", weights=str(folder)), embed_dim=12, **changes
    )


def test_vectors_are_those_of_the_library(towers: Path) -> None:
    """With its own tokenizer and padding; captions longer than it reads are cut."""
    model, tokenizer = AutoModel.from_pretrained(towers).eval(), AutoTokenizer.from_pretrained(towers)
    kind = {"padding": "max_length"} if "siglip" in model.config.model_type else {"padding": True}
    given = tokenizer(TEXTS, truncation=True, max_length=12, return_tensors="pt", **kind)
    given = {
        name: given[name]
        for name in (["input_ids"] if "siglip" in model.config.model_type else ["input_ids", "attention_mask"])
    }
    pixels = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    backbone, own = (
        build_dual(BackboneConfig(name="tiny", weights=str(towers)), image_size=32),
        subwords_of(str(towers)),
    )
    ids = [torch.tensor(own.encode(text)) for text in TEXTS]
    lengths = torch.tensor([len(one) for one in ids])
    assert lengths.tolist() == [6, 12]
    with torch.no_grad():
        wanted = model.get_text_features(**given).pooler_output
        found = backbone.texts(torch.nn.utils.rnn.pad_sequence(ids, batch_first=True), lengths)
        torch.testing.assert_close(found, wanted)
        normalised = (pixels.float() / 255 - backbone.mean / 255) / (backbone.std / 255)
        torch.testing.assert_close(backbone(pixels), model.get_image_features(pixel_values=normalised).pooler_output)
    assert tokenizer_from_json(own.to_json()) == own


@pytest.mark.parametrize("make", [clip_folder, siglip_folder, encoder_folder])
@pytest.mark.parametrize(
    "change",
    [
        lambda name: f"module.{name}",
        lambda name: f"0.auto_model.{name}",
        lambda name: None if "layer.0." in name or "layers.0." in name else name,
        lambda name: None if "embeddings" in name else name,
    ],
)
def test_a_folder_that_lacks_tensors_is_refused(tmp_path: Path, make: Any, change: Any) -> None:
    """The library would draw them at random."""
    file = make(tmp_path) / "model.safetensors"
    named = {change(name): tensor for name, tensor in load_file(file).items()}
    save_file({name: tensor for name, tensor in named.items() if name}, file, {"format": "pt"})
    build = partial(build_encoder, vocab_size=19) if make is encoder_folder else towers_in
    with pytest.raises(WeightsError, match=r"lacks \d+ tensors of a \w+, such as '"):
        build(str(tmp_path))


@pytest.mark.parametrize("file", ["preprocessor_config.json", "processor_config.json"])
def test_pictures_are_normalised_as_the_folder_says(tmp_path: Path, file: str) -> None:
    """Version 5 of the library writes the second of these files alone."""
    own = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.1, 0.2, 0.3]}
    (siglip_folder(tmp_path) / file).write_text(json.dumps(own if file[:3] == "pre" else {"image_processor": own}))
    backbone = towers_in(str(tmp_path))
    for name, stored in (("image_mean", backbone.mean), ("image_std", backbone.std)):
        torch.testing.assert_close(stored.flatten() / 255, torch.tensor(own[name]))


@pytest.mark.parametrize(
    ("make", "settings", "augment", "resize"),
    [
        (clip_folder, {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}, "clip", 32),
        (clip_folder, {"size": {"shortest_edge": 40}, "crop_size": 32, "resample": 2}, "none", 40),
        (siglip_folder, {"size": {"height": 32, "width": 32}}, "siglip", 64),
    ],
)
def test_pictures_are_fitted_as_by_the_processor_or_it_is_said(
    tmp_path: Path, make: Any, settings: dict[str, Any], augment: Any, resize: int
) -> None:
    kind = CLIPImageProcessor if make is clip_folder else SiglipImageProcessor
    (processor := kind(**settings)).save_pretrained(make(tmp_path))
    config = ImageConfig(size=32, resize=resize, augment=augment)
    picture = np.random.default_rng(1).integers(256, size=(6, 9, 3), dtype=np.uint8).repeat(12, 0).repeat(12, 1)
    ours, backbone = transform_of(config).for_evaluation(picture), towers_in(str(tmp_path))
    theirs = processor(Image.fromarray(picture), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close((ours - backbone.mean) / backbone.std, theirs, atol=0.05, rtol=0)
    assert backbone.fit is not None
    assert backbone.fit.unlike(config) == ""
    assert f"own processor {backbone.fit}" in backbone.fit.unlike(replace(config, augment="vse_infty"))


@pytest.mark.parametrize(
    "own",
    [
        {"size": None}, {"size": 32, "resample": None}, {"size": 32, "resample": "x"}, {"size": {"longest_edge": 32}},
        {"size": 32, "do_resize": False}, {"size": {"shortest_edge": 32}, "do_center_crop": False},
        {"size": {"height": 36, "width": 36}, "do_center_crop": True}, {"size": {"shortest_edge": 16}},
    ],
)  # fmt: skip
def test_a_processor_of_an_unknown_kind_is_compared_with_nothing(tmp_path: Path, own: dict[str, Any]) -> None:
    (clip_folder(tmp_path) / "preprocessor_config.json").write_text(json.dumps(own))
    assert towers_in(str(tmp_path)).fit is None


@pytest.mark.parametrize("own", [{"do_normalize": False}, {"do_rescale": False}, {"rescale_factor": 1 / 127.5}])
def test_a_processor_that_scales_otherwise_is_refused(tmp_path: Path, own: dict[str, Any]) -> None:
    (clip_folder(tmp_path) / "preprocessor_config.json").write_text(json.dumps(own))
    with pytest.raises(WeightsError, match="does not divide by 255 and normalise"):
        towers_in(str(tmp_path))


@pytest.mark.parametrize(
    ("make", "stage"), [(clip_folder, "frozen"), (clip_folder, "finetune"), (encoder_folder, "frozen")]
)
def test_a_trained_model_whose_folder_has_changed_is_refused(tmp_path: Path, make: Any, stage: str) -> None:
    """Also where the checkpoint has all of its weights: its settings are read again."""
    folder = make(tmp_path / "own")
    model = dual(folder) if make is clip_folder else replace(cases.MODEL, text=TextConfig(encoder=str(folder)))
    settings = replace(cases.FINETUNE if stage == "finetune" else STAGE, epochs=1)
    unit = cases.unit_of("con/con", model=model, data=FEW, stage=settings)
    train_unit(unit, folders := cases.folders_of(unit, tmp_path / "cell"))
    checkpoint = folders[unit.trainings[0].key].best()
    before = load_model(checkpoint).encode_texts(["a small circle"])
    content = (folder / "config.json").read_text()
    (folder / "config.json").write_text(content.replace('"gelu"', '"relu"').replace('"quick_gelu"', '"relu"'))
    assert (folder / "config.json").read_text() != content
    with pytest.raises(WeightsError, match=r"ha(s|ve) changed"):
        load_model(checkpoint)
    (folder / "config.json").write_text(content)
    assert (load_model(checkpoint).encode_texts(["a small circle"]) == before).all()


@pytest.mark.parametrize(("end", "said"), [(1, "id 3.*at the id 1"), (2, "id 3.*at the id 4"), (99, "the id 99")])
def test_a_clip_that_reads_captions_elsewhere_than_at_their_end_is_refused(tmp_path: Path, end: int, said: str) -> None:
    """With the end that CLIP's first models name, 2, it reads a caption at its highest id."""
    settings = json.loads((path := clip_folder(tmp_path) / "config.json").read_text())
    settings["text_config"]["eos_token_id"] = end
    path.write_text(json.dumps(settings))
    with pytest.raises(WeightsError, match=said):
        subwords_of(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "positions"), [("roberta", 10), ("mpnet", 66), ("camembert", 512), ("distilbert", 12)]
)
@pytest.mark.parametrize("longest", [None, 7])
def test_captions_are_cut_to_what_model_and_tokenizer_read(
    tmp_path: Path, kind: str, positions: int, longest: int | None
) -> None:
    """RoBERTa and its like count the positions of words on from that of padding."""
    sizes = {**SIZES, "hidden_dim": 32, "dim": 16, "n_heads": 2, "n_layers": 1, "vocab_size": len(WORDS)}
    config = AutoConfig.for_model(kind, **sizes, max_position_embeddings=positions)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, **({} if longest is None else {"model_max_length": longest, "truncation_side": "left"}))
    text, size = "a red circle " * 200 + "blue", longest or positions - (0 if kind == "distilbert" else 2)
    ids = torch.tensor([subwords_of(str(tmp_path)).encode(text)])
    assert ids.tolist() == [AutoTokenizer.from_pretrained(tmp_path)(text, truncation=True, max_length=size).input_ids]
    states = word_states(build_encoder(str(tmp_path), len(WORDS)), ids, torch.tensor([ids.shape[1]]))
    assert states.shape == (1, ids.shape[1], 16)


@pytest.mark.parametrize("make", [clip_folder, siglip_folder, encoder_folder])
def test_a_tokenizer_with_more_ids_than_the_model_embeds_is_refused(tmp_path: Path, make: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(make(tmp_path))
    tokenizer.add_tokens(["<person>"])
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match=f"ids below {len(WORDS)}, but its tokenizer gives ids up to {len(WORDS)}"):
        subwords_of(str(tmp_path))


def test_frozen_towers_are_passed_once_and_their_heads_stack(towers: Path, tmp_path: Path, monkeypatch):
    """Then both towers are fine-tuned from the best heads, killed and resumed, and evaluated from the checkpoint."""
    passed: list[int] = []
    unit = cases.unit_of(*NAMES, model=dual(towers), data=FEW, stage=STAGE, sharing="heads")
    texts = Towers.texts

    def counted(self: Towers, ids: Tensor, lengths: Tensor) -> Tensor:
        passed.append(len(ids))
        return texts(self, ids, lengths)

    monkeypatch.setattr(Towers, "texts", counted)
    stacked = cases.folders_of(unit, tmp_path / "frozen")
    train_unit(unit, stacked)
    captions = sum(split.num_captions for split in open_dataset(FEW).splits.values())
    assert sum(passed) == captions  # of two epochs and three cells
    assert all("path heads: " in (folder.root / "log.txt").read_text() for folder in stacked.values())
    monkeypatch.setattr(Towers, "texts", texts)
    for folder in stacked.values():
        again = open_checkpoint(folder.root).evaluate()["metrics"]
        assert again == pytest.approx(folder.result())
    init = {key: folder.best() for key, folder in stacked.items()}
    tuned = cases.unit_of(*NAMES[:2], model=dual(towers), data=FEW, stage=replace(cases.FINETUNE, lr=1e-3), init=init)
    whole, killed = cases.folders_of(tuned, tmp_path / "whole"), cases.folders_of(tuned, tmp_path / "killed")
    train_unit(tuned, whole)
    cases.train_killed(tuned, killed, 4)
    before = build_dual(tuned.model.backbone, image_size=32).state_dict()
    for key, folder in whole.items():
        assert cases.same_weights(folder, killed[key])
        assert open_checkpoint(folder.root).evaluate()["metrics"] == folder.result()
        after = load_file(folder.best())
        for part in ("vision_model", "text_model"):
            assert any(part in name and not torch.equal(after[f"backbone.{name}"], one) for name, one in before.items())


def test_baselines_take_the_temperature_of_the_towers(towers: Path, tmp_path: Path) -> None:
    """Fixed beside frozen towers; trained with them, shared or alone, killed or not, the same bits."""
    own = build_dual(dual(towers).backbone, image_size=32).own
    loss = "sigmoid" if "bias" in own else "infonce"
    unit = cases.unit_of("con/con", f"{loss}/loss", model=dual(towers), data=FEW, stage=STAGE)
    grid, plan = unit.trainings
    plan = replace(plan, objective=plan.objective.of_model())
    unit = replace(unit, trainings=(grid, plan))
    numbers: dict[str, float | bool | str] = {name: tensor.item() for name, tensor in own.items()}
    numbers["temperature"] = own["temperature"].neg().exp().item()
    fixed = replace(plan, objective=replace(plan.objective, params=numbers))
    folders, as_numbers = cases.folders_of(unit, tmp_path / "frozen"), cases.folders_of(unit, tmp_path / "numbers")
    train_unit(unit, folders)
    train_unit(replace(unit, trainings=(fixed,)), as_numbers)
    for before, after in zip(folders[plan.key].numbers(), as_numbers[plan.key].numbers(), strict=True):
        assert before == pytest.approx(after, rel=1e-4)
    assert "of the model, fixed" in (folders[plan.key].root / "log.txt").read_text()
    tuned = replace(unit, stage=replace(cases.FINETUNE, lr=1e-3, optimizer="adamw"))
    shared, alone = cases.folders_of(tuned, tmp_path / "shared"), cases.folders_of(tuned, tmp_path / "alone")
    train_unit(tuned, shared)
    cases.train_killed(replace(tuned, trainings=tuned.trainings[1:]), alone, 4)
    assert cases.same_weights(shared[plan.key], alone[plan.key])
    assert "of the model, trained" in (alone[plan.key].root / "log.txt").read_text()
    for key, moved in ((grid.key, False), (plan.key, True)):
        after = load_file(shared[key].best())
        for name, attribute in {"temperature": "logit_scale", "bias": "logit_bias"}.items():
            if name in own:
                assert torch.equal(after[f"backbone.net.model.{attribute}"], own[name]) != moved


def test_a_head_that_keeps_the_width_begins_as_the_identity(towers: Path) -> None:
    dataset = open_dataset(cases.DATA)
    width = build_dual(BackboneConfig(name="tiny", weights=str(towers)), image_size=32).num_features
    initial = InitialModel(replace(dual(towers), embed_dim=width), cases.DATA, dataset)
    heads, vectors = initial.heads(initial.backbone(1), 1), torch.randn(3, width)
    unit_vectors = torch.nn.functional.normalize(vectors, dim=-1)
    torch.testing.assert_close(heads.encode_images(vectors), unit_vectors)
    torch.testing.assert_close(heads.encode_texts(vectors, torch.ones(3)), unit_vectors)


def test_without_heads_the_towers_alone_are_fine_tuned(towers: Path, tmp_path: Path) -> None:
    bare = dual(towers, vectors=VectorsConfig(image_head="none", text_head="none"))
    unit = cases.unit_of("con/con", model=bare, data=FEW, stage=replace(cases.FINETUNE, epochs=1))
    assert [getattr(one, "kind", "done") for one in train_unit(unit, cases.folders_of(unit, tmp_path / "tuned"))] == [
        "done"
    ]
    frozen = replace(unit, stage=STAGE)
    (failed,) = train_unit(frozen, cases.folders_of(frozen, tmp_path / "frozen"))
    assert "trains nothing" in getattr(failed, "reason", "")


def test_ids_go_by_content(tmp_path: Path) -> None:
    first, other = clip_folder(tmp_path / "first"), clip_folder(tmp_path / "other", seed=1)
    (same := tmp_path / "same").mkdir()
    for path in first.iterdir():
        (same / path.name).write_bytes(path.read_bytes())
    assert initial_weights_id(dual(same)) == initial_weights_id(dual(first)) != initial_weights_id(dual(other))
    assert hub_id("openai/clip-vit-base-patch32") == "hub:openai/clip-vit-base-patch32"
    (other / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"config\.json"):
        initial_weights_id(dual(other))


def test_mistakes_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip, encoder = clip_folder(tmp_path / "clip"), encoder_folder(tmp_path / "encoder")
    with pytest.raises(ConfigError, match=r"data\.image\.size: 32"):
        build_dual(BackboneConfig(name="tiny", weights=str(clip)), image_size=64)
    with pytest.raises(WeightsError, match="two towers"):
        build_dual(BackboneConfig(name="tiny", weights=str(encoder)), image_size=32)
    with pytest.raises(ConfigError, match=r"weights: openai/clip"):
        framework_of(dual(clip)).check(replace(dual(clip), backbone=BackboneConfig(name="resnet18")), cases.DATA)
    with pytest.raises(WeightsError, match="nowhere"):
        subwords_of(str(tmp_path / "nowhere"))
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(WeightsError, match="open_clip_torch"):
        open_clip_tokens("open_clip:ViT-B-32")


def encoder_cases(folder: Path) -> dict[str, tuple[ModelConfig, Any, StageConfig]]:
    any_bert = replace(
        cases.GRID, bert=replace(cases.GRID.bert, weights=str(folder)), vse_infty=VseInftyConfig(size_augment=0)
    )
    return {
        "vsepp": (replace(cases.MODEL, text=TextConfig(encoder=str(folder))), FEW, STAGE),
        "vse_infty": (any_bert, cases.GRID_DATA, cases.SET_FROZEN),
    }


@pytest.mark.parametrize("name", few(["vsepp", "vse_infty"]))
def test_any_text_encoder_trains(name: str, tmp_path: Path) -> None:
    """Shared or alone, killed or not, the same bits; its weights move, and the checkpoint repeats its result."""
    model, data, stage = encoder_cases(encoder_folder(tmp_path / "encoder"))[name]

    def unit(*names: str) -> UnitPlan:
        return cases.unit_of(*names, model=model, data=data, stage=stage)

    shared, alone = (
        cases.folders_of(unit(*NAMES[:2]), tmp_path / "shared"),
        cases.folders_of(unit(NAMES[1]), tmp_path / "alone"),
    )
    train_unit(unit(*NAMES[:2]), shared)
    cases.train_killed(unit(NAMES[1]), alone, 2)
    (key,) = alone
    assert cases.same_weights(shared[key], alone[key])
    assert open_checkpoint(alone[key].root).evaluate()["metrics"] == alone[key].result()
    initial = InitialModel(model, data, open_dataset(data))
    assert isinstance(initial.tokenizer, Subwords)
    groups = initial.heads(initial.backbone(1), 1).parameter_groups(0.1)
    assert [(group.name, group.lr_scale) for group in groups] == [("heads", 1.0), ("bert", 0.1)]
    assert len(groups[1].parameters) > 10
