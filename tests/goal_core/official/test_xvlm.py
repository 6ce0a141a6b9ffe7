"""An X-VLM checkpoint of the published layouts embeds and matches as an independent forward does, once converted."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, gelu

from goal_sweep.goal_core.basics.errors import ConfigError, WeightsError
from goal_sweep.goal_core.checkpoints.initial_model import check_initial_weights
from goal_sweep.goal_core.data.config import ImageConfig, ScenesConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.text import SPECIAL_PIECES, Wordpieces
from goal_sweep.goal_core.evaluation.evaluate import open_checkpoint
from goal_sweep.goal_core.models import BackboneConfig, BertConfig
from goal_sweep.goal_core.models.backbones import build_backbone
from goal_sweep.goal_core.models.config import ModelConfig, XvlmConfig
from goal_sweep.goal_core.models.systems.xvlm import XvlmHeads
from goal_sweep.goal_core.official import layouts, read_published
from goal_sweep.goal_core.official.convert import resized_tables
from tests.helpers.plain_bert import WIDTH, PlainBert, Tensors, bert_tensors, linear, norm

PIECES = Wordpieces((*SPECIAL_PIECES, *(f"piece{index}" for index in range(25))))
DATA = ScenesConfig(num_train=8, num_val=4, num_test=4, image=ImageConfig(size=64, resize=64, augment="xvlm"))
with torch.device("meta"):
    SWIN = build_backbone(BackboneConfig(name="swin_mini_patch8_window4", weights="random"), image_size=64, seed=0)
DIM, LAYERS, FUSION = 16, 3, 2
IMAGE = SWIN.num_features  # of the last of two stages
FIRST = IMAGE // 2
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@pytest.fixture(autouse=True)
def _small_swin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Swin of two stages and windows of 4 stands for Swin-B."""
    monkeypatch.setitem(layouts.SWINS, FIRST, "swin_mini_patch8_window4")


def vision(window: int = 4) -> Tensors:
    tensors = {"patch_embed.proj.weight": torch.randn(FIRST, 3, 8, 8) / 14}
    tensors |= {"patch_embed.proj.bias": torch.randn(FIRST) / 4} | norm("patch_embed.norm", FIRST)
    for stage, (width, heads) in enumerate(((FIRST, 2), (IMAGE, 4))):
        for block in range(2):
            at = f"layers.{stage}.blocks.{block}"
            tensors |= norm(f"{at}.norm1", width) | norm(f"{at}.norm2", width)
            tensors |= linear(f"{at}.attn.qkv", 3 * width, width) | linear(f"{at}.attn.proj", width, width)
            tensors[f"{at}.attn.relative_position_bias_table"] = torch.randn((2 * window - 1) ** 2, heads)
            tensors[f"{at}.attn.relative_position_index"] = torch.zeros(window**2, window**2, dtype=torch.int64)
            tensors |= linear(f"{at}.mlp.fc1", 4 * width, width) | linear(f"{at}.mlp.fc2", width, 4 * width)
    tensors["layers.0.blocks.1.attn_mask"] = torch.zeros(4, window**2, window**2)
    tensors["layers.0.downsample.reduction.weight"] = torch.randn(IMAGE, 4 * FIRST) / 16
    tensors |= norm("layers.0.downsample.norm", 4 * FIRST) | norm("norm", IMAGE)
    return {f"vision_encoder.{name}": tensor for name, tensor in tensors.items()}


def published(*, pretrained: bool, window: int = 4) -> Tensors:
    """All tensors, key by key."""
    torch.manual_seed(0)
    prefix = "text_encoder.bert." if pretrained else "text_encoder."
    tensors = vision(window) | bert_tensors(prefix, len(PIECES), LAYERS, FUSION, IMAGE) | {"temp": torch.tensor(0.05)}
    tensors |= linear("vision_proj", DIM, IMAGE) | linear("text_proj", DIM, WIDTH)
    tensors |= (
        linear("itm_head.0", 2 * WIDTH, WIDTH) | norm("itm_head.1", 2 * WIDTH) | linear("itm_head.3", 2, 2 * WIDTH)
    )
    if pretrained:
        tensors |= linear("bbox_head.0", 2 * WIDTH, WIDTH) | norm("bbox_head.1", 2 * WIDTH)
        tensors |= linear("bbox_head.3", 4, 2 * WIDTH) | linear("text_encoder.cls.predictions.decoder", 30, WIDTH)
    return tensors


def save(path: Path, tensors: Tensors) -> Path:
    torch.save({"model": tensors, "config": {"image_res": 224, "use_swin": True}}, path)
    return path


class Plain(PlainBert):
    """The forward pass written out, for one image and one caption."""

    def __init__(self, tensors: Tensors) -> None:
        named = {name.replace("text_encoder.bert.", "text_encoder."): tensor for name, tensor in tensors.items()}
        super().__init__(named, "text_encoder.")

    def image(self, pixels: Tensor) -> Tensor:
        """Tokens (17, F) of (3, 64, 64) uint8: the mean cell, then the cells."""
        x = (pixels.float() / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
        v = "vision_encoder."
        x = conv2d(x[None], self.t[f"{v}patch_embed.proj.weight"], self.t[f"{v}patch_embed.proj.bias"], stride=8)[0]
        x = self.norm(f"{v}patch_embed.norm", x.permute(1, 2, 0), 1e-5)
        x = self.block(f"{v}layers.0.blocks.0", x, heads=2, shift=0)
        x = self.block(f"{v}layers.0.blocks.1", x, heads=2, shift=2)
        x = torch.cat([x[0::2, 0::2], x[1::2, 0::2], x[0::2, 1::2], x[1::2, 1::2]], dim=-1)
        x = self.norm(f"{v}layers.0.downsample.norm", x, 1e-5) @ self.t[f"{v}layers.0.downsample.reduction.weight"].T
        for block in range(2):  # one window is the whole map, so nothing shifts
            x = self.block(f"{v}layers.1.blocks.{block}", x, heads=4, shift=0)
        cells = self.norm(f"{v}norm", x, 1e-5).flatten(0, 1)
        return torch.cat([cells.mean(dim=0, keepdim=True), cells])

    def block(self, at: str, x: Tensor, *, heads: int, shift: int) -> Tensor:
        """A block on a map (S, S, C), place by place: each sees those in its window, and across the edge none."""
        side, _, width = x.shape
        table, head = self.t[f"{at}.attn.relative_position_bias_table"], width // heads
        query, key, value = self.linear(f"{at}.attn.qkv", self.norm(f"{at}.norm1", x, 1e-5)).split(width, dim=-1)

        def window(row: int, column: int) -> tuple[int, int]:
            return (row + 4 - shift) // 4, (column + 4 - shift) // 4

        mixed = torch.zeros_like(x)
        places = [(row, column) for row in range(side) for column in range(side)]
        for here in places:
            seen = [place for place in places if window(*place) == window(*here)]
            rows, columns = (torch.tensor(part) for part in zip(*seen, strict=True))
            bias = table[(here[0] - rows + 3) * 7 + (here[1] - columns + 3)]
            for h in range(heads):
                mine = slice(h * head, (h + 1) * head)
                scores = key[rows, columns, mine] @ query[here][mine] / math.sqrt(head) + bias[:, h]
                mixed[here][mine] = torch.softmax(scores, dim=0) @ value[rows, columns, mine]
        x = x + self.linear(f"{at}.attn.proj", mixed)
        wide = gelu(self.linear(f"{at}.mlp.fc1", self.norm(f"{at}.norm2", x, 1e-5)))
        return x + self.linear(f"{at}.mlp.fc2", wide)

    def embedding(self, name: str, states: Tensor) -> Tensor:
        out = self.linear(name, states[0])
        return out / out.pow(2).sum().sqrt()

    def match(self, image: Tensor, states: Tensor) -> Tensor:
        for number in range(FUSION, LAYERS):
            states = self.layer(number, states, image)
        hidden = gelu(self.norm("itm_head.1", self.linear("itm_head.0", states[0]), 1e-5))
        return self.linear("itm_head.3", hidden)[1]


@pytest.mark.parametrize("pretrained", [True, False])
def test_converted_embeds_and_matches_as_an_independent_forward(tmp_path: Path, pretrained: bool) -> None:
    tensors = published(pretrained=pretrained)
    fingerprint, source = open_dataset(DATA).fingerprint, save(tmp_path / "a.th", tensors)
    converted = read_published("xvlm", source, PIECES, data=DATA, data_fingerprint=fingerprint)
    left = {reason.split(",")[0]: len(names) for reason, names in converted.leftovers.items()}
    heads = {"the head that predicts masked words": 2, "the head that predicts boxes": 6} if pretrained else {}
    assert left == {"computed anew for the size of the windows": 5, "0": 1, **heads}
    out = tmp_path / "x.safetensors"
    converted.write(out)
    begun = replace(
        converted.description.model, backbone=BackboneConfig(name="swin_mini_patch8_window4"), bert=BertConfig()
    )
    check_initial_weights(replace(begun, init_from=str(out)), DATA, open_dataset(DATA))  # nothing is downloaded
    with pytest.raises(ConfigError, match=r"fusion_layer .* got 6"):
        check_initial_weights(replace(begun, xvlm=XvlmConfig(), init_from=str(out)), DATA, open_dataset(DATA))
    opened, plain = open_checkpoint(out), Plain(tensors)
    model = opened.encoder.heads.eval()
    assert isinstance(model, XvlmHeads)
    assert float(model.temperature) == pytest.approx(0.05)
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    captions = [[2, 7, 9, 28, 3], [2, 12, 3]]
    tokens, lengths = torch.tensor([captions[0], [*captions[1], 0, 0]]), torch.tensor([5, 3])
    with torch.no_grad():
        images, states = [plain.image(image) for image in pixels], [plain.text(caption, FUSION) for caption in captions]
        ours = opened.encoder.images(pixels)
        theirs = torch.stack([plain.embedding("vision_proj", image) for image in images])
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
        ours = opened.encoder.texts(tokens, lengths)
        theirs = torch.stack([plain.embedding("text_proj", caption) for caption in states])
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
        tokens_of = model.image_tokens(opened.encoder.features(pixels))
        ours = model.match(tokens_of, model.text_states(tokens, lengths), lengths)
        theirs = torch.stack([plain.match(image, caption) for image, caption in zip(images, states, strict=True)])
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_tables_of_another_window_are_resized_on_a_grid_that_widens() -> None:
    """A table that is a polynomial of third degree in the places of the widening grid is met exactly."""
    old, new = 13, 23
    low, high = 1.01, 1.5
    for _ in range(60):
        ratio = (low + high) / 2
        low, high = (low, ratio) if sum(ratio**k for k in range(old // 2)) > new // 2 else (ratio, high)
    side = np.cumsum([ratio**k for k in range(old // 2)])
    known = np.concatenate([-side[::-1], [0], side])
    assert known[-1] == pytest.approx(new // 2, abs=1e-4)

    def surface(y: np.ndarray, x: np.ndarray) -> Tensor:
        y, x = y[:, None] / 11, x[None] / 11
        heads = [y**3 - 2 * x * y + 0.5, x**3 - x**2 * y + y**2]
        return torch.from_numpy(np.stack(heads)).flatten(1).T.float()

    name = "layers.0.blocks.0.attn.relative_position_bias_table"
    places = np.arange(-(new // 2), new // 2 + 1).astype(float)
    other = {"x": torch.ones(3), name: surface(known, known)}
    resized = resized_tables(other, {name: torch.empty(new * new, 2), "x": torch.empty(3)})
    torch.testing.assert_close(resized[name], surface(places, places), atol=1e-4, rtol=0)
    assert resized["x"] is other["x"]


def test_pretrained_windows_are_resized_and_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    source = save(tmp_path / "a.th", published(pretrained=True, window=3))
    converted = read_published("xvlm", source, PIECES, data=DATA, data_fingerprint="")
    table = "backbone.net.layers.1.blocks.0.attn.relative_position_bias_table"
    assert converted.tensors[table].shape == (49, 4)

    def refused(message: str, tensors: Tensors) -> None:
        with pytest.raises(WeightsError, match=message) as caught:
            read_published("xvlm", save(tmp_path / "b.th", tensors), PIECES, data=DATA, data_fingerprint="")
        assert "\n" not in str(caught.value)

    whole = published(pretrained=False)
    refused("lacks itm_head.0.weight", {k: v for k, v in whole.items() if k != "itm_head.0.weight"})
    refused("image encoder of width 96", whole | {"vision_encoder.patch_embed.proj.weight": torch.zeros(96, 3, 4, 4)})
    refused(
        "missing .text_encoder.encoder.layer.2.crossattention.self.key.bias",
        {k: v for k, v in whole.items() if k != "text_encoder.encoder.layer.2.crossattention.self.key.bias"},
    )
    refused("1 unexpected .extra", whole | {"extra": torch.zeros(1)})
    words = "text_encoder.embeddings.word_embeddings.weight"
    refused("has 31 rows, but the vocabulary has 30", whole | {words: torch.zeros(31, WIDTH)})


def test_full_size_backbone_has_the_published_names() -> None:
    with torch.device("meta"):
        config = BackboneConfig(name=layouts.SWINS[128], weights="random")
        net = build_backbone(config, image_size=384, seed=0, cells=True)
    model = ModelConfig(framework="xvlm", backbone=config)
    named = {
        layouts.XVLM.published_name(model, f"backbone.{name}"): tuple(tensor.shape)
        for name, tensor in net.state_dict().items()
    }
    assert named["vision_encoder.patch_embed.proj.weight"] == (128, 3, 4, 4)
    for stage, (depth, heads) in enumerate(((2, 4), (2, 8), (18, 16), (2, 32))):
        blocks = {name for name in named if name.startswith(f"vision_encoder.layers.{stage}.blocks.")}
        assert len(blocks) == 13 * depth
        for block in range(depth):
            at = f"vision_encoder.layers.{stage}.blocks.{block}.attn.relative_position_bias_table"
            assert named[at] == (23**2, heads)
    for stage, width in enumerate((128, 256, 512)):
        at = f"vision_encoder.layers.{stage}.downsample"
        assert named[f"{at}.reduction.weight"] == (2 * width, 4 * width)
        assert named[f"{at}.norm.weight"] == (4 * width,)
    assert not any(name.startswith("vision_encoder.layers.3.downsample") for name in named)
    assert named["vision_encoder.norm.weight"] == (1024,)
    assert len(named) == 13 * 24 + 3 * 3 + 4 + 2
