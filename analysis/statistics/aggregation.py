"""Aggregates trainings to blocks: mean, sample standard deviation and n of each cell, and every missing seed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from goal_sweep.analysis.blocks import BLOCK_COLUMNS, OF_EACH, BlockKey, BlockResults, CellSummary, Gap, Grid
from goal_sweep.analysis.results import UNUSABLE, SweepResults
from goal_sweep.analysis.statistics.comparison import chance_rsum, compare, saved_ranks, shared_noise, weigh
from goal_sweep.analysis.wording import configuration_values, count_text, numbers_text, seeds_text
from goal_sweep.goal_core.evaluation.metrics import METRICS, PAIRS, TRIPLETS, few_images, in_order
from goal_sweep.sweeps.axes import VARIANT
from goal_sweep.sweeps.results import DEFAULT, TUNED, Header

TEST_SELECTION_WARNING = "Such numbers are optimistic; compare them only with work that selects in the same way."
"""Accompanies the numbers of models that were selected on the test split."""
_NOT_CHOSEN = "nothing is chosen for its objective"
_NO_NUMBERS = "done, but without a finite number for each test metric"


def aggregate(results: SweepResults) -> tuple[BlockResults, ...]:
    """All blocks of a sweep, including those without a number, by dataset, framework, backbone and stage order."""
    header, known = results.header, results.runs
    columns = [name for name in BLOCK_COLUMNS if name not in ("stage", *(axis.setting for axis in header.axes))]
    if header.grids:  # tuned trainings may have other variants, which make no block
        known = known[known["grid"] != TUNED]
    models = known[columns].drop_duplicates().astype(str).sort_values(columns).to_dict("records")
    keys = [key for model in models for key in _keys_of(results, {str(name): text for name, text in model.items()})]
    blocks = [_block(results, key) for key in keys]
    return tuple(_with_scale_of_other(block, blocks) if block.key.grid else block for block in blocks)


def _keys_of(results: SweepResults, model: Mapping[str, str]) -> Iterator[BlockKey]:
    """The blocks of a model: one for each stage and each configuration of the axes that touch it."""
    chosen = results.header.tune.space if results.header.tune else {}
    for stage, configurations in results.header.configurations.items():
        for configuration, grid in product(configurations, results.header.grids or ("",)):
            variant = configuration_values(configuration).get("variant", model.get("variant", ""))
            if grid == TUNED and VARIANT in chosen:  # so that this grid has objectives of several
                variant = OF_EACH
            yield BlockKey(**{**model, "variant": variant}, stage=stage, configuration=configuration, grid=grid)


def same_but_grid(key: BlockKey, other: BlockKey) -> bool:
    """Whether two keys are of the same block, perhaps of different grids."""
    variants = {key.variant, other.variant}
    plain = (replace(each, grid="", variant="") for each in (key, other))
    return (len(variants) == 1 or OF_EACH in variants) and len(set(plain)) == 1


def missing_counts(results: SweepResults, blocks: Iterable[BlockResults]) -> Counter[str]:
    """How many requested trainings have no result, by status; one that is in several blocks is one."""
    states = Counter(str(state) for state in results.runs["state"] if state != "done")
    absent = sum(gap.status == "absent" for block in blocks for _, gap in block.gaps)
    return states + Counter(absent=absent)


def cells_frame(blocks: Iterable[BlockResults]) -> pd.DataFrame:
    """The blocks as a tidy frame: a row for each block, metric, pair and triplet weight that the sweep includes.

    ``std`` is with ddof=1, ``missing`` names seeds by status; the last columns are of the difference from con/con in
    points: the simultaneous 95 % interval, ``p`` corrected for all pairs of the grid, and the verdict.
    """
    blocks = tuple(blocks)
    own = (*BLOCK_COLUMNS, *(name for name in ("configuration", "grid") if any(getattr(b.key, name) for b in blocks)))
    rows: list[tuple[Any, ...]] = []
    for block in blocks:
        key = [getattr(block.key, name) for name in own]
        for grid in block.grids.values():
            for objective, cell in grid.cells.items():
                if cell.requested:
                    missing = "; ".join(gap.text for gap in cell.gaps)
                    change = grid.comparison.from_baseline.get(objective)
                    tested = (change.estimate, change.low, change.high, change.p, change.verdict) if change else ()
                    place = (grid.metric.direction, grid.metric.name, *objective)
                    numbers = (cell.mean, cell.std, cell.n, missing, *tested, *[None] * (5 - len(tested)))
                    rows.append((*key, *place, *numbers))
    columns = [*own, "direction", "metric", "pair", "triplet", "mean", "std", "n", "missing"]
    return pd.DataFrame(rows, columns=[*columns, "difference", "low", "high", "p", "verdict"])


def _with_scale_of_other(block: BlockResults, blocks: Sequence[BlockResults]) -> BlockResults:
    """A block of a tuned sweep, with the means of its other grid, which share its colour scale."""
    others = [other for other in blocks if other is not block and same_but_grid(other.key, block.key)]
    beside = {key: tuple(mean for other in others for mean in other.grids[key].means.values()) for key in block.grids}
    return replace(block, grids={key: replace(grid, beside=beside[key]) for key, grid in block.grids.items()})


def _block(results: SweepResults, key: BlockKey) -> BlockResults:
    header, runs = results.header, results.of_block(results.runs, key)
    pairs, triplets = zip(*header.objectives, strict=True)
    names = list(product(in_order(pairs, PAIRS), in_order(triplets, TRIPLETS)))
    by_objective = {(str(name[0]), str(name[1])): part for name, part in runs.groupby(["pair", "triplet"])}
    gaps = {name: _gaps(header, by_objective.get(name, runs.iloc[:0])) for name in header.objectives}
    done = runs[runs["state"] == "done"]
    images, grids = shared_noise(done), {}
    for metric in METRICS.values():
        values = done.pivot(index="seed", columns=["pair", "triplet"], values=metric.test).astype(float)
        values = values.reindex(columns=pd.MultiIndex.from_tuples(names))
        of_images = None if images is None else images[metric.key]
        grids[metric.key] = Grid(
            metric=metric,
            cells={n: CellSummary.of(values[n].dropna(), gaps.get(n, ()), requested=n in gaps) for n in names},
            comparison=compare(values, of_images),
            weights=weigh(values, of_images),
        )
    protocol, brief = _protocol(results, key, runs), _brief(results, key)
    return BlockResults(key=key, protocol=protocol, grids=grids, brief=brief, chance=chance_rsum(_captions(done)))


def _gaps(header: Header, runs: pd.DataFrame) -> tuple[Gap, ...]:
    by_seed = runs.set_index("seed")
    states, reasons = by_seed["state"].to_dict(), by_seed["reason"].to_dict()
    reasons |= {seed: _NO_NUMBERS for seed, state in states.items() if state == UNUSABLE}
    absent = _NOT_CHOSEN if header.tune else ""
    return tuple(
        Gap(seed=seed, status=states.get(seed, "absent"), reason=reasons.get(seed, absent))
        for seed in header.seeds
        if states.get(seed) != "done"
    )


def _protocol(results: SweepResults, key: BlockKey, runs: pd.DataFrame) -> str:
    seeds, tune = results.header.seeds, results.header.tune
    said = (
        f"Mean ± sample standard deviation (ddof = 1) over {count_text(len(seeds), 'seed')} "
        f"({numbers_text(seeds)}); n is shown where seeds are missing."
    )
    if len(seeds) == 1:
        said = f"One run of each objective, with {seeds_text(seeds)}, so there is no standard deviation."
    if key.grid == DEFAULT:
        said += " DEFAULT GRID: all objectives have the sweep's own settings."
    elif key.grid == TUNED and tune is not None and not results.is_searching:
        said += (
            f" TUNED GRID: each objective has the settings that were the best of at most {tune.budget} candidates by "
            f"{tune.metric} with {seeds_text(tune.seeds)}."
        )
    parts = f"{said} {_selection(results, key)}", images_text(runs)
    return f"{' '.join(filter(None, parts))} Data fingerprint {key.data_fingerprint}."


def images_text(runs: pd.DataFrame) -> str:
    """The number of test images and R@1 by chance; empty where no training has its ranks."""
    number = len(_captions(runs))
    return f"{number:,} test images; chance R@1 is {100 / number:.3g} %." if number else ""


def few_images_warning(runs: pd.DataFrame) -> str:
    """What fewer than 100 test images tell; empty where they are more, or no training has its ranks."""
    number = len(_captions(runs))
    return f"FEW IMAGES: with {number} test images, {few}." if number and (few := few_images(number)) else ""


def _captions(runs: pd.DataFrame) -> NDArray[np.int64]:
    """The number of captions of each test image, (N,); empty where no training has its ranks."""
    return next((saved_ranks(ranks)[2] for ranks in runs["ranks"] if isinstance(ranks, bytes)), np.empty(0, np.int64))


def _brief(results: SweepResults, key: BlockKey) -> str:
    """The number of seeds and any selection on test, for a caption of two lines."""
    on_test = ", SELECTED ON TEST" if stages_selected_on_test(results, key) else ""
    grid = f", {key.grid} grid" if key.grid else ""
    seeds = results.header.seeds
    of_seeds = f"mean ± std of {len(seeds)} seeds" if len(seeds) > 1 else "1 seed"
    return f"{of_seeds}{on_test}{grid}"


def stages_selected_on_test(results: SweepResults, key: BlockKey) -> list[str]:
    """The stages, up to and including the block's, whose epoch was selected on the test split."""
    runs = results.of_block(results.runs, key)
    stages = results.header.until(key.stage)
    return [stage for stage in stages if "test" in set(runs.get(f"setting/stages.{stage}.select_on", ()))]


def _selection(results: SweepResults, key: BlockKey) -> str:
    stages = stages_selected_on_test(results, key)
    if key.stage in stages:
        return (
            f"SELECTED ON TEST: each model is the epoch of stage {key.stage} with the best rsum on the test split "
            f"itself (selection split: test). {TEST_SELECTION_WARNING}"
        )
    if stages:
        return (
            f"STARTED FROM A SELECTION ON TEST: each model started from the epoch of stage {stages[-1]} with the best "
            f"rsum on the test split, and is the epoch of stage {key.stage} with the best val rsum (selection split: "
            f"val). {TEST_SELECTION_WARNING}"
        )
    return (
        f"Each model is the epoch of stage {key.stage} with the best val rsum (selection split: val), "
        "measured on the test split."
    )


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A sweep's results, and their blocks, computed once: what the sections of a report are made from."""

    results: SweepResults

    @cached_property
    def blocks(self) -> tuple[BlockResults, ...]:
        """All blocks of the sweep."""
        return aggregate(self.results)

    @cached_property
    def first(self) -> tuple[BlockResults, ...]:
        """The blocks of the main grid at the first value of every axis, which curves and weights describe."""
        return self._first(self.results.main_grid)

    @cached_property
    def answered(self) -> tuple[BlockResults, ...]:
        """The same blocks of both grids, which the answer describes."""
        return self._first("", DEFAULT, TUNED)

    def _first(self, *grids: str) -> tuple[BlockResults, ...]:
        """The blocks of some grids at the first value of every axis."""
        first = {stage: configurations[0] for stage, configurations in self.results.header.configurations.items()}
        here = (block for block in self.blocks if block.key.configuration == first[block.key.stage])
        return tuple(block for block in here if block.key.grid in grids)
