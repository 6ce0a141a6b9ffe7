"""The parts of a report that are lists rather than grids: what is missing, what did not count, and the statistics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pandas as pd

from analysis.statistics.compare import GridComparison
from analysis.statistics.paired import MAX_EXACT
from analysis.tracking import run_schema as schema
from analysis.tracking.blocks import Block, BlockKey, direction_title, number_text
from analysis.tracking.fetch import SweepRuns

_SHOWN: tuple[tuple[str, str], ...] = (("i2t", "R@1"), ("t2i", "R@1"), schema.RSUM)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A small table of text, for Markdown and HTML alike."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """What a reader must know to read it, in sentences."""
    words: int = 1
    """How many leading columns are words; the others are numbers, aligned to the right."""


def objective_table(block: Block) -> TextTable:
    """Every recall of a block, an objective a row, highest mean rsum first."""
    columns = [column for column in schema.COLUMNS if column in block.grids]
    cells = block.grids[columns[-1]].cells
    ordered = sorted((key for key, c in cells.items() if c.asked), key=lambda key: -(cells[key].mean or 0.0))
    return TextTable(
        title="All recalls",
        head=("objective", *(f"{d} {m}" if (d, m) != schema.RSUM else m for d, m in columns), "n"),
        rows=tuple(
            (
                "/".join(key),
                *(number_text(replace(block.grids[column].cells[key], gaps=())) for column in columns),
                str(cells[key].n),
            )
            for key in ordered
        ),
        note="Mean ± standard deviation (ddof = 1) over n seeds.",
    )


def missing_table(blocks: Iterable[Block]) -> TextTable | None:
    """Every number that was asked for and is missing, or None when none is."""
    rows = [row for block in blocks for row in _missing_rows(block)]
    if not rows:
        return None
    head = ("block", "objectives", "seeds", "status", "reason")
    return TextTable(title="Missing", head=head, rows=tuple(rows), words=len(head))


def _missing_rows(block: Block) -> list[tuple[str, ...]]:
    """A row for all objectives that miss the same seeds for the same reason, so that a lost stage is one line."""
    seeds: dict[tuple[str, str, str], list[int]] = {}
    for objective, gap in block.gaps:
        seeds.setdefault((objective, gap.status, gap.reason), []).append(gap.seed)
    objectives: dict[tuple[str, str, str], list[str]] = {}
    for (objective, status, reason), numbers in seeds.items():
        objectives.setdefault((", ".join(map(str, numbers)), status, reason), []).append(objective)
    asked = sum(cell.asked for cell in next(iter(block.grids.values())).cells.values())
    return [
        (block.key.title, f"all {asked}" if len(names) == asked > 1 else ", ".join(names), *rest)
        for rest, names in objectives.items()
    ]


def excluded_table(sweep: SweepRuns) -> TextTable | None:
    """Runs that do not count for a reason other than not being done, or None when there are none."""
    odd = sweep.runs[(sweep.runs["excluded"] != "") & ~sweep.runs["excluded"].isin(schema.STATUSES)]
    if odd.empty:
        return None
    rows = tuple((str(r["run_name"]), str(r["run_id"]), str(r["excluded"])) for r in odd.to_dict("records"))
    return TextTable(title="Runs that do not count", head=("run", "MLflow id", "why"), rows=rows, words=3)


def marginal_tables(marginals: pd.DataFrame) -> list[TextTable]:
    """A table for each block: the mean of each pair weight and of each triplet weight."""
    tables = []
    for key, frame in marginals.groupby(["dataset", "framework", "backbone", "variant", "data_fingerprint", "stage"]):
        names = ("dataset", "framework", "backbone", "variant", "data_fingerprint", "stage")
        block = BlockKey(**dict(zip(names, map(str, key), strict=True)))
        rows = []
        for (factor, level), part in frame.groupby(["factor", "level"], sort=False):
            numbers = [_marginal(part, direction, metric) for direction, metric in _SHOWN]
            rows.append((f"{'P' if factor == 'pair' else 'T'} {level}", *numbers, str(part["n"].iloc[0])))
        if not frame["n"].any():
            continue  # of a grid with holes no row or column is whole
        tables.append(
            TextTable(
                title=block.title,
                head=("weight", *(_column(*c) for c in _SHOWN), "n seeds"),
                rows=tuple(rows),
                note="Mean over the other weight within each seed, then mean ± standard deviation (ddof = 1) over "
                "the n seeds that have every cell of that row or column.",
            )
        )
    return tables


def difference_tables(differences: pd.DataFrame) -> list[TextTable]:
    """A table for each stage, direction and metric shown: every objective minus con/con."""
    tables = []
    for stage in differences["stage"].drop_duplicates():
        for direction, metric in _SHOWN:
            is_here = (differences["direction"] == direction) & (differences["metric"] == metric)
            frame = differences[(differences["stage"] == stage) & is_here]
            rows = tuple(
                (
                    f"{r['pair']}/{r['triplet']}",
                    f"{r['difference']:+.2f}",
                    "--" if pd.isna(r["low"]) else f"{r['low']:+.2f} to {r['high']:+.2f}",
                    f"{r['n']}",
                    f"{r['p']:.3f}",
                    f"{r['p_holm']:.3f}",
                )
                for r in frame.to_dict("records")
            )
            if rows:
                tables.append(
                    TextTable(
                        title=f"{_column(direction, metric)}, stage {stage}",
                        head=("objective", "difference", "95 % interval", "n pairs", "p", "p (Holm)"),
                        rows=rows,
                        note=_power_note(frame),
                    )
                )
    return tables


def comparison_tables(comparisons: Iterable[GridComparison]) -> list[TextTable]:
    """A table for each grid that the paper has too: both means, their difference, and the rank correlation."""
    return [
        TextTable(
            title=f"{c.block.key.title}: {_column(c.direction, c.metric)}",
            head=("objective", "ours", "paper", "difference", "n (ours)"),
            rows=tuple(
                (
                    f"{x.pair}/{x.triplet}",
                    _with_std(x.ours, x.ours_std),
                    _with_std(x.theirs, x.theirs_std),
                    f"{x.ours - x.theirs:+.1f}",
                    str(x.n),
                )
                for x in c.cells
            ),
            note=_correlation_note(c),
        )
        for c in comparisons
    ]


def _with_std(mean: float, std: float | None) -> str:
    return f"{mean:.1f} ± {'--' if std is None else f'{std:.1f}'}"


def _column(direction: str, metric: str) -> str:
    return metric if (direction, metric) == schema.RSUM else f"{direction_title(direction)} {metric}"


def _marginal(part: pd.DataFrame, direction: str, metric: str) -> str:
    row = part[(part["direction"] == direction) & (part["metric"] == metric)].iloc[0]
    if not row["n"]:
        return "--"
    std = "--" if pd.isna(row["std"]) else f"{row['std']:.1f}"
    return f"{row['mean']:.1f} ± {std}"


def _power_note(frame: pd.DataFrame) -> str:
    n, floor, family = int(frame["n"].max()), float(frame["p_floor"].min()), len(frame)
    kind = "exact" if n <= MAX_EXACT else "normal approximation"
    note = (
        "Objective minus con/con, paired by model and seed. Interval by Student's t, p by the two-sided "
        f"Wilcoxon signed rank test ({kind}), Holm over the {family} comparisons of this table."
    )
    if floor * family > 0.05:
        return (
            f"{note} With n = {n} pairs p cannot fall below {floor:.2g}, nor below {min(1.0, floor * family):.2g} "
            "after Holm: no difference here can be called significant at 5 %, however large. Read the intervals."
        )
    if int(frame["blocks"].max()) > 1:
        return (
            f"{note} Intervals are of the mean over these blocks, for other seeds of them; a small p says that in at "
            "least one block the objective differs."
        )
    return note


def _correlation_note(comparison: GridComparison) -> str:
    if comparison.spearman is None:
        return "Too few cells, or too many equal ones, for a rank correlation."
    return (
        f"Rank correlation over {len(comparison.cells)} cells: Spearman {comparison.spearman:+.2f}, Kendall "
        f"{comparison.kendall:+.2f}; mean difference {comparison.mean_difference:+.1f} points. "
        "The paper's numbers are means of 3 runs."
    )
