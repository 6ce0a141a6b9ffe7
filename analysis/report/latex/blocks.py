"""Tables for a paper: one block, or a model's stages or backbones stacked; and tables of text.

Each is a ``table*``, as wide as both columns of a two-column page, and is shrunk only if it is wider than that. What a
reader needs is in a caption of two lines; the rest of the protocol is in comments above the table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from goal_sweep.analysis.blocks import NEAR, OF_EACH, Block, BlockKey, Grid, Objective
from goal_sweep.analysis.figures.colours import WHITE, ColourScale, scale_of, text_colour
from goal_sweep.analysis.report.latex.text import latex_text, requirements
from goal_sweep.analysis.report.parts import TextTable
from goal_sweep.analysis.wording import file_stem, name_text
from goal_sweep.sweeps.results import DIRECTION_TITLES, measure_slug


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Blocks of one dataset and framework in one table: the stages of a model, or the backbones of a framework."""

    slug: str
    blocks: tuple[Block, ...]


def stacks(blocks: Iterable[Block]) -> tuple[Stack, ...]:
    """The tables that stack two or more blocks, as in the paper: stages of a model, else backbones of a framework."""
    by_model: dict[tuple[str, ...], list[Block]] = {}
    for block in blocks:
        if not block.is_empty:
            by_model.setdefault((*_family(block), block.key.grid, block.key.backbone), []).append(block)
    by_family: dict[tuple[str, ...], list[Block]] = {}
    for model, stages in by_model.items():
        if len(stages) == 1:
            by_family.setdefault(model[:-1], []).extend(stages)
    groups = [(group, [group[0].key.backbone, "stages"]) for group in by_model.values() if len(group) > 1]
    groups += [(group, ["backbones"]) for group in by_family.values() if len(group) > 1]
    by_slug: dict[str, Stack] = {}
    for group, words in groups:
        key = group[0].key
        variant = "" if key.variant in ("paper", OF_EACH) else key.variant
        slug = file_stem(*filter(None, (key.dataset, key.framework, variant, *words, key.grid)))
        slug = f"{slug}-{key.data_fingerprint[:12]}" if slug in by_slug else slug
        by_slug[slug] = Stack(slug=slug, blocks=tuple(group))
    return tuple(by_slug.values())


def _family(block: Block) -> tuple[str, ...]:
    """What blocks of one stack share; the columns of a table are the same for all of its panels."""
    key, grid = block.key, next(iter(block.grids.values()))
    return (key.dataset, key.framework, key.variant, key.data_fingerprint, *grid.triplets)


def block_to_latex(block: Block, colour: str, measure: str = "R@1") -> str:
    """One block, with coloured cells as in the paper.

    Args:
        block: the block.
        colour: its full colour, RRGGBB or `CIVIDIS`.
        measure: ``R@1``, ``R@5``, ``R@10`` or ``rsum``.
    """
    return stack_to_latex(Stack(slug=block.slug, blocks=(block,)), {block.key: colour}, measure)


def stack_to_latex(stack: Stack, colours: Mapping[BlockKey, str], measure: str = "R@1") -> str:
    """A stack of blocks: one float, with a panel for each block, each on its own colour scales."""
    first = stack.blocks[0].grids_of(measure)
    width, body = len(first[0].triplets), [r"\toprule"]
    for index, block in enumerate(stack.blocks):
        panel = block.grids_of(measure)
        # A box without a width, for a long title would widen the last column.
        title = rf"\makebox[0pt]{{{latex_text(_model_text(block.key))}}}"
        title = rf"\multicolumn{{{1 + width * len(panel)}}}{{c}}{{{title}}} \\"
        heads = [*_heads(panel, width), r"\midrule"] if index == 0 else []
        body += [*([r"\midrule"] if index else []), title, r"\midrule", *heads, *_rows(panel, colours[block.key])]
    notes = [block.caption(measure) for block in stack.blocks] + [
        f"Missing in {block.key.title}: {name} {gap.text}" for block in stack.blocks for name, gap in block.gaps
    ]
    return _float(
        caption=_caption(measure, stack.blocks),
        label=f"{stack.slug}-{measure_slug(measure)}",
        columns="l" + "c" * width * len(first),
        body=[*body, r"\bottomrule"],
        notes=notes,
    )


def table_to_latex(table: TextTable) -> str:
    """A text table as a float."""
    rows = [" & ".join(map(latex_text, row)) + r" \\" for row in (table.head, *table.rows)]
    return _float(
        caption=f"{table.title}. {table.note}",
        label=table.label,
        columns="l" * table.words + "r" * (len(table.head) - table.words),
        body=[r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"],
    )


def _float(*, caption: str, label: str, columns: str, body: Sequence[str], notes: Iterable[str] = ()) -> str:
    """A float over both columns; ``caption`` and ``notes`` are plain text, ``body`` is LaTeX."""
    head = latex_text(caption)
    lines = [
        *requirements("booktabs,colortbl,graphicx,xcolor", "\n".join([head, *body])),
        *(f"% {line}" for note in notes for line in textwrap.wrap(note, 110)),
        r"\begin{table*}[t]",
        r"\centering\footnotesize\setlength{\tabcolsep}{5pt}",
        rf"\caption{{{head}}}",
        rf"\label{{tab:{label}}}",
        r"\smallskip",
        "",
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{columns}}}",
        *body,
        r"\end{tabular}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _caption(measure: str, blocks: Sequence[Block]) -> str:
    key, unit = blocks[0].key, "of 600" if measure == "rsum" else "%"
    grids = [grid for block in blocks for grid in block.grids_of(measure)]
    near = f"; {NEAR}: within noise of the highest" if any(grid.marked for grid in grids) else ""
    where = f"{name_text(key.dataset)} test, {name_text(key.framework)}"
    briefs = ", ".join(dict.fromkeys(block.brief for block in blocks))
    return f"{measure} ({unit}), {where}, {briefs}. Bold: highest; underlined: second{near}."


def _model_text(key: BlockKey) -> str:
    """A block's model and stage as a paper names them: ``VSE++ (resnet152, fine-tuned)``.

    The tag of a timm backbone's weights is left out; the comments above the table name it.
    """
    stage = "fine-tuned" if key.stage == "finetune" else key.stage
    grid = f"{key.grid} grid" if key.grid else ""
    words = (key.backbone.split(".")[0], stage, key.own_variant, key.point, grid)
    return f"{name_text(key.framework)} ({', '.join(filter(None, words))})"


def _heads(grids: Sequence[Grid], width: int) -> list[str]:
    titles = (latex_text(DIRECTION_TITLES[grid.metric.direction]) for grid in grids)
    spans = " & ".join(f"\\multicolumn{{{width}}}{{c}}{{{title}}}" for title in titles)
    starts = [2 + width * i for i in range(len(grids))]
    rules = "".join(f"\\cmidrule(lr){{{start}-{start + width - 1}}}" for start in starts)
    heads = " & ".join(_weight("T", triplet) for grid in grids for triplet in grid.triplets)
    return [f" & {spans} \\\\", rules, f" & {heads} \\\\"]


def _rows(grids: Sequence[Grid], colour: str) -> list[str]:
    scaled = [(grid, scale_of(grid, colour)) for grid in grids]
    rows = []
    for letter, name, objectives in grids[0].rows:
        cells = [_cell(grid, scale, objective) for grid, scale in scaled for objective in objectives]
        if not letter:
            cells = [rf"\multicolumn{{{len(grids[0].triplets)}}}{{c}}{{{cell}}}" for cell in cells]
        rows.append(" & ".join([_weight(letter, name), *cells]) + r" \\")
    return rows


def _weight(letter: str, name: str) -> str:
    """The weight of a row or column, with its name as a superscript."""
    return rf"${letter}$\textsuperscript{{{latex_text(name)}}}" if letter else latex_text(name)


def _cell(grid: Grid, scale: ColourScale | None, objective: Objective) -> str:
    """A number in its colour, bold if it is the best, underlined if the second."""
    cell = grid.cells[objective]
    text = cell.text(sign=r"$\pm$", with_n=False)
    if cell.mean is None or scale is None:
        return text
    if cell.gaps:
        text += rf" {{\scriptsize($n$={cell.n})}}"
    command = r"\textbf" if objective in grid.best() else r"\underline" if objective in grid.second() else ""
    text = rf"{command}{{{text}}}" if command else text
    fill = scale.colour(cell.mean)
    ink = r"\color{white}" if text_colour(fill) == WHITE else ""
    near = r"\rlap{$^{\approx}$}" if objective in grid.marked else ""  # takes no room, so that the numbers stay aligned
    return rf"\cellcolor[HTML]{{{fill}}}{ink}{text}{near}"
