"""The `tune` block of a sweep file: what it may say, and where its mistakes are reported."""

from pathlib import Path

import pytest

from goal_sweep.sweeps import SweepConfig, SweepError, load_sweep
from goal_sweep.sweeps.identity import from_mapping, to_mapping
from tests.helpers.mistakes import check_mistakes

TEXT = """\
extends: quickstart
name: mine
tune:
  space:
    objectives.params.tau: {loguniform: [1, 20]}
    stages.frozen.lr: {choice: [4e-3, 8e-3]}
  budget: 4
"""


def _write(folder: Path, text: str = TEXT, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def _problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(SweepError) as caught:
        load_sweep(path, overrides)
    return [line.removeprefix(f"{path.parent}/") for line in str(caught.value).splitlines()]


def test_all_but_the_space_and_the_budget_has_a_default(tmp_path: Path) -> None:
    tune = load_sweep(_write(tmp_path)).tune
    assert tune is not None
    assert (tune.search, tune.search_seed, tune.seeds, tune.metric) == ("random", 1, (101,), "val/rsum")
    assert (tune.batch, tune.include_default) == (4, True)
    domain = tune.space["objectives.params.tau"]
    assert (domain.kind, domain.bounds) == ("loguniform", (1.0, 20.0))
    config = load_sweep(_write(tmp_path))
    assert from_mapping(SweepConfig, to_mapping(config)) == config


def test_set_and_extends_replace_what_a_setting_may_be(tmp_path: Path) -> None:
    _write(tmp_path)
    child = "extends: mine.yaml\ntune:\n  space:\n    objectives.params.tau: {uniform: [2, 3]}\n"
    tune = load_sweep(_write(tmp_path, child, "child.yaml"), ["tune.budget=7"]).tune
    assert tune is not None
    assert tune.budget == 7
    assert tune.space["objectives.params.tau"].uniform == (2.0, 3.0)
    assert list(tune.space) == ["objectives.params.tau", "stages.frozen.lr"]


SPACE = "mine.yaml:5 | tune.space.objectives.params"
LR = "mine.yaml:6 | tune.space.stages.frozen"
SCHEDULE = "mine.yaml:7 | tune.space.stages.frozen.schedule"
TAU, RATE = "{loguniform: [1, 20]}", "stages.frozen.lr: {choice: [4e-3, 8e-3]}"
KINDS, DROPS = "uniform, loguniform, choice", "stages.frozen.lr_drops: {choice: [[], [4]]}"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (TAU, "{loguniform: [20, 1]}", f"{SPACE}.tau.loguniform | lower one first | [20.0, 1.0]"),
        (TAU, "{loguniform: [0, 2]}", f"{SPACE}.tau.loguniform | above 0 | [0.0, 2.0]"),
        (TAU, "{loguniform: [1, 2], choice: [1]}", f"{SPACE}.tau.loguniform | {KINDS} | loguniform and choice"),
        (TAU, "{choice: [-1, 2]}", f"{SPACE}.tau | above 0 | -1"),
        (TAU, "{choice: [1, 3, 1.0]}", f"{SPACE}.tau.choice | 1.0 more than once"),
        ("params.tau", "params.tua", f"{SPACE}.tua | 'objectives.params.tau' | margin"),
        ("frozen.lr: {choice: [4e-3, 8e-3]}", "frozen.batch_size: {choice: [64, 128]}", f"{LR}.batch_size | lr_drops"),
        (TAU, "{logunifrom: [1, 20]}", f"{SPACE}.tau.logunifrom | 'loguniform'"),
        (f"params.tau: {TAU}", "params.strict: {uniform: [0, 1]}", f"{SPACE}.strict | true or false | choice"),
        ("stages.frozen.lr", "stages.finetune.lr", "mine.yaml:6 | tune.space.stages.finetune.lr | 'stages.frozen.lr'"),
        ("stages.frozen.lr", "stages.frozen.bert_lr_scale", f"{LR}.bert_lr_scale | vsepp | BERT"),
        ("{choice: [4e-3, 8e-3]}", "{uniform: [-1, 1]}", f"{LR}.lr | above 0 | -1.0"),
        (RATE, "stages.frozen.warmup_epochs: {uniform: [0, 2]}", f"{LR}.warmup_epochs | integer | choice"),
        ("budget: 4", "budget: 0", "mine.yaml:7 | tune.budget | at least 1 | 0"),
        ("budget: 4", "budget: 4\n  metric: test/rsum", "mine.yaml:8 | tune.metric | val/rsum | 'test/rsum'"),
        ("budget: 4", "budget: 4\n  seeds: [7, 2]", "mine.yaml:8 | tune.seeds | 2 "),
        (
            "tune:",
            "objectives: {params: {tau: [1, 2]}}\ntune:",
            "mine.yaml:3 | objectives.params.tau | tune | one value",
        ),
        ("tune:", "stages: [{name: frozen, select_on: test}]\ntune:", "mine.yaml:4 | tune | frozen | val | test"),
        (RATE, f"{DROPS}\n    stages.frozen.schedule: {{choice: [drops, linear]}}", f"{SCHEDULE} | drops | linear"),
    ],
)
def test_each_mistake_is_named_once_with_its_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in TEXT
    check_mistakes(_problems(_write(tmp_path, TEXT.replace(old, new))), told)


def test_a_key_that_is_written_wrong_is_named_once(tmp_path: Path) -> None:
    lines = _problems(_write(tmp_path, TEXT.replace("budget", "bugdet")))
    check_mistakes(lines, "mine.yaml:7 | tune.bugdet | 'budget'")
