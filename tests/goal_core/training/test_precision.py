"""What half precision rounds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers.training_cases import FINETUNE, first_step, unit_of


def test_half_precision_rounds_a_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage = replace(FINETUNE, warmup_epochs=1)  # of the hardest negatives, others might be found
    wanted, _, _ = first_step(monkeypatch, tmp_path / "fp32", unit_of("con/con", stage=stage))
    found, _, _ = first_step(monkeypatch, tmp_path / "bf16", unit_of("con/con", stage=stage, precision="bf16"))
    assert all(one.dtype == torch.float32 for one in found)
    ours, theirs = (torch.cat([one.flatten() for one in both]) for both in (found, wanted))
    assert 0 < float((ours - theirs).norm() / theirs.norm()) < 0.2
