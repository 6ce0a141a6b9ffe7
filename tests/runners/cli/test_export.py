"""A trained cell leaves at the command line, and writes over nothing."""

from pathlib import Path

import numpy as np
import pytest

from goal_sweep.goal_core.evaluation.trained_model import load_model
from goal_sweep.runners.cli.app import run
from tests.helpers.training_cases import trained_cell


@pytest.mark.exhaustive
def test_a_cell_is_exported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell, whole, towers = trained_cell(tmp_path, 1), tmp_path / "whole.safetensors", tmp_path / "towers"
    for given in ([], ["--onnx", str(towers), "--torch", str(towers)], ["--torch", "s3://bucket/towers"]):
        assert run(["export", str(cell), *given]) == 2
    for words, written in (
        (["--torch", str(towers), "--longest", "8"], [towers / "images.pt2", towers / "README.txt"]),
        (["--safetensors", str(whole)], [whole]),
    ):
        assert run(["export", str(cell), *words]) == 0
        assert str(written[0]) in capsys.readouterr().out
        written[-1].write_text("mine")
        assert run(["export", str(cell), *words]) == 2
        assert "--force" in capsys.readouterr().err
        assert written[-1].read_text() == "mine"
        assert run(["export", str(cell), *words, "--force"]) == 0
    assert np.array_equal(load_model(whole).encode_texts(["a"]), load_model(cell).encode_texts(["a"]))
    (best,) = cell.glob("best-*")
    assert run(["export", str(cell), "--safetensors", str(best), "--force"]) == 2
    assert "is read by this command" in capsys.readouterr().err
