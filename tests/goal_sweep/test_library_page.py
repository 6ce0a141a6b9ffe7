"""The recipes of docs/library.md, word for word."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from goal_sweep.objectives import GradientObjective
from tests.helpers.training_cases import DATA, trained_cell

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text()
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def block(containing: str) -> str:
    (found,) = (text for text in BLOCKS if containing in text)
    return found


def run_block(containing: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(block(containing), names)
    return names


def test_the_loop_runs() -> None:
    run_block("for monitoring")


def test_chunks_give_the_gradient_of_the_whole_batch() -> None:
    backward_in_chunks = run_block("def backward_in_chunks")["backward_in_chunks"]
    torch.manual_seed(0)
    layers = [nn.Linear(width, 16) for width in (48, 24)]
    encoders = [lambda rows, layer=layer: nn.functional.normalize(layer(rows), dim=1) for layer in layers]
    batches = [torch.randn(24, 48), torch.randn(24, 24)]
    objective = GradientObjective(pair="sig-ms", triplet="cir")
    objective(*(encode(rows) for encode, rows in zip(encoders, batches, strict=True))).backward()
    whole = [layer.weight.grad.clone() for layer in layers if layer.weight.grad is not None]
    for layer in layers:
        layer.zero_grad()
    backward_in_chunks(objective, encoders, batches, 5)
    for layer, expected in zip(layers, whole, strict=True):
        torch.testing.assert_close(layer.weight.grad, expected)


def test_recall_and_a_model_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_block("goal_sweep.recall(")
    assert capsys.readouterr().out.startswith("100.0")
    from PIL import Image

    from goal_sweep.goal_core.data.formats.opening import open_dataset

    cell, split = trained_cell(tmp_path, 1), open_dataset(DATA).splits["test"]
    (tmp_path / "flags").mkdir()
    for number, name in enumerate("ab"):
        Image.fromarray(split.load_image(number)).save(tmp_path / "flags" / f"{name}.png")
    next(cell.glob("best-*")).rename(tmp_path / "best-5.1.safetensors")
    monkeypatch.chdir(tmp_path)
    run_block("model.search(")
    assert len(eval(capsys.readouterr().out)) == 2
    run_block("model.export(")
    assert "texts.pt2" in eval(capsys.readouterr().out)
