from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.sweeps import load_sweep
from goal_sweep.sweeps.axes import Axis
from tests.helpers.mistakes import check_mistakes

Write = Callable[..., Path]
Errors = Callable[..., list[str]]

OBJECTIVES = """\
objectives:
  params:
    tau: [10, 1]
    margin: 0.2
  variant:
    - paper
    - released
"""
TAU = Axis(key="objectives.params.tau", values=(10.0, 1.0))
VARIANT = Axis(key="objectives.variant", values=("paper", "released"))


def test_lists_become_axes_and_their_first_values_the_sweep(write: Write, small_text: str) -> None:
    text = small_text.replace("lr: 1e-3", "lr: [1e-3, 5e-4]\n    lr_drops: [[1], [], [1, 2]]")
    config = load_sweep(write(text=text + OBJECTIVES))
    assert config.axes == (
        TAU,
        VARIANT,
        Axis(key="stages.frozen.lr", values=(1e-3, 5e-4)),
        Axis(key="stages.frozen.lr_drops", values=((1,), (), (1, 2))),
    )
    assert config.objectives.params == {"tau": 10.0, "margin": 0.2}
    assert (config.objectives.variant, config.stages[0].lr, config.stages[0].lr_drops) == ("paper", 1e-3, (1,))


def test_one_value_in_a_list_is_that_value(write: Write, small_text: str) -> None:
    plain = load_sweep(write(text=small_text + "objectives: {params: {tau: 3}}\n"))
    text = small_text.replace("lr: 1e-3", "lr: [1e-3]\n    lr_drops: [[]]")
    listed = load_sweep(write(text=text + "objectives: {params: {tau: [3]}, variant: [paper]}\n"))
    assert listed == plain
    assert listed.axes == ()


def test_axes_can_be_set_and_inherited_and_replaced(write: Write, small_text: str) -> None:
    base = write("base.yaml", small_text + OBJECTIVES)
    child = write("child.yaml", "extends: base.yaml\nobjectives: {variant: paper}\n")
    config = load_sweep(child, ["stages.finetune.lr=[1e-4,2e-4]"])
    assert config.axes == (TAU, Axis(key="stages.finetune.lr", values=(1e-4, 2e-4)))
    assert load_sweep(child, ["objectives.params.tau=1"]).axes == ()
    assert load_sweep(base, ["stages.finetune.grad_clip=[1,2]"]).axes[-1].key == "stages.finetune.grad_clip"


FROZEN, VARIANTS = "small.yaml:13 | stages.frozen", "objectives.variant | 'paper', 'tables' or 'released'"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("lr: 1e-3", "lr: []", "small.yaml:12 | stages.frozen.lr | empty"),
        ("lr: 1e-3", "lr: [1e-3, x]", "small.yaml:12 | stages.frozen.lr | number | 'x'"),
        ("lr: 1e-3", "lr: [1e-3, 0.001]", "small.yaml:12 | stages.frozen.lr | 0.001 more than once"),
        ("lr: 1e-3", "lr: 1e-3\n    lr_drops: [1, [2]]", "small.yaml:13 | stages.frozen.lr_drops | list of such lists"),
        ("lr: 1e-3", "lr: 1e-3\n    warmup_epochs: [0, 1, 3]", f"{FROZEN}.warmup_epochs | 3 of 3 epochs"),
        ("lr: 1e-3", "lr: 1e-3\n    frozen_epochs: [0, 1]", f"{FROZEN}.frozen_epochs | backbone"),
        ("objectives: {}", "objectives: {variant: [paper, relesed]}", f"small.yaml:16 | {VARIANTS} | 'relesed'"),
        ("seeds: [1, 2]", "seeds: [1, 2]\naxes: []", "small.yaml:9 | axes | unknown key | objectives.params.tau"),
    ],
)
def test_one_mistake_is_one_line(write: Write, errors_of: Errors, small_text: str, old: str, new: str, told: str):
    check_mistakes(errors_of(write(text=(small_text + "objectives: {}\n").replace(old, new))), told)


@pytest.mark.parametrize(("setting", "values"), [("batch_size", "4, 8"), ("drop_last", "true, false")])
def test_what_the_cells_of_a_unit_have_in_common_takes_one_value(
    write: Write, errors_of: Errors, setting: str, values: str
) -> None:
    lines = errors_of(write(), f"stages.frozen.{setting}=[{values}]")
    check_mistakes(lines, f"--set stages.frozen.{setting} | stages.frozen.{setting} | one value | lr, lr_drops, ")


def test_values_that_do_not_go_together_are_named(write: Write, errors_of: Errors) -> None:
    sets = ["stages.finetune.frozen_epochs=[0,1]", "stages.finetune.ramp_epochs=[0,2]"]
    key = "stages.finetune.ramp_epochs"
    check_mistakes(errors_of(write(), *sets), f"--set {key} | {key} | frozen_epochs 1 ramp_epochs 2 | 2 epochs | 1 + 2")


def test_values_beyond_the_first_are_checked_beside_other_mistakes(write: Write, errors_of: Errors, small_text: str):
    text = small_text.replace("lr: 1e-3", "lr:\n      - 1e-3\n      - -1").replace("name: small", "name: 3")
    lines = errors_of(
        write(text=text), "objectives.params={temperature: [0.1, model]}", "objectives.baselines=[infonce]"
    )
    check_mistakes(
        lines,
        "small.yaml:1 | name | text | 3",
        "small.yaml:14 | stages.frozen.lr | above 0 | -1.0",
        "--set objectives.params | temperature | dual",
    )
