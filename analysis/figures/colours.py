"""The colours of the cells of tables and heatmaps.

They are coloured from its lowest mean to its highest, on one of two scales.

`paper`: from white to the block's full colour, as in the published tables. `colour-blind`: matplotlib's cividis from
pale to dark, which looks alike to readers with and without colour vision deficiency and remains readable in greyscale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_hex, to_rgb

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
    """The scale from the lowest mean of a grid and of the one beside it to the highest; None if it has no mean."""
    means = (*grid.means.values(), *grid.beside)
    return colour_scale(min(means), max(means), full) if grid.means else None


def colour_scale(low: float, high: float, full: str) -> ColourScale:
    """The scale from ``low``, which is white, to ``high``, which has the full colour, RRGGBB or `CIVIDIS`."""
    white_to_full = LinearSegmentedColormap.from_list("", [f"#{WHITE}", f"#{GREEN if full == CIVIDIS else full}"])
    shades = colormaps[CIVIDIS].reversed() if full == CIVIDIS else white_to_full
    place = Normalize(low, high, clip=True)
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
