"""The contract suite for parts of one's own: what is right passes, and each kind of mistake is found and named."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.basics.registry import REGISTRIES, Plugin
from goal_sweep.goal_core.checkpoints.initial_model import check_initial_weights
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.models import image_backbones, text_encoders
from goal_sweep.objectives import Triplets, triplet_weights
from goal_sweep.testing import check_backbone, check_text_encoder, check_training, check_weights
from tests.helpers.training_cases import DATA, MODEL

PLUGINS = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()


@pytest.fixture(autouse=True)
def _same_names_afterwards() -> Iterator[None]:
    before = {kind: dict(registry) for kind, registry in REGISTRIES.items()}
    yield
    for kind, registry in REGISTRIES.items():
        registry.clear()
        registry.update(before[kind])


def test_the_examples_of_the_page_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, backbone, *_, tests = re.findall(r"```python\n(.*?)```", PLUGINS, re.DOTALL)
    (tmp_path / "square.py").write_text(weight)
    (tmp_path / "convs.py").write_text(backbone)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Callable[[Path], None]] = {}
    exec(tests, names)
    names["test_square"](tmp_path / "trained")
    exec("import convs", {})
    check_backbone("two_convs")


def _whole_batch(triplets: Triplets) -> Tensor:
    return triplets.neg - triplets.neg[0]


def _counting(triplets: Triplets, calls: list[int] = []) -> Tensor:  # noqa: B006
    calls.append(1)
    return triplets.pos * len(calls)


@pytest.mark.parametrize(
    ("weight", "complaint"),
    [
        (lambda triplets: triplets.pos.sum(), r"gives \(\)"),
        (lambda triplets: triplets.pos.double(), "float64"),
        (lambda triplets: triplets.pos / 0 * 0, "NaN"),
        (_counting, "called again"),
        (_whole_batch, "order of the pairs"),
    ],
)
def test_a_wrong_triplet_weight_is_named(weight: Callable[[Triplets], Tensor], complaint: str) -> None:
    triplet_weights.register("mine")(weight)
    with pytest.raises(AssertionError, match=rf"mine.*{complaint}"):
        check_weights(triplet="mine")


class _Mixing(nn.Module):
    """Sees the other images of a batch, so that chunks differ."""

    num_features = 8

    def __init__(self, image_size: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3)

    def forward_features(self, images: Tensor) -> Tensor:
        found: Tensor = self.layer(images - images.mean(0))
        return found

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_features(images).mean((2, 3)) + self.forward_features(images).amax((2, 3))


def test_a_backbone_that_mixes_images_is_named() -> None:
    image_backbones.register("mixing")(_Mixing)
    with pytest.raises(AssertionError, match="mixing: chunks"):
        check_backbone("mixing")


def test_a_weight_that_remembers_does_not_continue_as_it_was(tmp_path: Path) -> None:
    seen: list[int] = []

    def remembering(triplets: Triplets) -> Tensor:
        seen.append(1)
        return torch.ones_like(triplets.pos) * (len(seen) % 7)

    triplet_weights.register("remembering")(remembering)
    with pytest.raises(AssertionError, match=r"remembering.*the training ends otherwise"):
        check_training(tmp_path, triplet="remembering")


class _Backwards(nn.Module):
    """Reads a caption from its end, padding first."""

    num_features = 4

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.words, self.rnn = nn.Embedding(vocab_size, 4), nn.GRU(4, 4, batch_first=True)

    def forward(self, tokens: Tensor, is_word: Tensor) -> Tensor:
        states: Tensor = self.rnn(self.words(tokens).flip(1))[0].flip(1)
        return states


def test_a_text_encoder_that_reads_the_padding_is_named() -> None:
    text_encoders.register("backwards")(_Backwards)
    with pytest.raises(AssertionError, match=r"backwards.*padding"):
        check_text_encoder("backwards")


def test_a_framework_whose_towers_differ_is_one_line(tmp_path: Path) -> None:
    text = """
from torch import nn
from goal_sweep.models import Framework, Heads, frameworks, text_head

class Uneven(Heads):
    def __init__(self, model, *, num_features, vocab_size, seed):
        super().__init__()
        self.text = text_head(model, vocab_size)

    def encode_images(self, features, lengths=None):
        return nn.functional.normalize(features, dim=-1)

@frameworks.register("uneven")
class UnevenFramework(Framework):
    heads_class = Uneven
"""
    Plugin(name="uneven.py", text=text).run()
    with pytest.raises(WeightsError, match=r"plugin uneven\.py: uneven: .*\(2, 96\), \(2, 16\)"):
        check_initial_weights(replace(MODEL, framework="uneven"), DATA, open_dataset(DATA))
