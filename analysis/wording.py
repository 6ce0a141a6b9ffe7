"""How numbers and names are written in tables, sentences, figures and file names."""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, starmap

from goal_sweep.goal_core.objectives.variants import objective_name

_NAMES = {"coco": "MS-COCO", "f30k": "Flickr30K", "vsepp": "VSE++", "vse_infty": "VSE∞", "xvlm": "X-VLM"}


def name_text(name: str) -> str:
    """A dataset or framework as papers print it: ``MS-COCO`` for ``coco``; other names unchanged."""
    return _NAMES.get(name, name)


def configuration_values(configuration: str) -> dict[str, str]:
    """The values of a configuration by the names of their axes."""
    words = configuration.split()
    return dict(zip(words[::2], words[1::2], strict=False))


def signed(points: float) -> str:
    """A difference in points: ``+1.7``, ``-0.3``; ``0.0`` has no sign."""
    text = f"{points:+.1f}"
    return text[1:] if float(text) == 0 else text


def mean_text(mean: float, std: float | None, sign: str = "±") -> str:
    """A mean as printed: ``35.6 ± 0.1``, or ``35.6 ± --`` without a standard deviation (None or NaN)."""
    return f"{mean:.1f} {sign} {'--' if std is None or std != std else f'{std:.1f}'}"


def span_text(points: Collection[float]) -> str:
    """The least and the most of some numbers: ``1.7 to 3.1``, or ``1.7`` where both print alike."""
    return " to ".join(dict.fromkeys(f"{end:.1f}" for end in (min(points), max(points))))


def p_equation(p: float) -> str:
    """A p-value as printed: ``p = 0.012``, or ``p < 0.001``.

    A fourth digit shows on which side of 0.05 it lies. NaN is ``not tested``.
    """
    if p != p:
        return "not tested"
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.4f}" if f"{p:.3f}" == "0.050" else f"p = {p:.3f}"


def seeds_text(seeds: Collection[int]) -> str:
    """``seed 1`` or ``seeds 2, 3``."""
    return f"seed{'' if len(seeds) == 1 else 's'} {numbers_text(seeds)}"


def numbers_text(numbers: Iterable[int]) -> str:
    """``1, 2, 5``; of four or more in a row the first and the last: ``1 to 67``."""
    rows = [[number for _, number in row] for _, row in groupby(enumerate(numbers), lambda own: own[1] - own[0])]
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 3 else ", ".join(map(str, row)) for row in rows)


def count_text(number: int, noun: str) -> str:
    """``1 seed`` or ``3 seeds``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration_text(seconds: float) -> str:
    """``40 seconds``, ``51 minutes`` or ``12 hours``."""
    size, unit = next(
        (size, unit) for size, unit in ((3600, "hour"), (60, "minute"), (0, "second")) if seconds >= 2 * size
    )
    return count_text(max(round(seconds / (size or 1)), 1), unit)


def list_text(names: Sequence[str]) -> str:
    """At most five names, and the number of the others: ``a, b, c, d, e and 3 more``."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"


def objectives_text(objectives: Iterable[tuple[str, str]]) -> str:
    """``con/nca, infonce``."""
    return ", ".join(starmap(objective_name, objectives))
