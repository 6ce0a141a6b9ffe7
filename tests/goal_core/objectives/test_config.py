"""Naming an objective: what is accepted, what is refused, what a combination resolves to, how one is added."""

import json
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.objectives import ObjectiveConfig, accepted_parameters, pair_weights, triplet_weights
from tests.helpers.paths import ROOT


def test_resolved_holds_every_atom() -> None:
    config = ObjectiveConfig(pair="sig-ms", triplet="cir", params={"tau": 20})
    assert config.name == "sig-ms/cir"
    assert config.resolved() == {
        "pair": "sig-ms",
        "triplet": "cir",
        "tau": 20.0,
        "cir_shift": 0.0,
        "alpha": 2.0,
        "beta": 10.0,
        "lam": 0.5,
        "eps": 0.1,
        "strict": True,
        "empty": "neutral",
    }
    assert isinstance(config.resolved()["tau"], float)
    json.dumps(config.resolved(), allow_nan=False)


def test_variants_set_the_atoms_they_differ_in() -> None:
    assert accepted_parameters("lin", "cir", "tables") == {"tau": 1.0, "cir_shift": 0.0}
    assert accepted_parameters("con", "nca", "tables") == {"tau": 1.0}
    for pair in ("con", "lin-ms", "sig-ms"):
        assert accepted_parameters(pair, "con", "tables") == accepted_parameters(pair, "con", "released")
    assert accepted_parameters("con", "con", "released") == {"margin": 0.2, "gate": False}
    assert accepted_parameters("lin", "cir", "released") == {"tau": 10.0, "cir_shift": 0.5}
    assert accepted_parameters("lin-ms", "nca", "released") == {
        "tau": 10.0,
        "eps": 0.1,
        "strict": False,
        "count_ties": False,
    }
    assert accepted_parameters("sig-ms", "nca", "released")["empty"] == "zero"
    assert accepted_parameters("sig", "nca", "released") == accepted_parameters("sig", "nca", "paper")


def test_equal_atoms_resolve_equally_whatever_the_variant() -> None:
    by_hand = ObjectiveConfig(pair="con", triplet="con", params={"gate": False})
    assert by_hand.resolved() == ObjectiveConfig(pair="con", triplet="con", variant="released").resolved()
    overridden = ObjectiveConfig(pair="con", triplet="con", variant="released", params={"gate": True})
    assert overridden.resolved() == ObjectiveConfig(pair="con", triplet="con").resolved()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pair": "sgi", "triplet": "con"}, r"unknown pair weight 'sgi' \(did you mean 'sig'\?\)"),
        ({"pair": "sig", "triplet": "cir", "variant": "papre"}, r"unknown variant 'papre' \(did you mean 'paper'\?\)"),
        (
            {"pair": "sig", "triplet": "cir", "params": {"aplha": 1.0}},
            r"no parameter 'aplha' \(did you mean 'alpha'\?\)",
        ),
        ({"pair": "con", "triplet": "nca", "params": {"margin": 0.1}}, "no parameter 'margin'; it has: tau"),
        ({"pair": "con", "triplet": "nca", "params": {"tau": 0}}, "tau must be above 0, got 0"),
        ({"pair": "con", "triplet": "con", "params": {"margin": -0.1}}, "margin must be at least 0, got -0.1"),
        ({"pair": "con", "triplet": "nca", "params": {"tau": float("inf")}}, "tau must be a finite number"),
        ({"pair": "con", "triplet": "con", "params": {"gate": 1}}, "gate must be true or false, got 1"),
        (
            {"pair": "sig-ms", "triplet": "con", "params": {"empty": "one"}},
            "empty must be one of neutral, zero; got 'one'",
        ),
    ],
)
def test_what_is_wrong_is_said(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ObjectiveConfig(**arguments)


def test_the_documentation_names_every_parameter_and_weight() -> None:
    text = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8")
    for pair in pair_weights:
        for triplet in triplet_weights:
            for name in (pair, triplet, *accepted_parameters(pair, triplet)):
                assert f"`{name}`" in text, name
