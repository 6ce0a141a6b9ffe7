"""Tables for a paper, in LaTeX. They shrink only if they are wider than the page."""

import textwrap
from collections.abc import Sequence
from operator import itemgetter

import pandas as pd

from goal_sweep.analysis.blocks import NEAR, BlockKey, BlockResults, Grid, Objective
from goal_sweep.analysis.figures.canvas import ColourScale, scale_of, text_colour
from goal_sweep.analysis.wording import name_text
from goal_sweep.goal_core.evaluation.metrics import DIRECTION_TITLES, measure_slug

_PLAIN = str.maketrans(
    {name: rf"\{name}" for name in "&%$#_{}"}
    | {name: rf"\ensuremath{{{name}}}" for name in "<>|"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"\ensuremath{\pm}", "→": r"\ensuremath{\rightarrow}", "∞": r"\ensuremath{\infty}"}
    | {"≈": r"\ensuremath{\approx}", "×": r"\ensuremath{\times}"}
)
_PACKAGES = r"% \usepackage{adjustbox,booktabs}\usepackage[table]{xcolor}"
_SCRIPTS = "% LuaLaTeX or XeLaTeX, with a main font that has the characters of the names"


def latex_text(text: str) -> str:
    """A text for LaTeX, in one line."""
    return " ".join(text.split()).translate(_PLAIN)


def block_to_latex(block: BlockResults, colour: str, measure: str = "R@1") -> str:
    """A block as a ``table*``, with coloured cells as in the paper. The comments above it hold the whole protocol.

    Args:
        colour: its full colour, RRGGBB or `CIVIDIS`.
        measure: ``R@1``, ``R@5``, ``R@10`` or ``rsum``.
    """
    key, grids, unit = block.key, block.grids_of(measure), "of 600" if measure == "rsum" else "%"
    near = f"; {NEAR}: not significantly below the highest" if any(grid.marked for grid in grids) else ""
    what = f"{_model_text(key)} on {name_text(key.dataset)} test: {measure} ({unit}), {block.brief}"
    caption = f"{what}. Bold: highest; underlined: second{near}."
    lines = [
        r"\begin{table*}[t]\centering\footnotesize\setlength{\tabcolsep}{5pt}",
        rf"\caption{{{latex_text(caption)}}}",
        rf"\label{{tab:{key.slug}-{measure_slug(measure)}}}",
        r"\smallskip\begin{adjustbox}{max width=\textwidth}",
        _tabular(grids, colour).strip(),
        r"\end{adjustbox}",
        r"\end{table*}",
    ]
    scripts = [_SCRIPTS] if any(ord(letter) > 0x17F for line in lines for letter in line) else []
    notes = [block.caption(measure), *(f"Missing: {name} {gap.text}" for name, gap in block.gaps)]
    comments = [f"% {line}" for note in notes for line in textwrap.wrap(note, 110)]
    return "\n".join([_PACKAGES, *scripts, *comments, *lines]) + "\n"


def _model_text(key: BlockKey) -> str:
    """A block's model and stage as a paper names them: ``VSE++ (resnet152, fine-tuned)``.

    The tag of a timm backbone's weights is left out; the comments above the table name it.
    """
    stage = "fine-tuned" if key.stage == "finetune" else key.stage
    grid = f"{key.grid} grid" if key.grid else ""
    words = (key.backbone.split(".")[0], stage, key.own_variant, key.configuration, grid)
    return f"{name_text(key.framework)} ({', '.join(filter(None, words))})"


def _tabular(grids: Sequence[Grid], colour: str) -> str:
    """Both directions of a block side by side."""
    scaled = [(grid, scale_of(grid, colour)) for grid in grids]
    titles = [(latex_text(DIRECTION_TITLES[grid.metric.direction]), grid) for grid in grids]
    heads = [(title, _weight("T", triplet)) for title, grid in titles for triplet in grid.triplets]
    rows = {}
    for letter, name, objectives in grids[0].rows:
        rest = [("", "")] * (len(grids[0].triplets) - len(objectives))
        cells = [cell for grid, scale in scaled for cell in (*(_cell(grid, scale, key) for key in objectives), *rest)]
        rows[_weight(letter, name)] = pd.Series(cells, pd.MultiIndex.from_tuples(heads))
    table = pd.DataFrame(rows).T
    styler = table.map(itemgetter(0)).style.apply(lambda _: table.map(itemgetter(1)), axis=None)
    return str(styler.to_latex(column_format="l" + "c" * len(heads), hrules=True, multicol_align="c", convert_css=True))


def _weight(letter: str, name: str) -> str:
    """The weight of a row or column, with its name as a superscript."""
    return rf"${letter}$\textsuperscript{{{latex_text(name)}}}" if letter else latex_text(name)


def _cell(grid: Grid, scale: ColourScale | None, objective: Objective) -> tuple[str, str]:
    """A number, and its style: its colour, bold if it is the best, underlined if the second."""
    cell = grid.cells[objective]
    text = cell.text(sign=r"$\pm$", with_n=False)
    if cell.mean is None or scale is None:
        return text, ""
    few = rf" {{\scriptsize($n$={cell.n})}}" if cell.gaps else ""
    near = r"\rlap{$^{\approx}$}" if objective in grid.marked else ""  # takes no room, so that numbers stay aligned
    fill = scale(cell.mean)
    rank = "font-weight:bold" if objective in grid.best() else ""
    rank = "underline:--rwrap--latex" if objective in grid.second() else rank
    return f"{text}{few}{near}", f"background-color:#{fill};color:#{text_colour(fill)};{rank}"
