"""A model's towers run without goal-sweep, each with its own weights alone, and give the model's vectors."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.data.config import DataConfig, PrecompConfig, RegionsConfig, ScenesConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.text import Tokenizer, Vocabulary, Wordpieces
from goal_sweep.goal_core.data.words import tokenize
from goal_sweep.goal_core.evaluation.trained_model import load_model
from goal_sweep.goal_core.models import BackboneConfig, ModelConfig, TextConfig
from goal_sweep.goal_core.models.backbones import build_backbone
from tests.helpers.region_files import write_regions
from tests.helpers.tiny_models import clip_folder, encoder_folder, siglip_folder
from tests.helpers.training_cases import DATA, GRID, GRID_DATA, MODEL, REGIONS, VECTORS, XVLM, XVLM_DATA, trained_cell
from tests.helpers.vector_files import write_vectors

MODELS: dict[str, Callable[[Path], tuple[ModelConfig, ScenesConfig]]] = {
    "GRU": lambda _: (MODEL, DATA),
    "encoder": lambda folder: (replace(MODEL, text=TextConfig(encoder=str(encoder_folder(folder)))), DATA),
    "vse_infty": lambda _: (GRID, GRID_DATA),
    "xvlm": lambda _: (XVLM, XVLM_DATA),
    "clip": lambda folder: (dual(clip_folder(folder)), DATA),
    "siglip": lambda folder: (dual(siglip_folder(folder)), DATA),
}


def dual(folder: Path) -> ModelConfig:
    return ModelConfig(framework="dual", backbone=BackboneConfig(name="tiny", weights=str(folder)), embed_dim=12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["onnx", "torch"])
@pytest.mark.parametrize("name", MODELS)
def test_towers_alone_give_the_vectors_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    model, data = MODELS[name](tmp_path / "pretrained")
    trained = load_model(trained_cell(tmp_path, 1, data, model=model))
    found = trained.export(tmp_path / "towers", kind)  # type: ignore[arg-type]  # of which it is one
    assert max(one for one in found.values() if one is not None) < 1e-5
    towers = [tmp_path / "towers" / file for file in found]
    if kind == "onnx":
        onnx = pytest.importorskip("onnx")
        weights = [{one.name for one in onnx.load(path).graph.initializer} for path in towers]
    else:
        weights = [set(torch.export.load(path).state_dict) for path in towers]
    assert not {one for one in weights[0] & weights[1] if one.startswith(("backbone.", "heads."))}

    rng = np.random.default_rng(0)
    how: dict[str, Any] = {"format": "PNG"} if kind == "onnx" else {"format": "TIFF", "tiffinfo": {274: 6}}
    pixels = rng.integers(0, 255, (50, 70, *[4] * (kind == "onnx")), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "towers" / "picture.png", **how)
    monkeypatch.chdir(tmp_path / "towers")
    about, _, program = Path("README.txt").read_text().partition("import numpy")
    assert ("cross encoder" in about) == (name == "xvlm")
    names: dict[str, Any] = {}
    exec(f"import numpy{program}", names)
    for rows, expected in (
        (names["image_rows"], trained.encode_images(["picture.png"])),
        (names["text_rows"], trained.encode_texts(["a red flag", "a dog"])),
    ):
        np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("regions", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_a_model_of_features_takes_them(tmp_path: Path, regions: bool) -> None:
    data: DataConfig
    if regions:
        data = RegionsConfig(name="tiny", root=str(write_regions(tmp_path / "data")), min_word_count=1)
    else:
        data = PrecompConfig(name="tiny", root=str(write_vectors(tmp_path / "data")), min_word_count=1)
    trained = load_model(trained_cell(tmp_path, 1, data, model=REGIONS if regions else VECTORS))
    trained.export(tmp_path / "towers", "torch", longest=8)
    given = torch.randn(2, 5, 8) if regions else torch.randn(2, 8)
    rows = torch.export.load(tmp_path / "towers" / "images.pt2").module()(given)
    np.testing.assert_allclose(rows.detach(), trained.encode_features(given), rtol=0, atol=1e-5)


ODD = [
    "I can't go; don’t cannot the man's o'clock u.s.a. 1,000 3.5 12:30 1/2-inch black-and-white ... -- gonna x_y '' 's",
    "👩\u200d👩\u200d👧 ❤\ufe0f café cafe\u0301 नमस्ते क्\u200dष ภาษาไทย 中文，很好。",
    "İstanbul STRASSE a\u00adb a\u200bb \u200da\u200d",
    "a\x1cb a\x85b a\u2028b\n<person>  rides -- a bike/horse ~ ",
    '🏴\U000e0067\U000e007f dog\U000e0067 col·lecció צה״ל צה"ל ի՞նչ o‘zbek ‘a’ black‑and‐white',
    "one two " * 40,
]


@pytest.mark.parametrize("kind", ["words", "word pieces", "cleaned word pieces"])
def test_the_exported_tokenizer_gives_the_same_ids(kind: str) -> None:
    captions = [*open_dataset(DATA).splits["train"].captions, *ODD]
    own: Tokenizer
    if kind == "words":
        own = Vocabulary(tuple(sorted({word for caption in captions for word in tokenize(caption)})))
    else:
        own = replace(Wordpieces.of_captions(captions, 1), cleans=kind.startswith("cleaned"))
    assert [one.ids for one in own.portable()[0].encode_batch(captions)] == [own.encode(one) for one in captions]


def test_a_saved_model_needs_no_other_file(tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    backbone = build_backbone(BackboneConfig(name="test_resnet", weights="random"), image_size=32, seed=3)
    save_file(backbone.net.state_dict(), weights)
    model = replace(MODEL, backbone=BackboneConfig(name="test_resnet", weights=str(weights)))
    trained = load_model(trained_cell(tmp_path, 1, model=model))
    trained.save(tmp_path / "whole.safetensors")
    weights.unlink()
    picture = [np.full((32, 40, 3), 7, np.uint8)]
    again = load_model(tmp_path / "whole.safetensors")
    assert np.array_equal(again.encode_images(picture), trained.encode_images(picture))
    assert np.array_equal(again.encode_texts(["a"]), trained.encode_texts(["a"]))


def test_what_cannot_be_exported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = load_model(trained_cell(tmp_path, 1))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigError, match=r"goal-sweep\[onnx\]"):
        trained.export(tmp_path / "towers", "onnx")
    with pytest.raises(ConfigError, match="at least 4"):
        trained.export(tmp_path / "towers", "torch", longest=3)
    assert not (tmp_path / "towers").exists()
