"""Code under an id: built-in weights are guarded by the version, all others by the file that defines them."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.basics.numerics import BUILT_IN_CODE, NUMERICS_VERSION
from goal_sweep.goal_core.basics.registry import REGISTRIES, Entry, Registry
from goal_sweep.goal_core.objectives import baselines, pair_weights, triplet_weights
from tests.helpers.paths import ROOT

numbers = itertools.count()


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Registry[Any]]:
    """Imports a module of the given source; gives the registry `own` in it."""

    def load(source: str) -> Registry[Any]:
        name = f"added_{next(numbers)}"
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module: ModuleType = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(REGISTRIES, "triplet_weights", triplet_weights)  # that of the source takes its place
        spec.loader.exec_module(module)
        own: Registry[Any] = module.own
        return own

    return load


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


def test_an_edited_built_in_weight_is_no_longer_built_in(registered: Callable[[str], Registry[Any]]) -> None:
    source = Path(inspect.getfile(triplet_weights["nca"].function)).read_text()
    edit = "tau * (triplets.neg - triplets.pos)", "tau * (triplets.neg + triplets.pos)"
    assert edit[0] in source
    # Registered elsewhere, under the same decorator.
    source = source.replace("triplet_weights: Registry", "own: Registry").replace("@triplet_weights.", "@own.")
    source = source.replace("@own.", "triplet_weights = own\n\n\n@triplet_weights.", 1).replace(
        "@own.", "@triplet_weights."
    )
    same, edited = registered(source), registered(source.replace(*edit))
    assert [name for name in same if same[name].is_built_in] == ["con", "nca", "cir"]
    assert [name for name in edited if edited[name].is_built_in] == ["con", "cir"]
    assert edited["nca"].code


def test_a_weight_without_a_file_has_no_id() -> None:
    typed = Entry(name="typed", function=eval("lambda triplets: triplets.neg"), source="", parameters={})
    assert not typed.is_built_in
    with pytest.raises(ConfigError, match="typed"):
        _ = typed.code
