"""What an objective's candidates are, and what their trainings are called and identified by."""

from dataclasses import replace

import pytest

from goal_sweep.sweeps import pack
from goal_sweep.sweeps.schema import ExecutionConfig
from tests.helpers.tuning_cases import LRS, SPACE, searched, space_of, tuned

VARIANT = "objectives.variant: {choice: [paper, released]}"


def test_an_objective_has_the_settings_that_it_knows() -> None:
    sweep = tuned(space=f"{SPACE}, {VARIANT}, {LRS}")
    assert tuple(space_of(sweep, "con/con").dimensions) == ("variant", "lr")
    assert tuple(space_of(sweep, "lin/nca").dimensions) == ("tau", "lr")  # the variants agree on it
    assert tuple(space_of(sweep, "sig-ms/cir").dimensions) == ("tau", "cir_shift", "variant", "lr")


def test_a_variant_is_searched_where_any_value_differs_from_the_sweeps_own() -> None:
    sweep = tuned("tune.include_default=false", space="objectives.variant: {choice: [tables, released]}")
    assert tuple(space_of(sweep, "lin/con").dimensions) == ("variant",)  # equal in both, and different in `paper`
    (only,) = space_of(sweep, "lin/con").without_scores(9)
    assert space_of(sweep, "lin/con").shown(only)["variant"] in ("tables", "released")
    sweep = tuned(space="objectives.variant: {choice: [released]}")
    assert space_of(sweep, "sig-ms/con").without_scores(9) == [{"variant": "paper"}, {"variant": "released"}]
    assert space_of(sweep, "lin/nca").without_scores(9) == [{}]  # none to search, as in `paper`


def test_every_objective_gets_exactly_the_budget_and_the_same_draws() -> None:
    sweep = tuned()
    drawn = {name: space.without_scores(16) for name, space in sweep.spaces.items() if name[1] != "con"}
    assert {len(values) for values in drawn.values()} == {16}
    taus = {name: [values["tau"] for values in found] for name, found in drawn.items()}
    assert len({tuple(found) for found in taus.values()}) == 1
    assert taus["sig", "cir"][0] == 10  # the sweep's own comes first
    assert all(isinstance(tau, float) and 1 <= tau <= 20 and float(f"{tau:.4g}") == tau for tau in taus["sig", "cir"])


@pytest.mark.parametrize("space", [f"{SPACE}, {LRS}", "objectives.params.tau: {choice: [1, 2, 3, 4, 5, 6, 7, 8]}"])
def test_the_seed_decides_and_a_larger_budget_continues(space: str) -> None:
    draws = [
        space_of(tuned(f"tune.search_seed={seed}", space=space), "sig/cir").without_scores(count)
        for seed, count in ((1, 4), (1, 8), (2, 8))
    ]
    assert draws[0] == draws[1][:4]
    assert draws[1] != draws[2]


def test_listed_values_come_in_every_combination_once_after_the_default() -> None:
    space = "objectives.params.tau: {choice: [1, 10]}, stages.frozen.lr: {choice: [4e-3, 8e-3]}"
    sweep = tuned(space=space, budget=9)
    shown = [
        tuple(space_of(sweep, "sig/nca").shown(one).values()) for one in space_of(sweep, "sig/nca").without_scores(9)
    ]
    assert shown[0] == (10.0, 8e-3)
    assert sorted(shown) == [(1.0, 4e-3), (1.0, 8e-3), (10.0, 4e-3), (10.0, 8e-3)]


def test_candidates_are_trainings_of_their_own_and_the_default_grid_stays_what_it_was() -> None:
    sweep = tuned("seeds=[1, 2]", budget=2)
    plain = tuned("seeds=[1, 2]", budget=2)
    plain = replace(plain, config=replace(plain.config, tune=None))
    whole = searched(sweep, lambda one: float(one.number or 0))
    assert {one.key for one in plain.trainings} <= {one.key for one in whole.reporting}
    candidates = [one for one in whole.trainings if one.number is not None]
    assert len(candidates) == 30
    assert not {one.key for one in candidates} & {one.key for one in whole.reporting}
    # Also where the seed and all settings are equal, because one has numbers of the test split and the other has not.
    same = tuned("seeds=[101]", "tune.seeds=[1]", budget=1)
    assert not {cell.id for cell in same.cells} & {one.cell.id for one in candidates}
    (named,) = [one for one in candidates if one.name.startswith("sig-ms/cir") and one.number == 1]
    assert named.name.startswith("sig-ms/cir tf_efficientnet_lite0 seed 101 candidate 1 tau ")
    assert {one.grids for one in whole.reporting} == {("default",), ("tuned",)}


def test_a_training_of_both_grids_is_one() -> None:
    sweep = tuned("seeds=[1]", budget=2)
    whole = searched(sweep, lambda one: -float(one.number or 0))
    assert {one.grids for one in whole.reporting} == {("default", "tuned")}
    assert {one.configurations for one in whole.reporting} == {("", "tuned")}
    assert len(whole.reporting) == 15


def test_candidates_share_units_with_each_other_and_not_with_what_reports() -> None:
    sweep = tuned("seeds=[1]", "tune.seeds=[101]", budget=4)
    whole = searched(sweep, lambda one: float(one.number or 0))
    units = pack(whole.trainings, ExecutionConfig(sharing="trunk", cells_per_unit=0))
    assert sorted(len(unit.trainings) for unit in units) == [30, 5 * 2 + 10 * 4]
    assert {len({one.cell.tested for one in unit.trainings}) for unit in units} == {1}
