"""The colours of means in a grid of text: those of the report's heatmaps."""

from collections.abc import Collection

_FULL = (0x57, 0xBB, 0x8A)
"""Red, green and blue of the highest mean; the lowest is white."""


def shade(value: float, values: Collection[float]) -> str:
    """The style of a mean among all of its grid: dark letters, on white for the lowest to green for the highest."""
    low, high = min(values), max(values)
    share = (value - low) / (high - low) if high > low else 0.0
    return "#000000 on #" + "".join(f"{round(255 + share * (full - 255)):02x}" for full in _FULL)
