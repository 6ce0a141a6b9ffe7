"""The colours of the cells of tables and heatmaps.

They are coloured from its lowest mean to its highest, on one of two scales.

`paper`: from white to the block's full colour, as in the published tables. `colour-blind`: matplotlib's cividis from
pale to dark, which looks alike to readers with and without colour vision deficiency and remains readable in greyscale.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_rgb

from goal_sweep.analysis.blocks import BlockKey, Grid

GREEN, BLUE, RED, YELLOW = "57BB8A", "4285F4", "E67C73", "FFD666"
"""Full colours, RRGGBB."""
WHITE = "FFFFFF"
CIVIDIS = "cividis"
"""Given in place of a full colour: the colour-blind-safe scale."""
Scale = Literal["paper", "colour-blind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColourScale:
    """Maps a value to the colour of its cell."""

    low: float
    """The value that is white."""
    high: float
    """The value that has the full colour."""
    full: str
    """RRGGBB, or :data:`CIVIDIS`."""

    def strength(self, value: float) -> float:
        """Where ``value`` lies between white (0) and full colour (1); 0 when all values are equal."""
        if self.high <= self.low:
            return 0.0
        return float(np.clip((value - self.low) / (self.high - self.low), 0, 1))

    def colour(self, value: float) -> str:
        """The colour of ``value``, RRGGBB."""
        share = self.strength(value)
        if self.full == CIVIDIS:
            return "".join(f"{round(255 * channel):02X}" for channel in colormaps[CIVIDIS](1 - share)[:3])
        return "".join(f"{round(255 * (1 + share * (channel - 1))):02X}" for channel in to_rgb(f"#{self.full}"))


def scale_of(grid: Grid, full: str) -> ColourScale | None:
    """The scale over the means of a grid and of the one beside it; None if it has no mean."""
    if not grid.means:
        return None
    means = (*grid.means.values(), *grid.beside)
    return ColourScale(low=min(means), high=max(means), full=full)


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
