"""The page that compares two objectives query by query, with the first result of each."""

from dataclasses import dataclass

from goal_sweep.analysis.report.pages import page_environment
from goal_sweep.analysis.statistics.pair import Pair, WordCount
from goal_sweep.goal_core.evaluation.metrics import METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A picture or a text: a query, or what was found for it."""

    text: str
    """A caption; of a picture its name and a caption."""
    picture: str = ""
    """A data URI; empty for captions, and where the data have no pictures."""
    name: str = ""
    """Of what was found: the objective that ranks it first, or ``right`` where neither has a right answer."""
    is_right: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Queries of one seed with the same outcome."""

    title: str
    number: int
    """All of them; ``queries`` are some."""
    queries: tuple[tuple[Item, list[Item], str], ...]
    """Of each the query, what was found, and with how many seeds each objective is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """One direction of retrieval, ``i2t`` or ``t2i``."""

    key: str
    words: list[list[WordCount]]
    """Those that favour each objective."""
    groups: tuple[Group, ...]


def pair_to_html(sweep: str, pair: Pair, seed: int, directions: tuple[Direction, ...], *, pictures: bool) -> str:
    """The page, which needs no scripts and no other file; groups are of one seed."""
    template = page_environment().get_template("pair.html.j2")
    return template.render(sweep=sweep, pair=pair, seed=seed, directions=directions, pictures=pictures, metrics=METRICS)
