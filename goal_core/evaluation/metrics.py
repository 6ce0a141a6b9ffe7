"""The names of the grid's weights, and of the recalls: as metrics of a result, and for a reader."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

PAIRS: Final = ("con", "lin", "sig", "lin-ms", "sig-ms")
"""Pair weights: the rows of a block, in order."""
TRIPLETS: Final = ("con", "nca", "cir")
"""Triplet weights: the columns of a block, in order."""
OBJECTIVES: Final = tuple((pair, triplet) for pair in PAIRS for triplet in TRIPLETS)
"""All ``(pair, triplet)`` combinations, row by row."""
VAL, TEST = "val/", "test/"
"""Prefixes of metrics on the validation split and on the test split."""
RECALLS_AT: Final = (1, 5, 10)
"""The recalls that are measured, in each direction."""
DIRECTIONS: Final = ("i2t", "t2i")
SUMMED: Final = tuple(f"{way}_r{k}" for way in DIRECTIONS for k in (1, 5, 10))
"""The six recalls that rsum adds up, whatever else is measured."""
DIRECTION_TITLES: Final = {"i2t": "Image → Text", "t2i": "Text → Image", "both": "Both directions"}


def in_order(names: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """``names`` without duplicates: the ``known`` ones in their order, then any others (added by a user) by name."""
    given = set(names)
    return (*(name for name in known if name in given), *sorted(given - set(known)))


def measure_slug(measure: str) -> str:
    """A measure's name in file names: ``R@1`` is ``r1``."""
    return measure.replace("@", "").lower()


def few_images(number: int) -> str:
    """How little a test split of fewer than 100 images tells, by a proportion's textbook interval; else empty."""
    return f"the 95 % interval of a recall of 50 % is ± {98 / number**0.5:.0f} points" if number < 100 else ""


@dataclass(frozen=True, slots=True)
class Metric:
    """A recall, or the sum of six."""

    key: str
    """Such as ``i2t_r1``, or ``rsum``."""
    direction: str
    """``i2t``, ``t2i`` or ``both``."""
    name: str
    """Such as ``R@1``, or ``rsum``, without the direction."""
    label: str
    """Its name in a narrow column: ``i2t R@1``, or ``rsum``."""
    title: str
    """Its name in words: ``Image → Text R@1``, or ``rsum``."""

    @property
    def test(self) -> str:
        """Its column on the test split."""
        return TEST + self.key

    @property
    def val(self) -> str:
        """Its column on the validation split, measured with the same weights as `test`."""
        return VAL + self.key


METRICS: Final[Mapping[str, Metric]] = {
    **{
        f"{way}_r{k}": Metric(f"{way}_r{k}", way, f"R@{k}", f"{way} R@{k}", f"{DIRECTION_TITLES[way]} R@{k}")
        for k in RECALLS_AT
        for way in DIRECTIONS
    },
    "rsum": Metric("rsum", "both", "rsum", "rsum", "rsum"),
}
"""Every metric of a result, by its key, in the order of the tables."""
RSUM: Final = METRICS["rsum"]
MAIN_METRICS: Final = (METRICS["i2t_r1"], METRICS["t2i_r1"], RSUM)
"""The metrics for which statistics are shown."""
MEASURES: Final = tuple(dict.fromkeys(metric.name for metric in METRICS.values()))
"""Each has a table and a heatmap in every block: ``R@1``, ``R@5``, ``R@10`` (both directions) and ``rsum``."""
