"""The `tune` block of a sweep file: what it may say, and where its mistakes are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps import SweepConfig, SweepError, from_mapping, load_sweep, to_mapping
from sweeps.axes import in_place

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
    assert (tune.batch, tune.stop_early, tune.include_default) == (4, None, True)
    domain = tune.space["objectives.params.tau"]
    assert (domain.kind, domain.bounds) == ("loguniform", (1.0, 20.0))


def test_a_sweep_is_stored_and_read_back_with_its_search(tmp_path: Path) -> None:
    config = load_sweep(_write(tmp_path), ["tune.stop_early={first: 2}"])
    assert from_mapping(SweepConfig, to_mapping(config)) == config
    assert from_mapping(SweepConfig, in_place(to_mapping(config))) == config


def test_set_and_extends_replace_what_a_setting_may_be(tmp_path: Path) -> None:
    _write(tmp_path)
    child = "extends: mine.yaml\ntune:\n  space:\n    objectives.params.tau: {uniform: [2, 3]}\n  stop_early: false\n"
    tune = load_sweep(_write(tmp_path, child, "child.yaml"), ["tune.budget=7"]).tune
    assert tune is not None
    assert tune.budget == 7
    assert tune.space["objectives.params.tau"].uniform == (2.0, 3.0)
    assert list(tune.space) == ["objectives.params.tau", "stages.frozen.lr"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "{loguniform: [1, 20]}",
            "{loguniform: [20, 1]}",
            "mine.yaml:5: tune.space.objectives.params.tau.loguniform: loguniform needs two bounds",
        ),
        ("{loguniform: [1, 20]}", "{loguniform: [0, 2]}", "loguniform needs bounds above 0"),
        (
            "{loguniform: [1, 20]}",
            "{loguniform: [1, 2], choice: [1]}",
            "needs one of uniform, loguniform, choice, grid",
        ),
        ("{loguniform: [1, 20]}", "{choice: [-1, 2]}", "mine.yaml:5: tune.space.objectives.params.tau: tau must be"),
        ("{loguniform: [1, 20]}", "{choice: [2, 2]}", "choice has 2 more than once"),
        ("{loguniform: [1, 20]}", "{choice: [1, 3, 1.0]}", "choice has 1 more than once"),
        ("params.tau", "params.tua", "mine.yaml:5: tune.space.objectives.params.tua: no objective of this sweep has"),
        (
            "frozen.lr: {choice: [4e-3, 8e-3]}",
            "frozen.batch_size: {choice: [64, 128]}",
            "mine.yaml:6: tune.space.stages.frozen.batch_size: cannot be searched, because candidates share batches",
        ),
        (
            "{loguniform: [1, 20]}",
            "{logunifrom: [1, 20]}",
            "mine.yaml:5: tune.space.objectives.params.tau.logunifrom: unknown key (did you mean 'loguniform'?)",
        ),
        (
            "objectives.params.tau: {loguniform: [1, 20]}",
            "objectives: {params: {tau: {loguniform: [1, 20]}}}",
            "mine.yaml:5: tune.space.objectives.params: write objectives.params.tau as one key",
        ),
        (
            "stages.frozen.lr: {choice: [4e-3, 8e-3]}",
            "stages.frozen: {lr: {choice: [4e-3]}}",
            "mine.yaml:6: tune.space.stages.frozen.lr: write stages.frozen.lr as one key",
        ),
        (
            "params.tau: {loguniform: [1, 20]}",
            "params.strict: {uniform: [0, 1]}",
            "mine.yaml:5: tune.space.objectives.params.strict: takes no numbers between others; write choice",
        ),
        ("stages.frozen.lr", "stages.finetune.lr", "the sweep has no stage 'finetune'; it has frozen"),
        ("stages.frozen.lr", "stages.frozen.rl", "a stage has no such setting (did you mean 'lr'?)"),
        ("stages.frozen.lr", "stages.frozen.bert_lr_scale", "framework vsepp has no BERT"),
        ("stages.frozen.lr", "model.embed_dim", "mine.yaml:6: tune.space.model.embed_dim: cannot be searched"),
        ("{choice: [4e-3, 8e-3]}", "{choice: [4e-3, fast]}", "fast cannot be its value"),
        ("{choice: [4e-3, 8e-3]}", "{uniform: [-1, 1]}", "mine.yaml:6: tune.space.stages.frozen.lr: lr must be"),
        ("stages.frozen.lr: {choice: [4e-3, 8e-3]}", "stages.frozen.warmup_epochs: {uniform: [0, 2]}", "write choice"),
        ("budget: 4", "budget: 0", "mine.yaml:7: tune.budget: budget must be at least 1"),
        ("budget: 4", "budget: 4\n  metric: test/rsum", "mine.yaml:8: tune.metric: must be one of val/rsum"),
        ("budget: 4", "budget: 4\n  seeds: [7, 2]", "mine.yaml:8: tune.seeds: 2 reports results of this sweep"),
        ("budget: 4", "budget: 4\n  search: grid", "mine.yaml:5: tune.space.objectives.params.tau: search grid needs"),
        ("budget: 4", "budget: 4\n  stop_early: {first: 1}", "mine.yaml:8: tune.stop_early: first must lie between"),
        (
            "frozen.lr: {choice: [4e-3, 8e-3]}\n  budget: 4",
            "frozen.warmup_epochs: {choice: [0, 3]}\n  budget: 4\n  stop_early: {first: 3}",
            "tune.stop_early: first must lie between the warm-up and the last epoch of frozen, in 4 to 4, got 3",
        ),
        ("budget: 4", "budget: 6\n  stop_early: {first: 2}", "mine.yaml:7: tune.budget: budget must be a multiple of"),
        ("budget: 4", "budget: 4\n  stop_early: true", "mine.yaml:8: tune.stop_early: must be a mapping"),
        ("budget: 4", "budget: 4000", "makes 60,000 trainings; a search may have 20,000"),
        ("tune:", "objectives: {params: {tau: [1, 2]}}\ntune:", "needs one value of every setting, but the sweep has"),
        ("tune:", "stages: [{name: frozen, select_on: test}]\ntune:", "needs stages that select on val, but frozen"),
        (
            "stages.frozen.lr: {choice: [4e-3, 8e-3]}",
            "stages.frozen.frozen_epochs: {choice: [0, 1]}",
            "stage frozen does not train the backbone",
        ),
        (
            "stages.frozen.lr: {choice: [4e-3, 8e-3]}",
            "stages.frozen.lr_drops: {choice: [[], [4]]}\n    stages.frozen.schedule: {choice: [drops, linear]}",
            "schedule: lr_drops belong to schedule drops, not to linear",
        ),
    ],
)
def test_each_mistake_is_named_once_with_its_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in TEXT
    (found,) = _problems(_write(tmp_path, TEXT.replace(old, new)))
    assert problem in found


def test_a_key_that_is_written_wrong_is_named_beside_the_one_that_is_missing(tmp_path: Path) -> None:
    found = _problems(_write(tmp_path, TEXT.replace("budget", "bugdet")))
    assert found[0] == "mine.yaml:3: tune.budget: this key is missing"
    assert found[1].startswith("mine.yaml:7: tune.bugdet: unknown key (did you mean 'budget'?)")


def test_values_of_two_settings_that_do_not_go_together_are_named(tmp_path: Path) -> None:
    text = TEXT.replace("frozen.lr: {choice: [4e-3, 8e-3]}", "frozen.warmup_epochs: {choice: [1, 3]}")
    text = text.replace("  budget", "    stages.frozen.ramp_epochs: {choice: [0, 4]}\n  budget")
    assert load_sweep(_write(tmp_path, text)).tune is not None
    clash = text.replace("ramp_epochs: {choice: [0, 4]}", "schedule: {choice: [drops, linear]}")
    clash = clash.replace("name: mine\n", "name: mine\nstages: [{name: frozen, lr_drops: []}]\n")
    clash = clash.replace("warmup_epochs: {choice: [1, 3]}", "lr_drops: {choice: [[], [2]]}")
    (found,) = _problems(_write(tmp_path, clash))
    assert "tune.space.stages.frozen.schedule: lr_drops 2 and schedule linear do not go together" in found


def test_a_grid_of_more_points_than_the_budget_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, TEXT.replace("{loguniform: [1, 20]}", "{grid: [1, 5, 20]}"))
    (found,) = _problems(path, "tune.search=grid")
    assert "tune.budget: 4 is less than the 7 combinations of con/nca" in found
    (found,) = _problems(path, "tune.search=grid", "tune.budget=0")
    assert "budget must be at least 1, got 0" in found  # and nothing of the number that stood in for it
    load_sweep(path, ["tune.search=grid", "tune.budget=7"])
