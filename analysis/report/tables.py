"""Blocks as tables: Markdown, LaTeX and CSV, pair weights as rows and triplet weights as columns, like the paper's."""

from __future__ import annotations

from dataclasses import replace

from analysis.figures.colours import WHITE, ColourScale, scale_of, text_colour
from analysis.report.sections import TextTable
from analysis.statistics.aggregate import cells_frame
from analysis.tracking.blocks import Block, CellSummary, Grid, direction_title, gap_text, number_text
from analysis.tracking.run_schema import DIRECTIONS, RSUM

NEAR = "≈"
"""Stands behind a number that is within noise of the best."""
MARKS = (
    f"Bold: best; underlined: second; {NEAR}: within noise of the best (the 95 % interval of the difference holds 0, "
    "uncorrected for the number of comparisons)."
)

_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "∞": r"$\infty$",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "·": r"$\cdot$",
    NEAR: r"$\approx$",
}


def halves(block: Block, metric: str) -> list[Grid]:
    """The grids that stand side by side in a table of ``metric``: two directions, or one grid for ``rsum``."""
    columns = [RSUM] if metric == RSUM[1] else [(direction, metric) for direction in DIRECTIONS]
    return [block.grids[column] for column in columns if column in block.grids]


def caption(block: Block, metric: str) -> str:
    """What must stand beside the numbers: metric, block, seeds, selection, test split, data, colours."""
    unit = "sum of the six recalls in %, 0 to 600" if metric == RSUM[1] else "%"
    return f"{metric} ({unit}). {block.key.title}. {block.protocol} {MARKS}"


def gap_lines(block: Block) -> list[str]:
    """A line for each number that is missing: objective, seed, status and reason."""
    return [
        f"{objective} seed {gap.seed}: {gap.status}" + (f" ({gap.reason})" if gap.reason else "")
        for objective, gap in block.gaps
    ]


def to_markdown(block: Block, metric: str = "R@1", *, with_gaps: bool = True) -> str:
    """The table with its caption, best cells in bold, and below, unless ``with_gaps`` is off, a line for each gap."""
    grids = halves(block, metric)
    prefix = [f"{grid.direction} " if len(grids) > 1 else "" for grid in grids]
    heads = [f"{name}T {triplet}" for name in prefix for triplet in grids[0].triplets]
    lines = [f"| {metric} | {' | '.join(heads)} |", f"|:---|{'---:|' * len(heads)}"]
    for pair in grids[0].pairs:
        row = [_markdown_cell(grid, pair, triplet) for grid in grids for triplet in grid.triplets]
        lines.append(f"| **P {pair}** | {' | '.join(row)} |")
    lines += ["", caption(block, metric)]
    if block.gaps and with_gaps:
        lines += ["", "Missing:", "", *(f"- {_markdown_text(line)}" for line in gap_lines(block))]
    return "\n".join(lines) + "\n"


def to_latex(block: Block, colour: str, metric: str = "R@1") -> str:
    r"""The table as a float, cells coloured as the paper's.

    Needs ``\\usepackage{booktabs,colortbl}`` and ``\\usepackage{xcolor}`` in the preamble, where results are missing
    graphicx too, and no more.

    Args:
        block: the block.
        colour: its full colour, RRGGBB or `CIVIDIS`.
        metric: ``R@1``, ``R@5``, ``R@10`` or ``rsum``.
    """
    grids = halves(block, metric)
    width = len(grids[0].triplets)
    spans = [f"\\multicolumn{{{width}}}{{c}}{{{_latex_text(direction_title(grid.direction))}}}" for grid in grids]
    starts = [2 + width * i for i in range(len(grids))]
    rules = "".join(f"\\cmidrule(lr){{{start}-{start + width - 1}}}" for start in starts)
    heads = [f"$T$\\textsuperscript{{{_latex_text(triplet)}}}" for grid in grids for triplet in grid.triplets]
    scales = [scale_of(grid, colour) for grid in grids]
    rows = [
        " & ".join(
            [f"$P$\\textsuperscript{{{_latex_text(pair)}}}"]
            + [
                _latex_cell(grid, scale, pair, triplet)
                for grid, scale in zip(grids, scales, strict=True)
                for triplet in grid.triplets
            ]
        )
        + r" \\"
        for pair in grids[0].pairs
    ]
    notes = [f"% missing: {line}" for line in gap_lines(block)]
    missing = f" Missing: {'; '.join(_missing_by_cell(grids[0]))}." if block.gaps else ""
    # The counts of seeds that a gap brings make every cell half as wide again.
    fit = (r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{", "}") if block.gaps else ("", "")
    return "\n".join(
        [
            rf"% \usepackage{{booktabs,colortbl{',graphicx' if block.gaps else ''}}} and \usepackage{{xcolor}}",
            *(line.replace("\n", " ") for line in notes),
            r"\begin{table}[t]",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{_latex_text(caption(block, metric) + missing)}}}",
            rf"\label{{tab:{block.slug}-{metric.replace('@', '').lower()}}}",
            r"\smallskip",
            "",
            rf"{fit[0]}\begin{{tabular}}{{l{'c' * width * len(grids)}}}",
            r"\toprule",
            f" & {' & '.join(spans)} \\\\",
            rules,
            f" & {' & '.join(heads)} \\\\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            rf"\end{{tabular}}{fit[1]}",
            r"\end{table}",
            "",
        ]
    )


def text_table_to_markdown(table: TextTable) -> str:
    """A text table in Markdown, without its title and note."""
    rule = [":---" if column < table.words else "---:" for column in range(len(table.head))]
    return "\n".join(f"| {' | '.join(map(_markdown_cell_text, row))} |" for row in (table.head, rule, *table.rows))


def text_table_to_latex(table: TextTable, label: str) -> str:
    """A text table as a float, scaled to the width of the text; needs booktabs and graphicx."""
    columns = "l" * table.words + "r" * (len(table.head) - table.words)
    rows = [" & ".join(map(_latex_text, row)) + r" \\" for row in (table.head, *table.rows)]
    lines = [
        r"% \usepackage{booktabs,graphicx}",
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_latex_text(f'{table.title}. {table.note}')}}}",
        rf"\label{{tab:{label}}}",
        r"\smallskip",
        rf"\resizebox{{\textwidth}}{{!}}{{\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        rows[0],
        r"\midrule",
        *rows[1:],
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def to_csv(block: Block) -> str:
    """All directions and metrics of a block in tidy form, unrounded; columns as in :func:`cells_frame`."""
    return cells_frame([block]).to_csv(index=False, lineterminator="\n")


def _missing_by_cell(grid: Grid) -> list[str]:
    return [
        f"{pair}/{triplet} {gap_text(grid.cells[pair, triplet])}"
        for pair in grid.pairs
        for triplet in grid.triplets
        if grid.cells[pair, triplet].gaps
    ]


def _markdown_cell(grid: Grid, pair: str, triplet: str) -> str:
    key = (pair, triplet)
    text = number_text(grid.cells[key])
    if key in grid.best():
        text = f"**{text}**"
    elif key in grid.second():
        text = f"<u>{text}</u>"
    return f"{text} {NEAR}" if key in grid.near else text


def _latex_cell(grid: Grid, scale: ColourScale | None, pair: str, triplet: str) -> str:
    cell: CellSummary = grid.cells[pair, triplet]
    text = number_text(replace(cell, gaps=()), sign=r"$\pm$")
    if cell.gaps and cell.mean is not None:
        text += rf" {{\scriptsize($n$={cell.n})}}"
    if cell.mean is None or scale is None:
        return text
    if (pair, triplet) in grid.best():
        text = rf"\textbf{{{text}}}"
    elif (pair, triplet) in grid.second():
        text = rf"\underline{{{text}}}"
    near = r"$^{\approx}$" if (pair, triplet) in grid.near else ""
    fill = scale.colour(cell.mean)
    ink = r"\color{white}" if text_colour(fill) == WHITE else ""
    return rf"\cellcolor[HTML]{{{fill}}}{ink}{text}{near}"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _markdown_cell_text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _markdown_text(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")
