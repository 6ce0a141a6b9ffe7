from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from goal_sweep.sweeps import SweepError, load_sweep
from goal_sweep.sweeps.reading.document import Problem
from tests.helpers.mistakes import check_mistakes

Write = Callable[..., Path]
Errors = Callable[..., list[str]]

KEYS = "name data format scenes model backbones stages epochs lr image params tau x".split()
values = st.recursive(
    st.sampled_from(
        [None, True, -1, 0, 3, 0.5, float("nan"), 2**70, "", "all", "scenes", "karpathy", "frozen", "${X}"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values below `value`."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in below for place in [(*path, key), *places(child, (*path, key))]]


def problems_of(sweep: str) -> Sequence[Problem]:
    try:
        load_sweep(sweep, environ={})
    except SweepError as error:
        return error.problems or pytest.fail("an error without a problem")
    return ()


@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_written_either_loads_or_is_reported(write: Write, small_text: str, data: st.DataObject) -> None:
    yaml = YAML(typ="safe", pure=True)
    text = small_text + "objectives: {params: {tau: 3}}\nexecution: {sharing: trunk}\nstore: x\n"
    sweep = yaml.load(text)
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(places(sweep)))
        parent = sweep
        for key in path:
            parent = parent[key]
        parent[last] = data.draw(values)
        if isinstance(parent, dict) and data.draw(st.booleans()):
            parent[data.draw(st.sampled_from(KEYS))] = data.draw(values)
    with write("fuzz.yaml", "").open("w") as file:
        yaml.dump(sweep, file)
    for problem in problems_of("fuzz.yaml"):
        assert problem.where.source == "fuzz.yaml"
        assert problem.where.line > 0
        assert problem.message
        assert "\n" not in str(problem)


def test_key_called_like_the_format(write: Write, errors_of: Errors, small_text: str) -> None:
    lines = errors_of(write("a.yaml", small_text.replace("num_train: 20", "num_train: '20'\n  scenes: 3")))
    check_mistakes(lines, "a.yaml:4 | data.num_train | '20'", "a.yaml:5 | data.scenes | unknown key")


def test_required_number_that_is_wrong_does_not_hide_the_rest_of_its_stage(
    write: Write, errors_of: Errors, small_text: str
) -> None:
    text = small_text.replace("epochs: 3", "epochs: 3.5\n    batch_size: 1\n    lr_drops: [2]")
    lines = errors_of(write("a.yaml", text))
    check_mistakes(lines, "a.yaml:11 | stages.frozen.epochs | 3.5", "a.yaml:12 | stages.frozen.batch_size | 1")
    lines = errors_of(write("a.yaml", small_text.replace("epochs: 3", "epochs: 1_000_000_000")))
    check_mistakes(lines, "a.yaml:11 | stages.frozen.epochs | 100,000")
