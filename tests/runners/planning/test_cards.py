"""The prices of cards: which one is taken, and what comes from the reference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.execution.capacity import Resources
from goal_sweep.runners.planning.cards import choose_card
from goal_sweep.runners.planning.devices import Devices

GPU = Devices(count=1, need=Resources(cpus=1, gpus=1))
CPU = Devices(count=1, need=Resources(cpus=1, gpus=0))
H200: dict[str, Any] = {
    "card": "NVIDIA H200",
    "kind": "cuda",
    "capability": "9.0",
    "memory_mb": 143771,
    "source": "python -m benchmarks.gpu",
    "measured_in": "bf16",
    "forward_ms": {"resnet152": {"image_size": 224, "fp32": 1.2, "tf32": 0.9, "bf16": 0.3}},
    "precision_factor": {"fp32": 5.0, "tf32": 1.6, "bf16": 1.0, "fp16": 1.0},
}


def written(folder: Path, **changes: Any) -> str:
    content = {key: value for key, value in {**H200, **changes}.items() if value is not None}
    (folder / "gpu.json").write_text(json.dumps({"prices": content, "steps": []}))
    return str(folder / "gpu.json")


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 3090", "RTX 3090", "rtx 3090"])
def test_a_card_is_taken_by_the_name_of_the_gpu(name: str) -> None:
    card, line = choose_card(replace(GPU, gpu=name))
    assert (card.card, line) == ("NVIDIA GeForce RTX 3090", "")
    assert choose_card(GPU, name) == (card, "")
    asked = Resources(cpus=1, gpus=1, accelerator=name)
    assert choose_card(replace(GPU, need=asked, gpu="NVIDIA H200")) == (card, "")  # the sweep runs on no other


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA GeForce RTX 3090 Ti", "24576"])
def test_hours_of_the_reference_are_said_to_be_those(name: str) -> None:
    card, line = choose_card(replace(GPU, gpu=name))
    assert card == choose_card(GPU)[0]
    assert line.startswith(f"no prices for {name} yet")
    assert card.card in line
    assert "python -m benchmarks.gpu" in line
    assert choose_card(GPU)[1] == choose_card(CPU)[1] == ""


def test_the_shipped_cards_have_every_price_and_say_where_it_is_from() -> None:
    for devices in (GPU, CPU):
        card, _ = choose_card(devices)
        assert min(card.train_factor, card.gmac_s, card.step_s) > 0
        assert set(card.precision_factor) == {"fp32", "tf32", "bf16", "fp16"}
        assert "forward_ms" in card.source
        assert "precision_factor: assumed" in card.source
    gpu, cpu = choose_card(GPU)[0], choose_card(CPU)[0]
    assert gpu.forward_s("resnet152", 224, "fp16") == pytest.approx(0.623e-3)
    assert gpu.forward_s("resnet152", 112, "fp32") == pytest.approx(2 * 0.623e-3 / 4)
    assert cpu.forward_s("resnet152", 224, "fp32") == pytest.approx(0.2735)
    assert gpu.forward_s("convnext_base", 224, "fp32") is None


def test_what_a_card_lacks_is_scaled_from_the_reference(tmp_path: Path) -> None:
    reference = choose_card(GPU)[0]
    card, line = choose_card(GPU, written(tmp_path))
    assert line == ""
    assert card.forward_s("resnet152", 224, "tf32") == pytest.approx(0.9e-3)
    assert card.forward_s("resnet152", 224, "fp16") == pytest.approx(0.3e-3)  # as much as bf16, by its factor
    ratio = 0.3 / 0.623
    assert card.forward_s("resnet50", 224, "bf16") == pytest.approx(0.268e-3 * ratio)
    assert card.forward_s("resnet50", 224, "fp32") == pytest.approx(5 * 0.268e-3 * ratio)
    assert card.gmac_s == pytest.approx(reference.gmac_s * ratio)
    assert (card.step_s, card.train_factor) == (reference.step_s, reference.train_factor)
    own, _ = choose_card(GPU, written(tmp_path, train_factor=3.1, gmac_s=1e-4, step_s=0.004))
    assert (own.train_factor, own.gmac_s, own.step_s) == (3.1, 1e-4, 0.004)


def test_precisions_that_a_card_lacks_follow_those_that_it_has(tmp_path: Path) -> None:
    forward = {"resnet152": {"image_size": 224, "tf32": 1.0}}
    own = {"measured_in": "tf32", "forward_ms": forward, "precision_factor": {"tf32": 1.0, "fp32": 3.0}}
    card, _ = choose_card(GPU, written(tmp_path, **own))
    assert card.precision_factor == {"tf32": 1.0, "fp32": 3.0, "bf16": 0.5, "fp16": 0.5}  # half of tf32's in 3090s
    assert card.forward_s("resnet152", 224, "fp16") == pytest.approx(0.5e-3)
    assert choose_card(GPU, written(tmp_path, precision_factor=None))[0].precision_factor["fp32"] == 2.0


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"card": None}, "card: "),
        ({"gmac_s": -1.0}, "gmac_s: "),
        ({"precision_factor": {"fp8": 1.0}}, "precision_factor.fp8"),
        ({"gmacs": 1.0}, "gmacs: "),
        ({"forward_ms": {"resnet50": {"image_size": 224, "bf16": 0.1}}}, "resnet152 is missing"),
        ({"forward_ms": {"resnet152": {"bf16": 0.1}}}, "missing of resnet152"),
        ({"kind": "cpu"}, "--card "),
    ],
)
def test_a_wrong_card_is_one_line_with_its_place(tmp_path: Path, changes: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_card(GPU, written(tmp_path, **changes))
    assert place in str(caught.value)
    assert "gpu.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_what_is_no_card_at_all_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "card.json").write_text(text)
    for given in (str(tmp_path / "card.json"), "GTX 480"):
        with pytest.raises(ConfigError, match=r"^[^\n]*(card\.json|GTX 480)[^\n]*$"):
            choose_card(GPU, given)
