"""Aggregates runs to blocks: mean, sample standard deviation and n of each cell, and every missing seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis import run_schema as schema
from analysis.axes import VARIANT, axes_of, first_points, is_at, points_of
from analysis.blocks import (
    BLOCK_COLUMNS,
    MODEL_COLUMNS,
    OF_EACH,
    Block,
    BlockKey,
    CellSummary,
    Gap,
    Grid,
    count_text,
    point_values,
    seeds_text,
)
from analysis.statistics.comparison import compare
from analysis.statistics.grids import beside_each_other, chose_default, in_grid

if TYPE_CHECKING:
    from analysis.tracking import SweepRuns

TEST_SELECTION_WARNING = "Such numbers are optimistic; compare them only with work that selects in the same way."
"""Accompanies the numbers of models that were selected on the test split."""
_STATUS_PRIORITY = ("failed", "unusable", "running", "waiting")


def aggregate(sweep: SweepRuns) -> tuple[Block, ...]:
    """All blocks of a sweep, including those without a number, by dataset, framework, backbone and stage order.

    There is a block for each stage of the sweep and each model among its requested runs, so a stage that never started
    appears as a block of gaps instead of being omitted. If tracking contains no requested run, because the sweep was
    edited and no training has started since, the models are those of all runs.
    """
    requested = sweep.runs[sweep.runs["requested"]]
    known = sweep.runs[sweep.runs["has_all_tags"]] if requested.empty else requested
    if sweep.grids:
        known = sweep.candidates if known.empty else known[known["grid"] != schema.GRID_TUNED]
    columns = [name for name in MODEL_COLUMNS if name not in {axis.name for axis in sweep.axes}]
    seen = known[columns].drop_duplicates().astype(str).sort_values(columns).to_dict("records")
    models = [{str(name): str(value) for name, value in row.items()} for row in seen]
    keys = [key for model in models for key in _keys_of(sweep, model)]
    slugs = _unique_slugs(keys)
    return beside_each_other([_block(sweep, key, slugs[key], of_block(requested, key)) for key in keys])


def _keys_of(sweep: SweepRuns, model: Mapping[str, str]) -> Iterator[BlockKey]:
    """The blocks of a model: one for each stage and each point of the axes that touch it."""
    for number, stage in enumerate(sweep.stages):
        for point, grid in product(points_of(axes_of(sweep.axes, sweep.stages[: number + 1])), sweep.grids or ("",)):
            values = point_values(point)
            variant = {VARIANT: values[VARIANT]} if VARIANT in values else {}
            if grid == schema.GRID_TUNED and sweep.tunes_variant:
                variant = {VARIANT: OF_EACH}
            yield BlockKey(**{**model, **variant}, stage=stage, point=point, grid=grid)


def at_first_point(sweep: SweepRuns, runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of ``runs`` at the first value of every axis and in the main grid; all of them without axes and grids.

    Statistics over several blocks use them alone, because blocks of other points and grids share trainings with these.
    """
    if sweep.grids:
        runs = runs[in_grid(runs, sweep.main_grid)]
        if sweep.main_grid == schema.GRID_TUNED and sweep.tunes_variant:
            runs = runs.assign(variant=OF_EACH)
    if not sweep.axes:
        return runs
    parts = [
        here[is_at(here, point)]
        for stage, point in first_points(sweep.axes, sweep.stages).items()
        for here in [runs[runs["stage"] == stage]]
    ]
    return pd.concat(parts).sort_index()


def first_blocks(sweep: SweepRuns, blocks: Iterable[Block], grid: str | None = None) -> tuple[Block, ...]:
    """The blocks at the first value of every axis and of one grid, the main one by default; all without axes and grids.

    Args:
        sweep: the sweep and its runs.
        blocks: all its blocks.
        grid: another grid, or ``*`` for both.
    """
    first, wanted = first_points(sweep.axes, sweep.stages), sweep.main_grid if grid is None else grid
    here = (block for block in blocks if block.key.point == first[block.key.stage])
    return tuple(block for block in here if wanted in ("*", block.key.grid))


def missing_counts(sweep: SweepRuns, blocks: Iterable[Block]) -> Counter[str]:
    """How many requested trainings have no result, by status. One that is in the blocks of several points is one.

    So is one that is in both grids of a tuned sweep, because the choice was the default.
    """
    if sweep.num_trainings is None:
        return Counter(
            gap.status
            for block in blocks
            for objective, gap in block.gaps
            if not (block.key.grid == schema.GRID_TUNED and chose_default(sweep.tuning, block.key, objective))
        )
    rest = sweep.runs[sweep.runs["requested"] & sweep.runs["excluded"].isin(_STATUS_PRIORITY)]
    found = Counter(map(str, rest["status"]))
    absent = sweep.num_trainings - len(counted(sweep)) - found.total()
    return found + Counter(absent=absent)


def cells_frame(blocks: Iterable[Block]) -> pd.DataFrame:
    """The blocks as a tidy frame: a row for each block, metric, pair and triplet weight.

    Columns: the block's key, with axes also ``point``, with grids also ``grid``, ``direction``, ``metric``, ``pair``,
    ``triplet``, ``mean``, ``std`` (ddof=1), ``n`` and ``missing`` (seeds by status). Objectives that are not in the
    sweep have no row.
    """
    rows: list[dict[str, Any]] = []
    blocks = tuple(blocks)
    for block in blocks:
        key = {name: getattr(block.key, name) for name in columns_of(blocks)}
        for grid in block.grids.values():
            metric = {"direction": grid.metric.direction, "metric": grid.metric.name}
            for (pair, triplet), cell in grid.cells.items():
                if cell.requested:
                    missing = "; ".join(
                        f"seed {g.seed} {g.status}" + (f" ({g.reason})" if g.reason else "") for g in cell.gaps
                    )
                    numbers = {"mean": cell.mean, "std": cell.std, "n": cell.n, "missing": missing}
                    rows.append(key | metric | {"pair": pair, "triplet": triplet} | numbers)
    columns = [*columns_of(blocks), "direction", "metric", "pair", "triplet", "mean", "std", "n", "missing"]
    return pd.DataFrame(rows, columns=columns)


def columns_of(blocks: Iterable[Block]) -> tuple[str, ...]:
    """The columns that identify blocks: ``point`` is one only if there are axes, ``grid`` only if there are grids."""
    return (*BLOCK_COLUMNS, *(name for name in ("point", "grid") if any(getattr(b.key, name) for b in blocks)))


def runs_frame(sweep: SweepRuns) -> pd.DataFrame:
    """Every run as a row, counted or not, in an order that does not depend on when they ran.

    Columns: the tags without their ``goal.`` prefix, ``excluded`` (why the run does not count), ``lr`` of the run's own
    stage, the parameters ``objective.*`` of its objective, ``selected/val_*`` (the validation metrics of the selected
    epoch) and ``test/*`` (its test metrics). Values that a run does not record are empty.
    """
    hidden = (
        "has_all_tags",
        "requested",
        "start_ms",
        "artifact_uri",
        "experiment_id",
        *(() if sweep.axes else ("point",)),
        *(() if sweep.grids else ("grid",)),
    )
    runs = sweep.runs[[name for name in sweep.runs.columns if "/" not in name and name not in hidden]].copy()
    settings = sweep.settings.loc[runs["run_id"]].set_axis(runs.index)
    lr = pd.Series("", index=runs.index)
    for stage, here in runs.groupby("stage"):
        lr[here.index] = settings.loc[here.index].get(f"stages.{stage}.lr", "")
    runs["lr"] = _numbers(lr)
    for name in map(str, settings.columns):
        if name.startswith("objective.") and name.removeprefix("objective.") not in runs.columns:
            runs[name] = _numbers(settings[name])
    for metric in schema.METRICS.values():
        runs[metric.selected] = sweep.runs.get(metric.selected, float("nan"))
    tests = [name for name in schema.TEST_METRICS if name in sweep.runs.columns]
    order = ["dataset", "framework", "backbone", "stage", "pair", "triplet", "seed", "excluded", "run_id"]
    return runs.join(sweep.runs[tests]).sort_values(order)


def _numbers(texts: pd.Series[str]) -> pd.Series[Any]:
    """Texts as numbers, empty ones as NaN, if all of them are numbers; otherwise unchanged."""
    numbers = pd.to_numeric(texts, errors="coerce")
    return numbers if numbers.isna().equals(texts == "") else texts


def counted(sweep: SweepRuns) -> pd.DataFrame:
    """The rows of ``sweep.runs`` that count."""
    return sweep.runs[sweep.runs["excluded"] == ""]


def of_block(runs: pd.DataFrame, key: BlockKey) -> pd.DataFrame:
    """The rows of ``runs`` that belong to a block."""
    is_here = in_grid(runs, key.grid) if key.grid else pd.Series(True, index=runs.index)
    for name in BLOCK_COLUMNS:
        if name != VARIANT or (VARIANT not in point_values(key.point) and key.variant != OF_EACH):
            is_here &= runs[name] == getattr(key, name)
    return runs[is_here & is_at(runs, key.point)] if key.point else runs[is_here]


def _unique_slugs(keys: list[BlockKey]) -> dict[BlockKey, str]:
    """File name stems; the data's fingerprint is added only where two blocks would otherwise share one."""
    plain = [key.slug for key in keys]
    return {
        key: key.slug if plain.count(key.slug) == 1 else f"{key.slug}-{key.data_fingerprint[:12] or 'unknown'}"
        for key in keys
    }


def _block(sweep: SweepRuns, key: BlockKey, slug: str, runs: pd.DataFrame) -> Block:
    done, rest = runs[runs["excluded"] == ""], runs[runs["excluded"] != ""]
    gaps = {
        (pair, triplet): _gaps(sweep, done, rest, pair, triplet) if (pair, triplet) in sweep.objectives else ()
        for pair in schema.in_order((pair for pair, _ in sweep.objectives), schema.PAIRS)
        for triplet in schema.in_order((triplet for _, triplet in sweep.objectives), schema.TRIPLETS)
    }
    by_seed = {key: part.set_index("seed").sort_index() for key, part in done.groupby(["pair", "triplet"])}
    grids = {}
    for metric in schema.METRICS.values():
        cells, seeds = {}, {}
        for objective in gaps:
            here = by_seed.get(objective)
            values = pd.Series(dtype=float) if here is None else here[metric.test].astype(float)
            seeds[objective] = values
            cells[objective] = CellSummary(
                mean=float(values.mean()) if len(values) else None,
                std=float(values.std(ddof=1)) if len(values) > 1 else None,
                n=len(values),
                gaps=gaps[objective],
                requested=objective in sweep.objectives,
            )
        found = compare(pd.DataFrame(seeds))
        grids[metric.key] = Grid(
            metric=metric,
            cells=cells,
            near=found.level,
            without_interval=found.unjudged,
            from_baseline=found.from_baseline,
        )
    return Block(key=key, slug=slug, protocol=_protocol(sweep, key), grids=grids, brief=_brief(sweep, key))


def _gaps(sweep: SweepRuns, done: pd.DataFrame, rest: pd.DataFrame, pair: str, triplet: str) -> tuple[Gap, ...]:
    finished = set(done[(done["pair"] == pair) & (done["triplet"] == triplet)]["seed"])
    here = rest[(rest["pair"] == pair) & (rest["triplet"] == triplet)]
    return tuple(_gap(seed, here[here["seed"] == seed]) for seed in sweep.seeds if seed not in finished)


def _gap(seed: int, runs: pd.DataFrame) -> Gap:
    """The gap of a missing seed, with the most informative status among its runs: a failure over one that waits."""
    found: dict[str, str] = {}
    for row in runs.to_dict("records"):
        status = row["status"] if row["excluded"] in schema.STATUSES else "unusable"
        found[status] = row["reason"] if status == row["status"] else row["excluded"]
    for status in _STATUS_PRIORITY:
        if status in found:
            return Gap(seed=seed, status=status, reason=found[status])
    return Gap(seed=seed, status="absent", reason="no run in tracking")


def _protocol(sweep: SweepRuns, key: BlockKey) -> str:
    seeds = ", ".join(map(str, sweep.seeds))
    return (
        f"Mean ± sample standard deviation (ddof = 1) over {count_text(len(sweep.seeds), 'seed')} ({seeds}); "
        f"n is shown where seeds are missing.{_settings(sweep, key)} {_selection(sweep, key)}{_views(sweep, key)} "
        f"Data fingerprint {key.data_fingerprint}."
    )


def _settings(sweep: SweepRuns, key: BlockKey) -> str:
    """Which settings the objectives of a tuned sweep's grid have."""
    if key.grid == schema.GRID_DEFAULT:
        return " DEFAULT GRID: all objectives have the sweep's own settings."
    if key.grid != schema.GRID_TUNED or sweep.tuning is None:
        return ""
    tuning = sweep.tuning
    return (
        f" TUNED GRID: each objective has the settings that were the best of at most {tuning.budget} candidates by "
        f"{tuning.metric} with {seeds_text(tuning.seeds)}."
    )


def _views(sweep: SweepRuns, key: BlockKey) -> str:
    """The stages, up to and including the block's, that trained on few augmented views of each image; usually empty."""
    runs = of_block(counted(sweep), key)["run_id"]
    found = []
    for stage in sweep.stages[: sweep.stages.index(key.stage) + 1]:
        column = f"stages.{stage}.feature_views"
        if column in sweep.settings.columns:
            numbers = set(sweep.settings.loc[runs, column].dropna().astype(str)) - {"", "0"}
            found += [f"{stage} {number}" for number in sorted(numbers)]
    if not found:
        return ""
    return f" FEW AUGMENTED VIEWS: training drew from this many fixed views of each image ({', '.join(found)})."


def _brief(sweep: SweepRuns, key: BlockKey) -> str:
    """The number of seeds and any selection on test, for a caption of two lines."""
    on_test = ", SELECTED ON TEST" if stages_selected_on_test(sweep, key) else ""
    grid = f", {key.grid} grid" if key.grid else ""
    return f"mean ± std of {count_text(len(sweep.seeds), 'seed')}{grid}{on_test}"


def stages_selected_on_test(sweep: SweepRuns, key: BlockKey) -> list[str]:
    """The stages, up to and including the block's, whose epoch was selected on the test split."""
    runs = of_block(counted(sweep), key)["run_id"]
    until = sweep.stages[: sweep.stages.index(key.stage) + 1]
    columns = {stage: f"stages.{stage}.select_on" for stage in until}
    return [
        stage
        for stage, column in columns.items()
        if column in sweep.settings.columns and "test" in set(sweep.settings.loc[runs, column])
    ]


def _selection(sweep: SweepRuns, key: BlockKey) -> str:
    """How the epoch of each model was selected; on val where trainings do not record it."""
    stages = stages_selected_on_test(sweep, key)
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
