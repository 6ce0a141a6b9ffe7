"""Code under an id: built-in weights are guarded by the version, all others by their own source."""

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

import pytest

from goal_core.basics.errors import ConfigError
from goal_core.basics.numerics import BUILT_IN_CODE, NUMERICS_VERSION
from goal_core.basics.source_digest import source_digest
from goal_core.objectives import ObjectiveConfig, pair_weights, triplet_weights
from tests.helpers.paths import ROOT

WEIGHT = """
from goal_core.objectives import Triplets
from goal_core.basics.registry import Registry

weights = Registry("triplet weight")
SLOPE = 2.0

def helper(x):
    return x * SLOPE

@weights.register("soft", source="a test")
def weight(triplets: Triplets, *, width: float = 0.2):
    '''A docstring.'''
    return helper(triplets.neg) + width  # a comment
"""
numbers = itertools.count()


@pytest.fixture
def module_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of the given source."""

    def load(source: str) -> ModuleType:
        name = f"added_{next(numbers)}"
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.parametrize("weights", [pair_weights, triplet_weights], ids=lambda registry: registry.kind)
def test_the_code_of_the_built_in_weights_is_the_recorded_one(weights) -> None:
    for name in weights:
        assert weights[name].digest in BUILT_IN_CODE, (
            f"{weights.kind} {name!r} has other code than goal_core.basics.numerics records: raise NUMERICS_VERSION "
            f"({NUMERICS_VERSION}) if that can move a number, and record {weights[name].digest}"
        )
    assert len(BUILT_IN_CODE) == len(pair_weights) + len(triplet_weights)


def test_a_built_in_objective_says_nothing_of_its_code() -> None:
    assert not [key for key in ObjectiveConfig(pair="sig-ms", triplet="cir").resolved() if key.endswith("_code")]


ADDED = """
import json
from goal_core.objectives import ObjectiveConfig, triplet_weights
from goal_core.basics.source_digest import source_digest

@triplet_weights.register("soft", source="a test")
def soft(triplets, *, width: float = 0.2):
    return triplets.neg + width

resolved = ObjectiveConfig(pair="con", triplet="soft").resolved()
print(json.dumps([resolved.get("pair_code"), resolved["triplet_code"] == source_digest(soft)]))
"""


def test_an_added_weight_has_its_code_in_what_ids_hash(tmp_path: Path) -> None:
    (tmp_path / "added.py").write_text(ADDED)
    command = [sys.executable, str(tmp_path / "added.py")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
    assert json.loads(done.stdout) == [None, True]


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("+ width", "- width", True),
        ("x * SLOPE", "x + SLOPE", True),
        ("SLOPE = 2.0", "SLOPE = 3.0", True),
        ("  # a comment", "  # another one", False),
        ("A docstring.", "Another one,\n\n    longer.", False),
        ('source="a test"', 'source="a better one"', False),
        ("\ndef helper", "\n\n\ndef helper", False),
    ],
)
def test_code_counts_and_prose_does_not(
    module_of: Callable[[str], ModuleType], old: str, new: str, counts: bool
) -> None:
    assert old in WEIGHT
    before, after = module_of(WEIGHT), module_of(WEIGHT.replace(old, new))
    assert (source_digest(before.weight) != source_digest(after.weight)) is counts


USES = """
import functools
import numpy as np
import torch
import {other}
from {other} import far

def near(x):
    return x + 1

class Scale:
    def __init__(self, by):
        self.by = by
    def __call__(self, x):
        return near(x) * self.by

def doubled(function):
    @functools.wraps(function)
    def inner(x):
        return function(x) * 2
    return inner

TABLE = {{"a": 1.0, "f": [near, 2.0]}}
NAMES = {{"a", "b"}}
ARRAY = np.array([1.0, 2.0])
TENSOR = torch.tensor([1.0])
SCALE = Scale(3.0)
HALF = functools.partial(near, 0.5)

def in_comprehension(x):
    return sum(near(v) for v in x)

def in_lambda(x):
    return (lambda v: near(v))(x)

def in_inner(x):
    def inner(v):
        return near(v)
    return inner(x)

def with_table(x):
    return x * TABLE["a"]

def with_names(x):
    return len(NAMES) * x

def with_array(x):
    return x @ ARRAY

def with_tensor(x):
    return x @ TENSOR

def with_object(x):
    return SCALE(x)

def with_partial(x):
    return HALF() * x

def with_far(x):
    return far(x)

def with_module(x):
    return {other}.far(x)

def with_default(x, scale=TABLE["a"]):
    return x * scale

class Tools:
    @staticmethod
    def near(x):
        return near(x)

@functools.cache
def cached(x):
    return near(x)

def with_static(x):
    return Tools.near(x)

def with_cached(x):
    return cached(x)

PARTIAL = functools.partial(with_cached, 1.0)
NESTED = (frozenset({{"a", "b", "c"}}), ["d"])

def with_nested(x):
    return x * len(NESTED)

@torch.no_grad()
def under_library_decorator(x):
    return near(x)

@doubled
def under_own_decorator(x):
    return x

def one_line(x): "Prose."; return x + 4
"""
FAR = """
import math
def far(x):
    return deep(x) * math.pi
def deep(x):
    return x + 1
"""


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        ("in_comprehension", "return x + 1", "return x + 2"),
        ("in_lambda", "return x + 1", "return x + 2"),
        ("in_inner", "return x + 1", "return x + 2"),
        ("with_table", '{{"a": 1.0', '{{"a": 2.0'),
        ("with_table", "return x + 1", "return x + 2"),
        ("with_names", '"a", "b"', '"a", "b", "c"'),
        ("with_array", "[1.0, 2.0]", "[1.0, 3.0]"),
        ("with_tensor", "([1.0])", "([2.0])"),
        ("with_object", "Scale(3.0)", "Scale(4.0)"),
        ("with_object", "* self.by", "/ self.by"),
        ("with_object", "return x + 1", "return x + 2"),
        ("with_partial", "near, 0.5", "near, 0.25"),
        ("with_default", '"a": 1.0', '"a": 2.0'),
        ("under_library_decorator", "return x + 1", "return x + 2"),
        ("under_own_decorator", "function(x) * 2", "function(x) * 3"),
        ("one_line", "x + 4", "x + 5"),
        ("with_static", "return x + 1", "return x + 2"),
        ("with_cached", "return x + 1", "return x + 2"),
        ("cached", "return x + 1", "return x + 2"),
        ("PARTIAL", "return x + 1", "return x + 2"),
        ("PARTIAL", "with_cached, 1.0", "with_cached, 2.0"),
        ("SCALE", "* self.by", "/ self.by"),
        ("with_nested", '["d"]', '["e"]'),
        ("with_far", "x + 1\n#", ""),
        ("with_module", "x + 1\n#", ""),
    ],
)
def test_what_a_function_uses_counts_however_it_is_used(
    module_of: Callable[[str], ModuleType], function: str, old: str, new: str
) -> None:
    elsewhere = old.endswith("#")
    far = FAR.replace("return x + 1", "return x + 2") if elsewhere else FAR
    before, after = (module_of(USES.format(other=module_of(text).__name__)) for text in (FAR, far))
    if not elsewhere:
        assert old in USES
        after = module_of(USES.replace(old, new).format(other=module_of(FAR).__name__))
    assert source_digest(getattr(before, function)) != source_digest(getattr(after, function))


def test_equal_code_has_equal_digests(module_of: Callable[[str], ModuleType]) -> None:
    other = module_of(FAR).__name__
    first, second = module_of(USES.format(other=other)), module_of(USES.format(other=other))
    functions = [name for name, value in vars(first).items() if inspect.isfunction(value)]
    assert len(functions) > 15
    for name in functions:
        assert source_digest(getattr(first, name)) == source_digest(getattr(second, name)), name


def test_a_digest_is_the_same_in_every_process(module_of: Callable[[str], ModuleType]) -> None:
    module = module_of(USES.format(other=module_of(FAR).__name__))
    code = f"""
import sys
sys.path.insert(0, {str(Path(str(module.__file__)).parent)!r})
import {module.__name__} as module
from goal_core.basics.source_digest import source_digest
inner = eval("lambda x: [y for y in x]")
print(*map(source_digest, (module.with_nested, module.with_names, inner)))
"""
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(printed) == 1


def test_an_object_that_cannot_be_hashed_is_refused(module_of: Callable[[str], ModuleType]) -> None:
    module = module_of("import threading\nLOCK = threading.Lock()\ndef locked(x):\n    with LOCK:\n        return x\n")
    with pytest.raises(ConfigError, match="the code of an objective uses LOCK, a lock that cannot be hashed"):
        source_digest(module.locked)


def test_an_edited_built_in_weight_is_no_longer_built_in(
    module_of: Callable[[str], ModuleType],
) -> None:
    source = Path(inspect.getfile(triplet_weights["nca"].function)).read_text()
    assert "tau * (triplets.neg - triplets.pos)" in source
    registered = source.replace("triplet_weights: Registry", "own: Registry").replace("@triplet_weights", "@own")
    same = module_of(registered)
    edited = module_of(registered.replace("tau * (triplets.neg - triplets.pos)", "tau * (triplets.neg + triplets.pos)"))
    assert source_digest(same.nca) in BUILT_IN_CODE
    assert source_digest(edited.nca) not in BUILT_IN_CODE
    assert source_digest(edited.con) in BUILT_IN_CODE


def test_what_has_no_source_is_told_by_its_bytecode() -> None:
    one, two, same = (eval(f"lambda x: x + {number}") for number in (1, 2, 1))
    assert source_digest(one) == source_digest(same) != source_digest(two)
