"""What the figures share: the figure itself, how panels and legends look, how it is written, and colours.

The cells of tables and heatmaps are coloured from the lowest mean to the highest, on one of two scales.

`paper`: from white to the block's full colour, as in the published tables. `colour-blind`: matplotlib's cividis from
pale to dark, which looks alike to readers with and without colour vision deficiency and remains readable in greyscale.
"""

import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from matplotlib import colormaps, rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text

from goal_sweep.analysis.blocks import BlockKey, Grid

GREEN, BLUE, RED, YELLOW = "57BB8A", "4285F4", "E67C73", "FFD666"
"""Full colours, RRGGBB."""
WHITE = "FFFFFF"
CIVIDIS = "cividis"
"""Given in place of a full colour: the colour-blind-safe scale."""
Scale = Literal["paper", "colour-blind"]


ColourScale = Callable[[float], str]
"""The colour of a value, RRGGBB."""


def scale_of(grid: Grid, full: str) -> ColourScale | None:
    """The scale from the lowest mean of a grid and of the one beside it, in white, to the highest, in the full colour.

    The full colour is RRGGBB or `CIVIDIS`. A grid without a mean has no scale.
    """
    if not grid.means:
        return None
    means = (*grid.means.values(), *grid.beside)
    white_to_full = LinearSegmentedColormap.from_list("", [f"#{WHITE}", f"#{GREEN if full == CIVIDIS else full}"])
    shades = colormaps[CIVIDIS].reversed() if full == CIVIDIS else white_to_full
    place = Normalize(min(means), max(means), clip=True)
    return lambda value: to_hex(shades(place(value)))[1:].upper()


def assign_colours(keys: Iterable[BlockKey], scale: Scale = "paper") -> dict[BlockKey, str]:
    """A full colour for each block, in turn by model: its stages and variants share one.

    With the colour-blind scale, all blocks share that scale.
    """
    if scale == "colour-blind":
        return dict.fromkeys(keys, CIVIDIS)
    turn, models = (GREEN, BLUE, RED, YELLOW), dict[tuple[str, str, str], str]()
    return {
        key: models.setdefault((key.dataset, key.framework, key.backbone), turn[len(models) % len(turn)])
        for key in keys
    }


def text_colour(background: str) -> str:
    """Black or white, whichever has the higher contrast ratio with ``background`` (WCAG 2.1)."""
    shares = [
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in to_rgb(f"#{background}")
    ]
    luminance = float(np.dot(shares, (0.2126, 0.7152, 0.0722)))
    return "000000" if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else WHITE


INK, FAINT, PALE = "#1f2328", "#59636e", "#8c959f"
"""Colours of text and lines in all figures, from strong to weak."""
TITLE_PLACE: Final[Mapping[str, Any]] = {"y": 1.0}
"""Of a panel's title. Without it matplotlib measures all ticks for a place, a tenth of a report's time."""
_TITLE, _NOTE = 12.0, 7.5
"""Sizes of texts, in points."""
_FONT = "DejaVu Sans"
"""Matplotlib's own, which has all but the scripts of East Asia."""
_EAST_ASIAN = ("Noto Sans CJK", "Source Han Sans", "WenQuanYi", "Hiragino", "PingFang", "Microsoft YaHei", "Malgun")
"""Beginnings of the names of fonts that fill in, best first."""
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    # Half the time of the usual level; the files are an eighth larger.
    ".png": {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}},
    ".pdf": {"metadata": {"CreationDate": None, "Producer": None, "Creator": None}},
}


def write_figure(paths: Sequence[Path], draw: Callable[..., Figure], *arguments: Any) -> None:
    """Draw a figure and save it as ``.png`` or ``.pdf``; the same numbers give the same bytes."""
    with rc_context({"font.family": families()}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box shows that no font has it
        figure = draw(*arguments)
        # TrueType, because journals refuse type 3; East Asian fonts are often no TrueType.
        is_east_asian = any(letter > "\u2e80" for text in figure.findobj(Text) for letter in text.get_text())
        rcParams["pdf.fonttype"] = 3 if is_east_asian else 42
        for path in paths:
            figure.savefig(path, **_OPTIONS[path.suffix])


def families() -> list[str]:
    """The font families of a figure: matplotlib's own, and this machine's best for East Asian scripts."""
    names = fontManager.get_font_names()
    found = (name for start in _EAST_ASIAN for name in sorted(names) if name.startswith(start))
    return [_FONT, *(name for name in [next(found, "")] if name)]


class Picture(Figure):
    """A figure that a notebook shows, also one that has not loaded pyplot."""

    def png(self) -> bytes:
        """The figure as a PNG file."""
        self.savefig(content := BytesIO(), format="png", **_OPTIONS[".png"])
        return content.getvalue()

    _repr_png_ = png


def drawn(draw: Callable[..., Picture], *arguments: Any) -> Picture:
    """Draw a figure in this machine's fonts."""
    with rc_context({"font.family": families()}):
        return draw(*arguments)


def panels(
    shape: tuple[int, int],
    size: tuple[float, float],
    *,
    title: str = "",
    note: str = "",
    left: float = 0.6,
    right: float = 0.2,
    top: float = 0.3,
    bottom: float = 0.5,
    between: tuple[float, float] = (0.3, 0.5),
    **sharing: Any,
) -> tuple[Picture, list[list[Axes]]]:
    """A figure of rows and columns of panels of a size, with a title above and a note below; all lengths in inches.

    Matplotlib's own layout engines measure every text of a figure first, which takes as long as drawing it.
    """
    (rows, columns), (wide, high) = shape, size
    width = left + columns * wide + (columns - 1) * between[0] + right
    heads, notes = (
        textwrap.wrap(text, int((width - 0.4) * 130 / size)) for text, size in ((title, _TITLE), (note, _NOTE))
    )
    top, bottom = top + 0.22 * len(heads), bottom + 0.15 * len(notes)
    height = bottom + rows * high + (rows - 1) * between[1] + top
    figure = Picture(figsize=(width, height), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    sides = {"left": left / width, "right": 1 - right / width, "bottom": bottom / height, "top": 1 - top / height}
    figure.subplots_adjust(**sides, wspace=between[0] / wide, hspace=between[1] / high)
    style: dict[str, Any] = {"size": _TITLE, "weight": "bold", "color": INK}
    figure.text(0.2 / width, 1 - 0.12 / height, "\n".join(heads), va="top", **style)
    figure.text(0.2 / width, 0.1 / height, "\n".join(notes), va="bottom", size=_NOTE, color=FAINT)
    return figure, figure.subplots(rows, columns, squeeze=False, **sharing).tolist()


def style_panel(axes: Axes, title: str, x: str = "", y: str = "", *, grid: bool = True) -> None:
    """Give a panel its title, the names of its axes, small ticks and, if it is of lines, a faint grid."""
    axes.set_title(title, fontsize=9, color=INK, **TITLE_PLACE)
    axes.set_xlabel(x, fontsize=8.5)
    axes.set_ylabel(y, fontsize=8.5)
    axes.tick_params(labelsize=7)
    if grid:
        axes.grid(color="#e6e9ed", linewidth=0.5)


def colour_bar(figure: Figure, image: Any, label: str) -> None:
    """A colour bar in the right margin of an inch."""
    width, height = figure.get_size_inches()
    scale = figure.add_axes((1 - 0.85 / width, 0.5 - 0.8 / height, 0.15 / width, 1.6 / height))
    figure.colorbar(image, cax=scale, label=label)
