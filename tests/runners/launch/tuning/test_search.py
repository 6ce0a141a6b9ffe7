"""What a search proposes and chooses, with scores that are known without training."""

import math
import random

import pytest

from goal_sweep.runners.launch.tuning import describe
from goal_sweep.sweeps import Candidate, Training
from tests.helpers.tuning_cases import LRS, of, searched, study_of, tau_of, tuned

BEST_TAU = 3.0
TAU = "objectives.params.tau: {loguniform: [1, 20]}"
TPE = "tune.search=tpe"
TWO = "objectives={only: [con/nca, sig/cir]}"
NCA = "objectives={only: [sig/nca]}"


def _planted(training: Training) -> float:
    """A score that is highest at one tau."""
    return 400 - 100 * abs(math.log(tau_of(training) / BEST_TAU))


@pytest.mark.parametrize(
    ("search", "space", "budget"),
    [("random", TAU, 24), ("tpe", TAU, 24), ("random", "objectives.params.tau: {choice: [1, 2, 3, 4, 8, 16]}", 7)],
)
def test_each_search_finds_a_planted_optimum(search: str, space: str, budget: int) -> None:
    sweep = tuned(f"tune.search={search}", NCA, space=space, budget=budget)
    study = study_of(searched(sweep, _planted))
    assert study.is_over
    assert len(study.candidates) == budget
    assert study.choice is not None
    assert abs(math.log(float(study.choice.values["tau"]) / BEST_TAU)) < math.log(1.25)  # type: ignore[arg-type]


def test_tpe_proposes_where_scores_are_high() -> None:
    sweep = tuned(TPE, NCA, space=TAU, budget=40)
    taus = [one.values["tau"] for one in of(searched(sweep, _planted))]
    late = [abs(math.log(float(tau) / BEST_TAU)) for tau in taus[24:]]  # type: ignore[arg-type]
    early = [abs(math.log(float(tau) / BEST_TAU)) for tau in taus[:8]]  # type: ignore[arg-type]
    assert sum(late) / len(late) < 0.5 * sum(early) / len(early)


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_a_larger_budget_keeps_all_candidates_and_adds_the_rest(search: str) -> None:
    small, large = (
        searched(tuned(f"tune.search={search}", f"tune.budget={budget}", TWO), _planted) for budget in (16, 24)
    )
    for objective in ("sig/cir", "con/nca"):
        assert of(large, objective)[:16] == of(small, objective)
        assert len(of(large, objective)) == 24
    # Also where the smaller budget cuts a batch.
    odd = searched(tuned(f"tune.search={search}", "tune.budget=14", TWO), _planted)
    assert of(odd, "sig/cir") == of(large, "sig/cir")[:14]


def test_the_order_in_which_trainings_end_changes_nothing() -> None:
    sweep = tuned(NCA, "tune.budget=12", TPE, space=TAU)
    whole = searched(sweep, _planted)
    assert not whole.is_searching
    rng = random.Random(3)
    done: set[Training] = set()
    asked: set[Training] = set()
    for _ in range(100):
        waiting: list[Training] = []

        def look(one: Training, waiting: list[Training] = waiting) -> bool:
            asked.add(one)
            if one not in done:
                waiting.append(one)
            return one in done

        found = searched(sweep, _planted, done=look)
        if not waiting:
            break
        assert found.is_searching
        done.update(rng.sample(waiting, -(-len(waiting) // 2)))
    assert found.studies == whole.studies
    # A look that leaves out what nobody asked for trained no more than the whole search did.
    everything: set[Training] = set()
    searched(sweep, _planted, done=lambda one: not everything.add(one))  # type: ignore[func-returns-value]
    assert asked == everything


def test_a_batch_of_tpe_waits_for_the_scores_of_the_one_before() -> None:
    sweep = tuned(TPE, NCA, space=TAU)
    first = searched(sweep, _planted, done=lambda one: False)
    assert [one.number for one in of(first)] == [0, 1, 2, 3]
    second = searched(sweep, _planted, done=lambda one: (one.number or 0) < 4)
    assert [one.number for one in of(second)] == list(range(8))


def test_failed_candidates_are_named_and_the_others_decide() -> None:
    sweep = tuned(NCA, space=TAU, budget=4)
    study = study_of(searched(sweep, lambda one: "it diverged" if one.number == 2 else float(one.number or 0)))
    assert [one.failed for one in study.candidates] == ["", "", "it diverged", ""]
    assert (study.candidates[2].score, study.chosen) == (None, 3)
    none = searched(sweep, lambda one: "it diverged")
    assert not none.is_searching


def test_the_score_is_the_mean_over_the_seeds_of_the_search_and_the_first_of_equal_ones_is_chosen() -> None:
    sweep = tuned("tune.seeds=[101, 102]", NCA, space=TAU, budget=3)
    candidates = of(searched(sweep, lambda one: 10.0 * (one.number == 1) + one.cell.seed))
    assert [one.score for one in candidates] == [101.5, 111.5, 101.5]
    assert candidates[1].scores == {"101": 111.0, "102": 112.0}
    assert study_of(searched(sweep, lambda one: 1.0)).chosen == 0


def test_a_score_that_is_no_number_is_a_failure() -> None:
    (only,) = of(searched(tuned(NCA, space=TAU, budget=1), lambda one: math.nan))
    assert (only.score, only.scores) == (None, {})
    assert "val/rsum" in only.failed


def test_a_search_in_words_has_the_fewest_and_the_most_candidates_of_an_objective() -> None:
    of_some = f"objectives.params.tau: {{choice: [1, 2, 3]}}, {LRS}"
    for space, said in (("stages.frozen.lr: {choice: [1e-3, 2e-3, 3e-3]}", "3"), (of_some, "2 to 3")):
        sweep = tuned(space=space, budget=3)
        begun = searched(sweep, lambda one: 0.0, done=lambda one: False)
        assert f"search random: {said} of 3 candidates per objective, 0 of " in describe(begun)
    assert describe(searched(sweep, lambda one: 0.0)).startswith("search over: 0 of 15 objectives")


def test_the_studies_say_what_was_tried_for_each_objective() -> None:
    sweep = searched(tuned(budget=2), _planted)
    assert [study.objective for study in sweep.studies] == list(sweep.config.objectives.names)
    assert {study.backbone for study in sweep.studies} == {"tf_efficientnet_lite0"}
    default = of(sweep, "con/nca")[0]
    assert default == Candidate(
        number=0,
        values={"tau": 10.0, "lr": 0.008},
        default=True,
        score=default.score,
        scores={"101": default.score},  # type: ignore[dict-item]
    )
