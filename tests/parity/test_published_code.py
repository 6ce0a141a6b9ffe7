"""Objectives, losses, pooling and recalls against the published code itself, on random inputs.

`make parity PUBLISHED=DIR` runs it. DIR holds checkouts of what is compared: `VSE_Gradient` (microsoft), `vsepp`
(fartashf), `vse_infty` (woodfrog), `X-VLM` (zengyan-97); one that is absent is skipped. Of a file only the functions
and classes that are asked for are run, because most of these files do not import with today's libraries.
"""

import ast
import math
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from goal_sweep.goal_core.evaluation.retrieval import recall
from goal_sweep.goal_core.models.systems.vse_infty import GeneralizedPooling
from goal_sweep.goal_core.models.systems.xvlm import contrastive_loss
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from goal_sweep.goal_core.training.cells.optim import sum_hinge

if not os.environ.get("PUBLISHED"):
    pytest.skip("PUBLISHED=DIR names no published code to compare with", allow_module_level=True)

PUBLISHED = Path(os.environ["PUBLISHED"])
COMMAS = {"VSE_Gradient/Gradient/gradient.py": (174, 238)}
"""Lines of commit 3db6c6d that lack a comma at their end."""
PAIRS, TRIPLETS = ("con", "lin", "sig", "lin-ms", "sig-ms"), ("con", "nca", "cir")
SEEDS = range(5)
Gradients = tuple[Tensor, Tensor, Tensor]


def published(file: str, *wanted: str) -> dict[str, Any]:
    """Run the named functions and classes (or ``Class.method``) of a file, and return their globals."""
    path = PUBLISHED / file
    if not path.is_file():
        pytest.skip(f"no {path}")
    lines = path.read_text().split("\n")
    for number in COMMAS.get(file, ()):
        lines[number - 1] = lines[number - 1].rstrip().rstrip(",") + ","
    body = ast.parse("\n".join(lines)).body
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    body += [part for name in wanted if "." in name for part in classes[name.split(".")[0]].body]
    names = {name.split(".")[-1] for name in wanted}
    kept = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names]
    assert {node.name for node in kept} == names, f"{file} lacks some of {names}"
    globals_: dict[str, Any] = {
        "torch": torch, "nn": nn, "F": nn.functional, "Module": nn.Module, "np": np, "numpy": np, "math": math,
        "Variable": lambda tensor: tensor, "allgather": lambda tensor, *_: tensor,
        "pack_padded_sequence": nn.utils.rnn.pack_padded_sequence,
        "pad_packed_sequence": nn.utils.rnn.pad_packed_sequence,
    }  # fmt: skip
    exec(compile(ast.Module([*kept], []), str(path), "exec"), globals_)
    return globals_


def batch(seed: int, size: int = 32, width: int = 12) -> tuple[Tensor, Tensor]:
    """Pairs of unit vectors whose similarities lie about 0.6, so that all sets and gates have both kinds of members."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(size, width, generator=generator, dtype=torch.float64)
    sides = (common + torch.randn(size, width, generator=generator, dtype=torch.float64) for _ in range(2))
    images, texts = (nn.functional.normalize(side, dim=1) for side in sides)
    return images, texts


def with_gradients(loss: Callable[[Tensor, Tensor], Tensor], seed: int) -> Gradients:
    images, texts = (side.requires_grad_() for side in batch(seed))
    value = loss(images, texts)
    of_images, of_texts = torch.autograd.grad(value, (images, texts))
    return value.detach(), of_images, of_texts


def assert_equal(ours: Gradients, theirs: Gradients, tolerance: float) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance, check_dtype=False)


@pytest.mark.filterwarnings("ignore:<class 'TripletGradFun'> should not be instantiated")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("triplet", TRIPLETS)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(("variant", "tau"), [("released", 10.0), ("tables", 1.0)])
def test_gradients_are_those_of_the_authors(variant: str, tau: float, pair: str, triplet: str, seed: int) -> None:
    file, mode = "VSE_Gradient/Gradient/gradient.py", pair.replace("-", "_")
    ways = ("weight_triplet", "weight_pair", "grad_dir", "sig_ms_term", "lin_ms_term", "grad_dir_cos")
    weights = (
        *(f"weight_triplet_{name}" for name in TRIPLETS),
        *(f"weight_pair_{name.replace('-', '_')}" for name in PAIRS),
    )
    theirs = published(file, *ways, *weights, "TripletGrad", "TripletGradFun")
    # Names that the published forward pass takes for globals.
    theirs |= {"fun_rs": mode.endswith("ms"), "ms_a": 2.0, "ms_b": 10.0}
    peer = theirs["TripletGrad"]((triplet, mode, "cos"), tau=tau)
    shift: dict[str, Any] = {"cir_shift": 0.5} if triplet == "cir" else {}  # which `tables` takes from the text
    objective = GradientObjective(pair=pair, triplet=triplet, variant=variant, **shift)
    expected = with_gradients(lambda images, texts: peer(images, texts)[0], seed)
    found = with_gradients(objective, seed)
    stats = objective.forward_with_stats(*batch(seed))[1]
    # Their value is the sum of s_n - s_p.
    assert_equal(((stats.neg - stats.pos).sum(), *found[1:]), expected, 1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("file", ["vsepp/model.py", "vse_infty/lib/loss.py"])
def test_hinges_are_those_of_the_peers(file: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options: tuple[object, ...] = ()
    if file.startswith("vsepp"):
        theirs = published(file, "ContrastiveLoss", "cosine_sim")
    else:
        theirs, options = published(file, "ContrastiveLoss", "get_sim"), (None,)
    hardest = theirs["ContrastiveLoss"](*options, margin=0.2, max_violation=True)
    every = theirs["ContrastiveLoss"](*options, margin=0.2, max_violation=False)
    assert_equal(
        with_gradients(GradientObjective(pair="con", triplet="con"), seed), with_gradients(hardest, seed), 1e-12
    )
    ours = with_gradients(lambda images, texts: sum_hinge(images, texts, 0.2), seed)
    assert_equal(ours, with_gradients(every, seed), 2e-3)  # single precision, of a value of several hundred
    torch.testing.assert_close(ours[1], with_gradients(every, seed)[1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_pooling_is_that_of_vse_infinity(seed: int) -> None:
    theirs = published("vse_infty/lib/modules/aggr/gpo.py", "GPO", "positional_encoding_1d")["GPO"](32, 32)
    ours = GeneralizedPooling(32)
    names = {"gru": "rnn", "linear": "score"}
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)) / 4)
    ours.load_state_dict(
        {names[key.split(".")[0]] + "." + key.split(".")[1]: value for key, value in theirs.state_dict().items()}
    )
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 20, (16,), generator=generator)
    features = torch.randn(16, 20, 24, generator=generator)
    results = []
    for pool in (ours, lambda *given: theirs(*given)[0]):
        leaf = features.clone().requires_grad_()
        pooled = pool(leaf, lengths)
        (pooled * torch.arange(24)).sum().backward()
        results.append((pooled.detach(), leaf.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_itc_is_that_of_x_vlm(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("get_rank", "get_world_size"):
        monkeypatch.setattr(torch.distributed, name, lambda: 0)
    theirs = published("X-VLM/models/xvlm.py", "XVLMBase.get_contrastive_loss")["get_contrastive_loss"]
    ids = torch.randint(0, 24, (32,), generator=torch.Generator().manual_seed(seed))  # several share an image
    peer = SimpleNamespace(embed_dim=12, temp=torch.tensor(0.07, dtype=torch.float64))
    ours = with_gradients(lambda images, texts: contrastive_loss(images, texts, ids, peer.temp), seed)
    assert_equal(
        ours, with_gradients(lambda images, texts: theirs(peer, images, texts, idx=ids), seed), 1e-6
    )  # its targets are float32


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("peer", ["vsepp", "vse_infty", "X-VLM"])
def test_recalls_are_those_of_the_peers(peer: str, seed: int) -> None:
    images, _ = batch(seed, 60)
    noise = torch.randn(300, 12, generator=torch.Generator().manual_seed(seed + 100), dtype=torch.float64)
    texts = nn.functional.normalize(images.repeat_interleave(5, 0) + noise / 2, dim=1)
    each, queries = images.numpy(), texts.numpy()
    if peer == "X-VLM":
        found = published("X-VLM/Retrieval.py", "itm_eval")["itm_eval"](
            each @ queries.T,
            queries @ each.T,
            [n // 5 for n in range(300)],
            [range(5 * n, 5 * n + 5) for n in range(60)],
        )
        theirs = [found[f"{side}_r{k}"] for side in ("txt", "img") for k in (1, 5, 10)]
    elif peer == "vsepp":
        code = published("vsepp/evaluation.py", "i2t", "t2i")
        theirs = [*code["i2t"](each.repeat(5, 0), queries, 60)[:3], *code["t2i"](each.repeat(5, 0), queries, 60)[:3]]
    else:
        code = published("vse_infty/lib/evaluation.py", "i2t", "t2i")
        theirs = [*code["i2t"](60, each @ queries.T)[:3], *code["t2i"](60, each @ queries.T)[:3]]
    ours = recall(images, texts)
    assert 5 < ours["t2i_r1"] < 95
    assert [ours[f"{way}_r{k}"] for way in ("i2t", "t2i") for k in (1, 5, 10)] == pytest.approx(theirs, abs=1e-9)
