"""Code under an id: built-in weights are guarded by the version, all others by the file that defines them."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.basics.numerics import BUILT_IN_CODE, NUMERICS_VERSION
from goal_sweep.goal_core.basics.registry import Entry
from goal_sweep.goal_core.objectives import Triplets, baselines, pair_weights, triplet_weights
from tests.helpers.paths import ROOT


@pytest.mark.parametrize("weights", [pair_weights, triplet_weights, baselines], ids=lambda registry: registry.kind)
def test_the_code_of_the_built_in_weights_is_the_recorded_one(weights) -> None:
    for name in weights:
        assert weights[name].is_built_in, (
            f"{weights.kind} {name!r} has other code than goal_core.basics.numerics records: raise NUMERICS_VERSION "
            f"({NUMERICS_VERSION}) if that can move a number, and record the hash of its source"
        )
        assert weights[name].code == ""
    assert len(BUILT_IN_CODE) == len(pair_weights) + len(triplet_weights) + len(baselines)


ADDED = """
import json
from goal_sweep.goal_core.objectives import ObjectiveConfig, triplet_weights

@triplet_weights.register("soft", source="a test")
def soft(triplets, *, width: float = 0.2):
    return triplets.neg + width

print(json.dumps(ObjectiveConfig(pair="con", triplet="soft").resolved()))
"""


def test_an_added_weight_has_its_code_in_what_ids_hash(tmp_path: Path) -> None:
    def resolved(source: str) -> dict[str, object]:
        (tmp_path / "added.py").write_text(source)
        command = [sys.executable, str(tmp_path / "added.py")]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
        values: dict[str, object] = json.loads(done.stdout)
        return values

    before, after = resolved(ADDED), resolved(ADDED.replace("neg + width", "neg - width"))
    assert "pair_code" not in before
    assert before["triplet_code"] != after["triplet_code"]


def test_a_built_in_name_with_other_code_is_not_built_in() -> None:
    def nca(triplets: Triplets, *, tau: float) -> Tensor:
        return torch.sigmoid(tau * (triplets.neg + triplets.pos))

    edited = replace(triplet_weights["nca"], function=nca)
    assert not edited.is_built_in
    assert edited.code


def test_a_weight_without_a_file_has_no_id() -> None:
    typed = Entry(name="typed", function=eval("lambda triplets: triplets.neg"), source="", parameters={})
    assert not typed.is_built_in
    with pytest.raises(ConfigError, match="typed"):
        _ = typed.code
