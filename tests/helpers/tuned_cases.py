"""Fabricates the table of a sweep that tunes: its candidates, their studies, and both grids."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from goal_sweep.sweeps.results import DEFAULT as DEFAULT_GRID
from goal_sweep.sweeps.results import TUNED
from goal_sweep.sweeps.tuning import Candidate, Domain, Study, TuneConfig
from tests.helpers.results_cases import NAMES, SweepWriter, recalls

SPACE: dict[str, Domain] = {
    "objectives.params.tau": Domain(loguniform=(1.0, 20.0)),
    "objectives.params.margin": Domain(uniform=(0.05, 0.4)),
    "stages.frozen.lr": Domain(choice=(0.002, 0.004, 0.008)),
}
DEFAULT = {"tau": 10.0, "margin": 0.2, "lr": 0.008}
"""The sweep's own settings."""
BEST = {"tau": 3.0, "margin": 0.1, "lr": 0.004}
"""Where the planted score is highest."""
TUNE = TuneConfig(space=SPACE, budget=16)
TUNE_SEED = TUNE.seeds[0]


def names_of(objective: str) -> tuple[str, ...]:
    """The dimensions that an objective has: only nca, cir and the ms rows have tau."""
    has_tau = not objective.endswith("/con") or "-ms" in objective
    return tuple(name for name in ("tau", "margin", "lr") if name != "tau" or has_tau)


def quality(objective: str, values: Mapping[str, Any]) -> float:
    """How many points of recall the settings cost, at most 0: tau matters most, above all for cir."""
    weight = 4.0 if objective.endswith("/cir") else 1.5
    cost = 0.0
    if "tau" in values:
        cost += weight * math.log(values["tau"] / BEST["tau"]) ** 2
    cost += 30 * (values.get("margin", BEST["margin"]) - BEST["margin"]) ** 2
    return -float(cost + abs(math.log2(values.get("lr", BEST["lr"]) / BEST["lr"])))


def candidate(number: int, values: Mapping[str, Any], score: float | None, **changes: Any) -> Candidate:
    """One candidate of a study."""
    scores = {} if score is None else {str(TUNE_SEED): score}
    return replace(Candidate(number=number, values=dict(values), score=score, scores=scores), **changes)


def study(objective: str, budget: int = TUNE.budget, search_seed: int = 1, **changes: Any) -> Study:
    """The study of one objective, by random search; ``changes`` replace its parts."""
    generator = np.random.default_rng([search_seed, NAMES.index(objective)])
    names, candidates = names_of(objective), []
    for number in range(budget):
        drawn = {
            "tau": float(math.exp(generator.uniform(0, math.log(20)))),
            "margin": float(generator.uniform(0.05, 0.4)),
            "lr": float(generator.choice([0.002, 0.004, 0.008])),
        }
        own = DEFAULT if number == 0 else drawn
        values = {name: own[name] for name in names}
        noise = float(generator.normal(0, 0.6))
        score = round(300 + NAMES.index(objective) / 2 + 6 * quality(objective, values) + noise, 3)
        candidates.append(candidate(number, values, score, default=number == 0))
    chosen = max(candidates, key=lambda one: one.score or 0.0).number
    pair, _, triplet = objective.partition("/")
    made = Study(
        backbone="resnet152",
        pair=pair,
        triplet=triplet,
        names=names,
        candidates=tuple(candidates),
        chosen=chosen,
        is_over=True,
    )
    return replace(made, **changes)


def tuned_sweep(
    studies: Sequence[Study], tune: TuneConfig | None = None, seeds: Sequence[int] = (1, 2, 3), noise: float = 0.2
) -> SweepWriter:
    """A whole tuned sweep; a choice of the default is one training of both grids."""
    writer = unfinished_sweep(studies, tune, seeds)
    writer.studies = tuple(studies)
    generator = np.random.default_rng(5)
    for own in studies:
        objective = "/".join(own.objective)
        assert own.choice is not None
        default = {name: DEFAULT[name] for name in own.names if name in DEFAULT}
        for seed in seeds:
            for grid, values in ((DEFAULT_GRID, default), (TUNED, own.choice.values)):
                if own.choice.default and grid == TUNED:
                    continue
                shift = quality(objective, values) * 2 + float(generator.normal(0, noise))
                both = f"{DEFAULT_GRID},{TUNED}" if own.choice.default else grid
                write_cell(writer, objective, seed, both, values, metrics=recalls(objective, seed, shift))
    return writer


def unfinished_sweep(
    studies: Iterable[Study], tune: TuneConfig | None = None, seeds: Sequence[int] = (1, 2, 3), finished: int = 10_000
) -> SweepWriter:
    """A tuned sweep that still searches: its candidates from ``finished`` on wait."""
    studies = list(studies)
    objectives = ["/".join(own.objective) for own in studies]
    writer = SweepWriter("tuned", seeds=seeds, objectives=objectives, tune=tune or TUNE)
    for own in studies:
        for one in own.candidates:
            done = one.number < finished
            status = "waiting" if not done else "failed" if one.failed else "done"
            key = f"try-{'/'.join(own.objective)}-{one.number}"
            place: dict[str, Any] = {"training": key, "cell": key, "role": "candidate", "candidate": one.number}
            scores = {"val/rsum": one.score} if status == "done" and one.score is not None else {}
            writer.write("/".join(own.objective), TUNE_SEED, "frozen", status, metrics=scores, **place)
    return writer


def write_cell(
    writer: SweepWriter, objective: str, seed: int, grid: str, values: Mapping[str, Any], **columns: Any
) -> dict[str, Any]:
    """Write a reporting training of a grid: ``default``, ``tuned`` or ``default,tuned``."""
    settings = {
        ("stages.frozen.lr" if name == "lr" else f"objective.{name}"): f"{v:g}" if v == int(v) else repr(v)
        for name, v in values.items()
        if isinstance(v, float)
    }
    return writer.write(objective, seed, grid=grid, settings=settings, **columns)
