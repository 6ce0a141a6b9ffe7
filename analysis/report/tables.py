"""Tables in Markdown, LaTeX and CSV: tables of blocks, with a row for each pair weight, and tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.blocks import NEAR, Block, CellSummary, Grid, gap_text, number_text
from analysis.figures import WHITE, ColourScale, scale_of, text_colour
from analysis.run_schema import DIRECTION_TITLES, measure_slug
from analysis.statistics import cells_frame

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A small table of text, for Markdown and HTML alike."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """What a reader must know to read it, in full sentences."""
    words: int = 1
    """The number of leading columns with words; the others contain numbers and are aligned to the right."""
    links: tuple[str, ...] = ()
    """The links of the first entry of each row in the HTML page; may be empty."""
    page_only: bool = False
    """Whether it appears only in the HTML page, collapsed under its title."""


def to_markdown(block: Block, measure: str = "R@1", *, with_gaps: bool = True) -> str:
    """The table with its caption, the best cells in bold, and (with ``with_gaps``) a line for each gap below."""
    grids = block.grids_of(measure)
    prefix = [f"{grid.metric.direction} " if len(grids) > 1 else "" for grid in grids]
    heads = [f"{name}T {triplet}" for name in prefix for triplet in grids[0].triplets]
    lines = [f"| {measure} | {' | '.join(heads)} |", f"|:---|{'---:|' * len(heads)}"]
    for pair in grids[0].pairs:
        row = [_markdown_cell(grid, pair, triplet) for grid in grids for triplet in grid.triplets]
        lines.append(f"| **P {pair}** | {' | '.join(row)} |")
    lines += ["", block.caption(measure)]
    if block.gaps and with_gaps:
        lines += ["", "Missing:", "", *(f"- {_markdown_text(line)}" for line in _gap_lines(block))]
    return "\n".join(lines) + "\n"


def to_latex(block: Block, colour: str, measure: str = "R@1") -> str:
    r"""The table as a float, with coloured cells as in the paper.

    The preamble needs ``\\usepackage{booktabs,colortbl}`` and ``\\usepackage{xcolor}``, and graphicx if results are
    missing.

    Args:
        block: the block.
        colour: its full colour, RRGGBB or `CIVIDIS`.
        measure: ``R@1``, ``R@5``, ``R@10`` or ``rsum``.
    """
    grids = block.grids_of(measure)
    num_columns = sum(len(grid.triplets) for grid in grids)
    notes = [f"% missing: {line}" for line in _gap_lines(block)]
    missing = f" Missing: {'; '.join(_missing_by_cell(grids[0]))}." if block.gaps else ""
    # With gaps, cells also state their number of seeds, which makes them half as wide again.
    fit = (r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{", "}") if block.gaps else ("", "")
    lines = [
        rf"% \usepackage{{booktabs,colortbl{',graphicx' if block.gaps else ''}}} and \usepackage{{xcolor}}",
        *(line.replace("\n", " ") for line in notes),
        r"\begin{table}[t]",
        r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{_latex_text(block.caption(measure) + missing)}}}",
        rf"\label{{tab:{block.slug}-{measure_slug(measure)}}}",
        r"\smallskip",
        "",
        rf"{fit[0]}\begin{{tabular}}{{l{'c' * num_columns}}}",
        r"\toprule",
        *_latex_heads(grids),
        r"\midrule",
        *_latex_rows(grids, colour),
        r"\bottomrule",
        rf"\end{{tabular}}{fit[1]}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_heads(grids: Sequence[Grid]) -> list[str]:
    width = len(grids[0].triplets)
    titles = [_latex_text(DIRECTION_TITLES[grid.metric.direction]) for grid in grids]
    spans = [f"\\multicolumn{{{width}}}{{c}}{{{title}}}" for title in titles]
    starts = [2 + width * i for i in range(len(grids))]
    rules = "".join(f"\\cmidrule(lr){{{start}-{start + width - 1}}}" for start in starts)
    heads = [f"$T$\\textsuperscript{{{_latex_text(triplet)}}}" for grid in grids for triplet in grid.triplets]
    return [f" & {' & '.join(spans)} \\\\", rules, f" & {' & '.join(heads)} \\\\"]


def _latex_rows(grids: Sequence[Grid], colour: str) -> list[str]:
    scales = [scale_of(grid, colour) for grid in grids]
    rows = []
    for pair in grids[0].pairs:
        cells = [
            _latex_cell(grid, scale, pair, triplet)
            for grid, scale in zip(grids, scales, strict=True)
            for triplet in grid.triplets
        ]
        rows.append(" & ".join([f"$P$\\textsuperscript{{{_latex_text(pair)}}}", *cells]) + r" \\")
    return rows


def to_csv(block: Block) -> str:
    """All metrics of a block in tidy form, not rounded; columns as in :func:`analysis.statistics.cells_frame`."""
    return cells_frame([block]).to_csv(index=False, lineterminator="\n")


def text_table_to_markdown(table: TextTable) -> str:
    """A text table in Markdown, without its title and note."""
    rule = [":---" if column < table.words else "---:" for column in range(len(table.head))]
    return "\n".join(f"| {' | '.join(map(_markdown_entry, row))} |" for row in (table.head, rule, *table.rows))


def text_table_to_latex(table: TextTable, label: str) -> str:
    """A text table as a float, scaled to the text width; needs booktabs and graphicx."""
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


def _gap_lines(block: Block) -> list[str]:
    """A line for each missing result: objective, seed, status and reason."""
    return [
        f"{objective} seed {gap.seed}: {gap.status}" + (f" ({gap.reason})" if gap.reason else "")
        for objective, gap in block.gaps
    ]


def _missing_by_cell(grid: Grid) -> list[str]:
    return [f"{pair}/{triplet} {gap_text(cell)}" for (pair, triplet), cell in grid.cells.items() if cell.gaps]


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
    text = number_text(cell, sign=r"$\pm$", with_n=False)
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


def _markdown_entry(text: str) -> str:
    return _markdown_text(" ".join(text.split()))


def _markdown_text(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")
