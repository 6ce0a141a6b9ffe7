"""A VSE++ checkpoint of the published layout embeds as an independent forward does, once converted."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.models import resnet18, resnet152

from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.checkpoints.file import load_module, read_checkpoint, read_model
from goal_sweep.goal_core.data.config import ImageConfig, ScenesConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.text import Vocabulary
from goal_sweep.goal_core.evaluation.evaluate import open_checkpoint
from goal_sweep.goal_core.models import BackboneConfig
from goal_sweep.goal_core.models.backbones import build_backbone
from goal_sweep.goal_core.models.systems.vsepp import VseppHeads
from goal_sweep.goal_core.official import read_published
from tests.helpers.python2_pickle import save_python2_torch

WORDS = tuple(f"word{index}" for index in range(21))
DIM, WORD_DIM = 24, 12
DATA = ScenesConfig(num_train=8, num_val=4, num_test=4, image=ImageConfig(size=64, resize=64, augment="none"))


def published_parts() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Both state dicts, key by key as RECIPES lists them, with weights that are not at rest anywhere."""
    torch.manual_seed(0)
    cnn = {name: value for name, value in resnet18().state_dict().items() if not name.startswith("fc.")}
    for name, value in cnn.items():
        if "running" in name or "bn" in name:
            cnn[name] = value if value.dtype == torch.int64 else torch.rand_like(value) + 0.5
    old = {name: value for name, value in cnn.items() if not name.endswith("num_batches_tracked")}
    image = {f"cnn.module.{name}": value for name, value in old.items()}
    image |= {"fc.weight": torch.randn(DIM, 512), "fc.bias": torch.randn(DIM)}
    text = {
        "embed.weight": torch.randn(len(WORDS) + 4, WORD_DIM),
        "rnn.weight_ih_l0": torch.randn(3 * DIM, WORD_DIM),
        "rnn.weight_hh_l0": torch.randn(3 * DIM, DIM) / 5,
        "rnn.bias_ih_l0": torch.randn(3 * DIM),
        "rnn.bias_hh_l0": torch.randn(3 * DIM),
    }
    return image, text


def save_published(path: Path, image: dict[str, Tensor], text: dict[str, Tensor], **options: Any) -> Path:
    opt = Namespace(**{"cnn_type": "resnet18", "data_name": "coco", "embed_size": DIM, "measure": "cosine", **options})
    save_python2_torch({"epoch": 28, "best_rsum": 400.0, "opt": opt, "Eiters": 9, "model": [image, text]}, path)
    return path


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    source = save_published(tmp_path / "model_best.pth.tar", *published_parts())
    fingerprint = open_dataset(DATA).fingerprint
    published = read_published("vsepp", source, Vocabulary(WORDS), data=DATA, data_fingerprint=fingerprint)
    assert published.leftovers == {}
    assert published.epoch == 28
    out = tmp_path / "out" / "best.safetensors"
    published.write(out)
    return out


def plain_images(image: dict[str, Tensor], pixels: Tensor) -> Tensor:
    """VSE++'s image side with torchvision's network: l2norm, linear, l2norm."""
    net = resnet18()
    net.fc = torch.nn.Identity()
    cnn = {name.removeprefix("cnn.module."): value for name, value in image.items() if name.startswith("cnn.")}
    net.load_state_dict(cnn, strict=False)
    net.eval()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    features = net((pixels.float() / 255 - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1))
    features = features / features.pow(2).sum(1, keepdim=True).sqrt()
    out = features @ image["fc.weight"].T + image["fc.bias"]
    embedded: Tensor = out / out.pow(2).sum(1, keepdim=True).sqrt()
    return embedded


def plain_text(text: dict[str, Tensor], words: list[int]) -> Tensor:
    """VSE++'s text side, one word at a time."""
    state = torch.zeros(DIM)
    for word in words:
        x = text["embed.weight"][word]
        given = text["rnn.weight_ih_l0"] @ x + text["rnn.bias_ih_l0"]
        kept = text["rnn.weight_hh_l0"] @ state + text["rnn.bias_hh_l0"]
        reset, update = (torch.sigmoid(given[k * DIM : (k + 1) * DIM] + kept[k * DIM : (k + 1) * DIM]) for k in (0, 1))
        fresh = torch.tanh(given[2 * DIM :] + reset * kept[2 * DIM :])
        state = (1 - update) * fresh + update * state
    return state / state.pow(2).sum().sqrt()


def test_converted_embeds_as_an_independent_forward(converted: Path) -> None:
    image, text = published_parts()
    trained = read_model(converted)
    model, words = trained.description.model, trained.description.vocabulary
    backbone = build_backbone(model.backbone, image_size=64, seed=5)
    load_module(backbone, trained.backbone, converted)
    heads = VseppHeads(model, num_features=512, vocab_size=len(words), seed=5).eval()
    load_module(heads, trained.heads, converted)
    pixels = torch.randint(0, 256, (3, 3, 64, 64), dtype=torch.uint8)
    captions = [[1, 5, 9, 20, 2], [1, 24, 2]]
    tokens = torch.tensor([captions[0], [*captions[1], 0, 0]])
    with torch.no_grad():
        ours = heads.encode_images(backbone(pixels))
        torch.testing.assert_close(ours, plain_images(image, pixels), atol=1e-6, rtol=0)
        ours = heads.encode_texts(tokens, torch.tensor([5, 3]))
        torch.testing.assert_close(ours, torch.stack([plain_text(text, c) for c in captions]), atol=1e-6, rtol=0)
    assert isinstance(words, Vocabulary)
    assert tuple(words.words) == WORDS


def test_converted_is_evaluated_like_any_cell(converted: Path) -> None:
    result = open_checkpoint(converted).evaluate()
    assert result["stage"] == "published"
    assert (result["images"], result["captions"]) == (4, 20)
    assert 0 <= result["metrics"]["test/rsum"] <= 600


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cnn_type": "vgg19"}, "image network 'vgg19'; only resnet18"),
        ({"use_abs": True}, "use_abs = True"),
        ({"measure": "order"}, "measure = 'order'"),
    ],
)
def test_another_variant_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    source = save_published(tmp_path / "a.pth.tar", *published_parts(), **options)
    with pytest.raises(WeightsError, match=message):
        read_published("vsepp", source, Vocabulary(WORDS), data=DATA, data_fingerprint="")


def test_what_does_not_fit_is_one_clear_line(tmp_path: Path) -> None:
    image, text = published_parts()

    def refused(message: str, source: Path, words: tuple[str, ...] = WORDS) -> None:
        with pytest.raises(WeightsError, match=message):
            read_published("vsepp", source, Vocabulary(words), data=DATA, data_fingerprint="")

    whole = save_published(tmp_path / "a.pth.tar", image, text)
    refused("has 25 rows, but the vocabulary has 24 words", whole, WORDS[1:])
    bare = {name: value for name, value in image.items() if not name.startswith("cnn.")}
    refused("precomputed features", save_published(tmp_path / "b.pth.tar", bare, text))
    moved = {name.replace("cnn.module.", "cnn."): value for name, value in image.items()}
    refused(r"100 missing .*100 unexpected", save_published(tmp_path / "c.pth.tar", moved, text))
    for name, value, said in (("cnn.module.bn1.running_var", -1.0, "negative variance"), ("fc.bias", torch.nan, "NaN")):
        broken = {**image, name: torch.full_like(image[name], value)}
        refused(f"contain .*{said}.*, in {name}", save_published(tmp_path / "e.pth.tar", broken, text))
    torch.save({"state_dict": text}, tmp_path / "d.pth.tar")
    refused(r"is not VSE\+\+'s", tmp_path / "d.pth.tar")


def test_full_size_backbone_has_the_published_tensors() -> None:
    with torch.device("meta"):
        ours = build_backbone(BackboneConfig(name="resnet152.tv_in1k", weights="random"), image_size=224, seed=0)
        theirs = resnet152().state_dict()
    published = {name: tuple(value.shape) for name, value in theirs.items() if not name.startswith("fc.")}
    assert {name: tuple(value.shape) for name, value in ours.net.state_dict().items()} == published
    assert len(published) == 930


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from goal_sweep.runners.cli.app import run

    monkeypatch.chdir(tmp_path)
    save_published(tmp_path / "model_best.pth.tar", *published_parts())
    ids = {word: index for index, word in enumerate(("<pad>", "<start>", "<end>", "<unk>", *WORDS))}
    (tmp_path / "vocab.json").write_text(json.dumps({"word2idx": ids}))
    call = "convert model_best.pth.tar --vocabulary vocab.json --sweep coco_vsepp+smoke --set data.num_test=30"
    assert run([*call.split(), "--out", "x.safetensors"]) == 0
    shown = capsys.readouterr().out
    assert "vsepp resnet18.tv_in1k, 127 tensors, all used; 25 words, epoch 28" in shown
    assert "nothing left over" in shown
    assert run(["evaluate", "x.safetensors"]) == 0
    assert "published" in capsys.readouterr().out
    _, state = read_checkpoint(tmp_path / "x.safetensors")
    assert state["card"]["data"]["num_test"] == 30
