from __future__ import annotations

import json
from typing import Any

import pytest

from analysis import AnalysisError
from analysis.tuning import Dimension, parse_tuning
from tests.helpers.tuned_cases import BUDGET, candidate, trail, tuning


def _parsed(content: Any) -> Any:
    return parse_tuning(json.dumps(content).encode(), "tuning.json of run 7")


def test_reads_what_the_contract_says() -> None:
    found = _parsed(tuning(["con/con", "sig-ms/cir"], stop_early={"first": 2, "factor": 2}))
    assert (found.budget, found.search, found.seeds, found.stop_early.first) == (BUDGET, "random", [101], 2)
    assert list(found.dimensions) == ["tau", "margin", "lr"]
    assert found.dimensions["tau"].parameter == "objective.tau"
    assert found.dimensions["lr"].parameter == "stages.frozen.lr"
    cir = found.trail("coco", "vsepp", "resnet152", ("sig-ms", "cir"))
    assert cir.names == ["tau", "margin", "lr"]
    assert cir.default.number == 0
    assert cir.choice.score == max(one.score for one in cir.candidates)
    assert found.trail("coco", "vsepp", "resnet152", ("con", "con")).names == ["margin", "lr"]
    assert found.trail("f30k", "vsepp", "resnet152", ("con", "con")) is None


def _changed(**changes: Any) -> dict[str, Any]:
    return tuning(trails=[trail("sig-ms/cir", 3, **changes)])


def _with_candidate(**changes: Any) -> dict[str, Any]:
    values = {"tau": 2.0, "margin": 0.1, "lr": 0.004}
    return _changed(candidates=[candidate(0, values, 300.0) | changes], chosen=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a JSON object with a format"),
        ([1], "not a JSON object with a format"),
        ({"budget": 3}, "not a JSON object with a format"),
        (tuning([], metric="test/rsum"), "metric"),
        (tuning([], budget=0), "budget"),
        (tuning([], search="anneal"), "search"),
        (tuning([], space=[]), "space"),
        (tuning([], space=[{"key": "k", "name": "k", "kind": "uniform", "low": 2.0, "high": 1.0}]), "k has no range"),
        (
            tuning([], space=[{"key": "k", "name": "k", "kind": "loguniform", "low": 0.0, "high": 1.0}]),
            "k has no range",
        ),
        (tuning([], space=[{"key": "k", "name": "k", "kind": "grid", "values": []}]), "k has no values"),
        (_changed(chosen=9), "sig-ms/cir of coco resnet152: candidate 9 was chosen but is not there"),
        (_changed(chosen=-1), "was chosen but is not there"),
        (_changed(names=["tau", "margin", "heat"]), "heat is not in the space"),
        (_changed(names=["tau"]), "does not have the values tau"),
        (_with_candidate(number=2), "candidates are not numbered from 0"),
        (_with_candidate(score=None), "candidate 0 was chosen without a score"),
        (_with_candidate(scores={"7": 300.0}), "has scores of other seeds"),
        (_with_candidate(score="high"), "score"),
        (_with_candidate(epochs=-1), "epochs"),
    ],
)
def test_a_damaged_file_is_one_clear_error(content: Any, message: str) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(AnalysisError) as error:
        parse_tuning(text.encode(), "tuning.json of run 7")
    assert str(error.value).startswith("tuning.json of run 7 is damaged")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_newer_format_says_so() -> None:
    with pytest.raises(AnalysisError, match=r"has format 2; this goal-sweep reads format 1"):
        _parsed({"format": 2, "surprise": True})


def test_not_a_number_is_no_score() -> None:
    content = json.dumps(_with_candidate(score=float("nan"))).encode()
    with pytest.raises(AnalysisError, match="score"):
        parse_tuning(content, "tuning.json")


TAU = Dimension(key="objectives.params.tau", name="tau", kind="loguniform", low=1.0, high=100.0)
MARGIN = Dimension(key="objectives.params.margin", name="margin", kind="uniform", low=0.0, high=1.0)
LR = Dimension(key="stages.frozen.lr", name="lr", kind="grid", values=[0.002, 0.004, 0.008])
VARIANT = Dimension(key="objectives.variant", name="variant", kind="choice", values=["paper", "released"])
TWO = Dimension(key="stages.frozen.lr", name="lr", kind="choice", values=[1, 2])
WIDE = Dimension(key="stages.frozen.lr", name="lr", kind="choice", values=[0.001, 0.01, 0.1])
ON = Dimension(key="objectives.params.on", name="on", kind="choice", values=[True, False, True])


@pytest.mark.parametrize(
    ("dimension", "value", "position", "edge"),
    [
        (TAU, 10.0, 0.5, ""),
        (TAU, 1.2, 0.0396, "lower edge"),
        (TAU, 90.0, 0.977, "upper edge"),
        (TAU, 200.0, 1.15, "above the range"),
        (MARGIN, 0.3, 0.3, ""),
        (MARGIN, 0.96, 0.96, "upper edge"),
        (MARGIN, -0.1, -0.1, "below the range"),
        (LR, 0.002, 0.0, "lower edge"),
        (LR, 0.004, 1 / 3, ""),
        (LR, 0.008, 1.0, "upper edge"),
        (WIDE, 0.01, 0.5, ""),
        (TWO, 2, 1.0, ""),
        (VARIANT, "paper", None, ""),
        (ON, True, None, ""),
    ],
)
def test_where_a_choice_lies_in_its_range(dimension: Dimension, value: Any, position: float | None, edge: str) -> None:
    assert dimension.position(value) == (None if position is None else pytest.approx(position, abs=2e-3))
    assert dimension.edge(value) == edge
