"""A VSE-infinity checkpoint of the published layout embeds as an independent forward does, once converted."""

import math
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.models import resnet18, resnext101_32x8d

from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.checkpoints.initial_model import check_initial_weights
from goal_sweep.goal_core.data.config import ImageConfig, RegionsConfig, ScenesConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.text import SPECIAL_PIECES, Wordpieces
from goal_sweep.goal_core.evaluation.evaluate import open_checkpoint
from goal_sweep.goal_core.models import BackboneConfig, BertConfig
from goal_sweep.goal_core.models.backbones import build_backbone
from goal_sweep.goal_core.models.frameworks import initial_weights_id
from goal_sweep.goal_core.official import layouts, read_published
from tests.helpers.plain_bert import WIDTH, PlainBert, bert_tensors, linear
from tests.helpers.region_files import write_regions

PIECES = Wordpieces((*SPECIAL_PIECES, *(f"piece{index}" for index in range(25))))
DIM, LAYERS, FEATURES = 16, 2, 8
GRID = ScenesConfig(num_train=8, num_val=4, num_test=4, image=ImageConfig(size=64, resize=64, augment="vse_infty"))


def gpool() -> dict[str, Tensor]:
    tensors = {}
    for suffix in ("", "_reverse"):
        for name, shape in (("weight_ih", (96, 32)), ("weight_hh", (96, 32)), ("bias_ih", (96,)), ("bias_hh", (96,))):
            tensors[f"gpool.gru.{name}_l0{suffix}"] = torch.randn(shape) / 6
    return tensors | {"gpool.linear.weight": torch.randn(1, 32) / 6}


def batch_norm(name: str, width: int) -> dict[str, Tensor]:
    return {
        f"{name}.weight": torch.rand(width) + 0.5,
        f"{name}.bias": torch.randn(width) / 4,
        f"{name}.running_mean": torch.randn(width) / 4,
        f"{name}.running_var": torch.rand(width) + 0.5,
        f"{name}.num_batches_tracked": torch.tensor(7),
    }


def image_of_regions() -> dict[str, Tensor]:
    """Image encoder of regions, key by key."""
    return {
        **linear("fc", DIM, FEATURES),
        **linear("mlp.layers.0", DIM // 2, FEATURES),
        **linear("mlp.layers.1", DIM, DIM // 2),
        **batch_norm("mlp.bns.0", DIM // 2),
        **batch_norm("mlp.bns.1", DIM),
        **gpool(),
    }


def image_of_cells() -> dict[str, Tensor]:
    """Image encoder of cells: a ResNet whose tensors are registered as a whole and as the two sequences that run."""
    net = resnet18().state_dict()
    net = {k: v if v.dtype == torch.int64 or "fc." in k else v * 0.9 + 0.05 for k, v in net.items()}
    places = {"conv1": "base.0", "bn1": "base.1", "layer1": "base.4", "layer2": "base.5", "layer3": "base.6"}
    tensors = {f"backbone.resnet.{name}": value for name, value in net.items()}
    for name, value in net.items():
        part, _, rest = name.partition(".")
        if part != "fc":
            tensors[f"backbone.{places.get(part, 'top.0')}.{rest}"] = value
    inner = linear("fc", DIM, 512) | gpool()
    return tensors | {f"image_encoder.{name}": value for name, value in inner.items()}


def text_parts() -> dict[str, Tensor]:
    """BERT with pooler and position numbers, the projection and the pooling operator, key by key."""
    tensors = bert_tensors("bert.", len(PIECES), LAYERS) | linear("bert.pooler.dense", WIDTH, WIDTH)
    return tensors | linear("linear", DIM, WIDTH) | gpool()


def save(path: Path, image: dict[str, Tensor], text: dict[str, Tensor], prefix: str = "module.", **opt: Any) -> Path:
    parts = [{prefix + name: value for name, value in part.items()} for part in (image, text)]
    torch.save({"epoch": 19, "best_rsum": 1.0, "opt": Namespace(**opt), "Eiters": 3, "model": parts}, path)
    return path


def plain_pool(tensors: dict[str, Tensor], elements: Tensor) -> Tensor:
    """The pooling operator on one whole set (N, D), rank by rank, then l2norm."""
    count = len(elements)
    codes = torch.zeros(count, 32)
    for position in range(count):
        for pair in range(16):
            angle = position / 10000 ** (2 * pair / 32)
            codes[position, 2 * pair], codes[position, 2 * pair + 1] = math.sin(angle), math.cos(angle)
    both = torch.zeros(count, 32)
    for suffix, order in (("", range(count)), ("_reverse", reversed(range(count)))):
        w_ih, w_hh = (tensors[f"gpool.gru.weight_{kind}_l0{suffix}"] for kind in ("ih", "hh"))
        b_ih, b_hh = (tensors[f"gpool.gru.bias_{kind}_l0{suffix}"] for kind in ("ih", "hh"))
        state = torch.zeros(32)
        for position in order:
            given, kept = w_ih @ codes[position] + b_ih, w_hh @ state + b_hh
            reset, update = torch.sigmoid(given[:32] + kept[:32]), torch.sigmoid(given[32:64] + kept[32:64])
            state = (1 - update) * torch.tanh(given[64:] + reset * kept[64:]) + update * state
            both[position] += state / 2
    weights = torch.softmax(both @ tensors["gpool.linear.weight"][0] / 0.1, dim=0)
    pooled = (elements.sort(dim=0, descending=True).values * weights[:, None]).sum(dim=0)
    return pooled / pooled.pow(2).sum().sqrt()


def plain_linear(tensors: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def plain_regions(tensors: dict[str, Tensor], regions: Tensor) -> Tensor:
    hidden = plain_linear(tensors, "mlp.layers.0", regions)
    spread = (tensors["mlp.bns.0.running_var"] + 1e-5).sqrt()
    hidden = (hidden - tensors["mlp.bns.0.running_mean"]) / spread
    hidden = (hidden * tensors["mlp.bns.0.weight"] + tensors["mlp.bns.0.bias"]).clamp(min=0)
    return plain_pool(tensors, plain_linear(tensors, "fc", regions) + plain_linear(tensors, "mlp.layers.1", hidden))


def plain_cells(tensors: dict[str, Tensor], pixels: Tensor) -> Tensor:
    """One image (3, S, S) of uint8 through torchvision's network up to its last map."""
    net = resnet18()
    net.load_state_dict(
        {k.removeprefix("backbone.resnet."): v for k, v in tensors.items() if k.startswith("backbone.resnet.")}
    )
    net.eval()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = ((pixels.float() / 255 - mean[:, None, None]) / std[:, None, None])[None]
    x = net.maxpool(net.relu(net.bn1(net.conv1(x))))
    cells = net.layer4(net.layer3(net.layer2(net.layer1(x))))[0].flatten(1).T
    inner = {k.removeprefix("image_encoder."): v for k, v in tensors.items() if k.startswith("image_encoder.")}
    return plain_pool(inner, plain_linear(inner, "fc", cells))


def plain_text(tensors: dict[str, Tensor], pieces: list[int]) -> Tensor:
    bert = PlainBert(tensors, "bert.")
    return plain_pool(tensors, bert.linear("linear", bert.text(pieces, LAYERS)))


@pytest.fixture
def small_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file says `wsl`; a ResNet-18 stands for the ResNeXt-101."""
    monkeypatch.setitem(layouts.RESNEXTS, "wsl", "resnet18.tv_in1k")


def check_texts(encoder: Any, text: dict[str, Tensor]) -> None:
    captions = [[2, 7, 9, 28, 3], [2, 12, 3]]
    tokens = torch.tensor([captions[0], [*captions[1], 0, 0]])
    ours = encoder.texts(tokens, torch.tensor([5, 3]))
    torch.testing.assert_close(ours, torch.stack([plain_text(text, c) for c in captions]), atol=1e-6, rtol=0)


def test_regions_embed_as_an_independent_forward(tmp_path: Path) -> None:
    torch.manual_seed(0)
    image, text = image_of_regions(), text_parts()
    source = save(tmp_path / "model_best.pth", image, text, precomp_enc_type="basic", img_dim=FEATURES)
    data = RegionsConfig(name="tiny", root=str(write_regions(tmp_path / "data")))
    fingerprint = open_dataset(data).fingerprint
    published = read_published("vse_infty", source, PIECES, data=data, data_fingerprint=fingerprint)
    left = {reason.split(",")[0]: len(names) for reason, names in published.leftovers.items()}
    assert left == {"a normalisation that the published code builds and never runs": 5, "BERT's pooler": 2, "0": 1}
    out = tmp_path / "x.safetensors"
    published.write(out)
    begun = replace(
        published.description.model, bert=BertConfig(), init_from=str(out)
    )  # a BERT to download, were it not given
    check_initial_weights(begun, data, open_dataset(data))
    assert initial_weights_id(begun).startswith("precomputed bert hub:bert-base-uncased init ")
    opened = open_checkpoint(out)
    opened.encoder.heads.eval()
    regions = torch.randn(3, 4, FEATURES)
    with torch.no_grad():
        ours = opened.encoder.images(regions)
        torch.testing.assert_close(ours, torch.stack([plain_regions(image, r) for r in regions]), atol=1e-6, rtol=0)
        check_texts(opened.encoder, text)
    assert open_checkpoint(out).evaluate()["captions"] == 15


@pytest.mark.usefixtures("small_grid")
def test_cells_embed_as_an_independent_forward(tmp_path: Path) -> None:
    torch.manual_seed(1)
    image, text = image_of_cells(), text_parts()
    source = save(tmp_path / "a.pth", image, text, precomp_enc_type="backbone", backbone_source="wsl")
    fingerprint = open_dataset(GRID).fingerprint
    published = read_published("vse_infty", source, PIECES, data=GRID, data_fingerprint=fingerprint)
    reasons = {reason: len(names) for reason, names in published.leftovers.items()}
    assert reasons["the backbone's classifier"] == 2
    assert reasons["the backbone's tensors, registered a second time"] == 120
    out = tmp_path / "x.safetensors"
    published.write(out)
    opened = open_checkpoint(out)
    opened.encoder.heads.eval()
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    with torch.no_grad():
        ours = opened.encoder.images(pixels)
        torch.testing.assert_close(ours, torch.stack([plain_cells(image, p) for p in pixels]), atol=1e-6, rtol=0)
        check_texts(opened.encoder, text)


@pytest.mark.usefixtures("small_grid")
def test_what_does_not_fit_is_one_clear_line(tmp_path: Path) -> None:
    torch.manual_seed(2)
    image, text = image_of_regions(), text_parts()

    def refused(message: str, image: dict[str, Tensor], text: dict[str, Tensor] = text, **opt: Any) -> None:
        opt = {"precomp_enc_type": "basic"} | opt
        data = GRID if opt["precomp_enc_type"] == "backbone" else RegionsConfig(name="tiny", root="nowhere")
        source = save(tmp_path / "a.pth", image, text, **opt)
        with pytest.raises(WeightsError, match=message) as caught:
            read_published("vse_infty", source, PIECES, data=data, data_fingerprint="")
        assert "\n" not in str(caught.value)

    refused("no_imgnorm", image, no_imgnorm=True)
    refused("precomp_enc_type = 'selfattention'", image, precomp_enc_type="selfattention")
    refused("backbone 'detector'; only wsl", image, precomp_enc_type="backbone", backbone_source="detector")
    refused("missing .image.backbone.base.0.weight", image, precomp_enc_type="backbone", backbone_source="wsl")
    refused("1 missing .image.mlp.layers.0.bias", {k: v for k, v in image.items() if k != "mlp.layers.0.bias"})
    refused("1 unexpected .image.extra", image | {"extra": torch.zeros(1)})
    misshapen = image | {"gpool.linear.weight": torch.zeros(1, 16)}
    refused(r"1 with the wrong shape .image.gpool.linear.weight is \(1, 16\), not \(1, 32\)", misshapen)
    rows = {"bert.embeddings.word_embeddings.weight": torch.zeros(31, WIDTH)}
    refused("has 31 rows, but the vocabulary has 30 word pieces", image, text | rows)


def test_full_size_backbone_has_the_published_tensors() -> None:
    with torch.device("meta"):
        name = layouts.RESNEXTS["wsl"]
        ours = build_backbone(BackboneConfig(name=name, weights="random"), image_size=512, seed=0, cells=True)
        theirs = resnext101_32x8d().state_dict()
        assert ours(torch.zeros(1, 3, 512, 512, dtype=torch.uint8)).shape == (1, 256, 2048)
    published = {name: tuple(value.shape) for name, value in theirs.items() if not name.startswith("fc.")}
    assert {name: tuple(value.shape) for name, value in ours.net.state_dict().items()} == published
