"""What the numbers say in plain words, and what they do not. Claims nothing that a test in the report does not hold."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.statistics.effects import EFFECTS, Effect
from analysis.statistics.ranks import RankComparison
from analysis.tracking import run_schema as schema
from analysis.tracking.blocks import Block, direction_title

LEVEL = 0.05


def block_verdict(block: Block) -> str:
    """One sentence for each direction: the best mean, and which others it cannot be told from."""
    sentences = []
    for direction in schema.DIRECTIONS:
        grid = block.grids[direction, "R@1"]
        known = {key: cell for key, cell in grid.cells.items() if cell.mean is not None}
        if len(known) < 2:
            continue
        best = max(known, key=lambda key: known[key].mean or 0.0)
        near = [key for key in known if key != best and key in grid.near]
        cell = known[best]
        spread = "" if cell.std is None else f" ± {cell.std:.1f}"
        sentences.append(
            f"{direction_title(direction)}: {'/'.join(best)} has the highest mean R@1, {cell.mean:.1f}{spread} "
            f"(n = {cell.n}); {_near(near, len(known) - 1)}."
        )
    return f"{block.key.title}. {' '.join(sentences)}" if sentences else ""


def stage_verdict(
    stage: str,
    differences: pd.DataFrame,
    effects: Sequence[tuple[str, Sequence[Effect]]],
    ranks: RankComparison | None,
) -> str:
    """What holds over all that a stage has: against con/con, by factor, and over blocks.

    Args:
        stage: its name.
        differences: rows of `paired_differences` of this stage.
        effects: what was analysed (a title) and its effects.
        ranks: the ranks over blocks, where there are enough.
    """
    sentences = [_against_baseline(differences), *(_by_factor(title, rows) for title, rows in effects)]
    if ranks is not None:
        sentences.append(_over_blocks(ranks))
    return " ".join([f"Stage {stage}.", *(sentence for sentence in sentences if sentence)])


def _near(near: Sequence[tuple[str, str]], others: int) -> str:
    if not near:
        each = f"each of the {others} others" if others > 1 else "the other"
        return f"its paired 95 % intervals exclude 0 against {each} (uncorrected)"
    if len(near) == others:
        none = f"none of the {others} others can" if others > 1 else "the other cannot"
        return f"{none} be told from it with these seeds"
    names = ", ".join("/".join(key) for key in near)
    return f"within noise of it ({len(near)} of {others}): {names}"


def _against_baseline(differences: pd.DataFrame) -> str:
    shown = differences[differences["metric"] == "R@1"]
    if shown.empty:
        return "Nothing is paired with con/con."
    n = int(shown["n"].max())
    floor = float(shown["p_floor"].min()) * int(shown.groupby("direction").size().max())
    if floor > LEVEL:
        return (
            f"{n} pair{'s' if n > 1 else ''} of runs {'are' if n > 1 else 'is'} too few to call any difference from "
            f"con/con significant: after Holm's correction p cannot fall below {min(1.0, floor):.2g}, however large "
            "the difference."
        )
    parts = []
    for direction, rows in shown.groupby("direction", sort=False):
        found = rows[rows["p_holm"] < LEVEL]
        better = [f"{r['pair']}/{r['triplet']} ({r['difference']:+.1f})" for r in found.to_dict("records")]
        said = ", ".join(better) if better else "none"
        parts.append(f"{direction_title(str(direction))}: {said}")
    blocks = int(shown["blocks"].max())
    where = f" seeds of {blocks} blocks; in at least one of them, it need not be in all" if blocks > 1 else ""
    return f"Different from con/con in R@1 at 5 % after Holm's correction, n = {n}{where}: {'; '.join(parts)}."


def _by_factor(title: str, effects: Sequence[Effect]) -> str:
    if not effects:
        return ""
    held = [e for e in effects if e.p_corrected < LEVEL]
    rest = [EFFECTS[e.name] for e in effects if e.p_corrected >= LEVEL]
    said = [f"the {EFFECTS[e.name]} matters (p = {e.p_corrected:.2g}, up to {e.spread:.1f} points)" for e in held]
    if rest:
        said.append(f"no evidence for {_listed(rest)}, which is not evidence of none")
    return f"{title} ({effects[0].subjects} subjects), image to text R@1, uncorrected: {'; '.join(said)}."


def _over_blocks(ranks: RankComparison) -> str:
    best = next(iter(ranks.mean_ranks))
    limit = ranks.mean_ranks[best] + ranks.critical_difference
    near = [name for name, rank in ranks.mean_ranks.items() if rank <= limit]
    blocks = f"Over {ranks.num_blocks} blocks the ranks"
    if ranks.p >= LEVEL:
        return f"{blocks} do not differ more than by chance (Friedman p = {ranks.p:.2g})."
    return (
        f"{blocks} differ (Friedman p = {ranks.p:.2g}); {best} ranks best, and Nemenyi's test does not tell "
        f"{len(near) - 1} of the others from it."
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
