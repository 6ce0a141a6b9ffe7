"""The contract suite for parts of one's own: what is right passes, and each kind of mistake is found and named."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.basics.registry import Plugin
from goal_sweep.goal_core.checkpoints.initial_model import check_initial_weights
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.objectives import Triplets, triplet_weights
from goal_sweep.testing import check_training, check_weights
from tests.helpers.training_cases import DATA, MODEL

PLUGINS = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
pytestmark = pytest.mark.usefixtures("without_plugins")


def test_the_examples_of_the_page_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, backbone, *_, tests = re.findall(r"```python\n(.*?)```", PLUGINS, re.DOTALL)
    (tmp_path / "square.py").write_text(weight)
    (tmp_path / "convs.py").write_text(backbone)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Callable[[Path], None]] = {}
    exec(tests, names)
    names["test_square"](tmp_path / "trained")
    exec("import convs", {})
    check_training(tmp_path / "backbone", backbone="two_convs")


@pytest.mark.parametrize(
    ("weight", "complaint"),
    [
        (lambda triplets: 1.0, "gives float, not a tensor"),
        (lambda triplets: triplets.neg - triplets.neg[0], "order of the pairs"),
    ],
)
def test_a_wrong_triplet_weight_is_named(weight: Callable[[Triplets], Tensor], complaint: str) -> None:
    triplet_weights.register("mine")(weight)
    with pytest.raises(AssertionError, match=rf"mine.*{complaint}"):
        check_weights(triplet="mine")


def test_a_weight_that_remembers_does_not_continue_as_it_was(tmp_path: Path) -> None:
    seen: list[int] = []

    def remembering(triplets: Triplets) -> Tensor:
        seen.append(1)
        return torch.ones_like(triplets.pos) * (len(seen) % 7)

    triplet_weights.register("remembering")(remembering)
    with pytest.raises(AssertionError, match=r"remembering.*the training ends otherwise"):
        check_training(tmp_path, triplet="remembering")


ENCODERS = """
import numpy as np, torch
from torch import nn
from goal_sweep.models import image_backbones, text_encoders

@image_backbones.register("mine")
class Net(nn.Module):
    num_features = 8
    mean = std = 0.5

    def __init__(self, image_size):
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3)
        self.layer.weight.data *= {factor}

    def forward(self, images):
        rows = self.layer(images).mean((2, 3))
        return {rows}

@text_encoders.register("mine")
class Words(nn.Module):
    num_features = 4

    def __init__(self, vocab_size):
        super().__init__()
        self.words = nn.Embedding(vocab_size, 4)

    def forward(self, tokens, is_word):
        states = self.words(tokens)
        return {states}
"""


@pytest.mark.parametrize(
    ("part", "code", "complaint"),
    [
        ("rows", "rows - rows.mean(0)", "an image has another vector alone"),
        ("rows", "rows + torch.rand_like(rows)", "an image has another vector alone"),
        ("rows", "rows * float('nan')", "NaN"),
        ("rows", "rows.detach()", "no gradient reaches the weights of its backbone"),
        ("factor", "np.random.rand()", "the same seed draws other weights"),
        ("states", "states + states.mean(1, keepdim=True)", "a caption has another vector alone"),
        ("states", "states - states.mean((0, 1))", "a caption has another vector alone"),
        ("states", "nn.functional.dropout(states)", "a caption has another vector alone"),
        ("states", "states.detach()", "no gradient reaches the weights of its text encoder"),
    ],
)
def test_a_wrong_encoder_is_named(tmp_path: Path, part: str, code: str, complaint: str) -> None:
    Plugin(name="mine.py", text=ENCODERS.format(**{"rows": "rows", "factor": 1, "states": "states", part: code})).run()
    with pytest.raises(AssertionError, match=complaint):
        check_training(tmp_path, backbone="mine", text="mine")
    backbone, text = replace(MODEL.backbone, name="mine", weights="random"), replace(MODEL.text, encoder="mine")
    named = pytest.raises(WeightsError, match=rf"plugin mine\.py: .*{complaint}")
    with nullcontext() if "gradient" in complaint else named:
        check_initial_weights(replace(MODEL, backbone=backbone, text=text), DATA, open_dataset(DATA))


FRAMEWORK = """
import torch
from torch import nn
from goal_sweep.models import Framework, Heads, frameworks, text_head

class OwnHeads(Heads):
    def __init__(self, model, *, num_features, vocab_size, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.text = text_head(model, vocab_size)
        self.layers = nn.ModuleList([nn.Linear(num_features, 16)])

    def encode_images(self, features, lengths=None):
        return nn.functional.normalize(self.layers[0](features), dim=-1)

    def total_loss(self, surrogate, pairs, ids):
        return surrogate, {}

@frameworks.register("own")
class Own(Framework):
    heads_class = OwnHeads
"""


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("self.layers[0](features)", "features", r"\(8, 96\), \(8, 16\)"),
        ("torch.manual_seed(seed)", "torch.seed()", "the same seed draws other weights"),
        ("nn.ModuleList", "list", "an image has another vector .* loaded anew"),
        ("(features)", "(features - vars(self).setdefault('first', features.mean(0)))", "an image has another vector"),
        ("return surrogate, {}", "return surrogate * 3", "total_loss must give the loss and a dict"),
        ("return surrogate, {}", "return (pairs.image_BD - pairs.text_BD).sum(), {}", "total_loss does not pass"),
    ],
)
def test_a_wrong_framework_is_named(right: str, wrong: str, complaint: str) -> None:
    for text in (FRAMEWORK, FRAMEWORK.replace(right, wrong)):
        with nullcontext() if text == FRAMEWORK else pytest.raises(WeightsError, match=rf"own\.py: own: .*{complaint}"):
            Plugin(name="own.py", text=text).run()
            check_initial_weights(replace(MODEL, framework="own"), DATA, open_dataset(DATA))
