"""What `goal_sweep.launch` and `goal_sweep.report` return."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from goal_sweep.analysis.figures.blocks import draw_heatmap
from goal_sweep.analysis.figures.canvas import Picture, assign_colours, drawn
from goal_sweep.analysis.report.folder import PAGE
from goal_sweep.analysis.report.writing import opening
from goal_sweep.analysis.results import best_runs
from goal_sweep.analysis.statistics.aggregation import Inputs
from goal_sweep.frame import frame_of
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.evaluation.metrics import MEASURES
from goal_sweep.runners.cli.reports import ReportTarget
from goal_sweep.runners.store import Store

if TYPE_CHECKING:
    from goal_sweep.goal_core.evaluation.trained_model import RetrievalModel


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The results of a sweep as it was last launched. A notebook shows it as verdict and heatmap."""

    target: ReportTarget
    folder: Path
    """Folder of the report."""
    status: int = 0
    """Exit status of the launch: 0 done, 1 some cells failed, 130 interrupted, which the same call continues."""

    @cached_property
    def _inputs(self) -> Inputs:
        return Inputs(results=self.target.results())

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each training, as `goal_sweep.results` gives them."""
        return frame_of(self._inputs.results)

    @property
    def verdict(self) -> tuple[str, ...]:
        """What the report says first; without results, how far the sweep is."""
        return opening(self._inputs)

    @property
    def blocks(self) -> tuple[str, ...]:
        """The titles of the grids that have a heatmap: one for each data, model, stage and value of an axis."""
        return tuple(block.key.title for block in self._inputs.blocks if block.grids_of("R@1")[0].means)

    def heatmap(self, measure: str = "R@1", block: str = "") -> Picture:
        """Draw a grid of mean ± std over seeds, both directions side by side.

        Args:
            measure: ``R@1``, ``R@5``, ``R@10`` and so on, as the report has them.
            block: one of `blocks`; by default the first of those that the verdict is about.

        Raises:
            GoalError: there is no such measure or block, or none has a result.
        """
        if measure not in MEASURES:
            raise GoalError(f"no measure {measure!r}; there are: {', '.join(MEASURES)}")
        titles = self.blocks
        answered = (found.key.title for found in self._inputs.answered)
        wanted = block or next((title for title in answered if title in titles), "")
        for found in self._inputs.blocks:
            if found.key.title == wanted and wanted in titles:
                colours = assign_colours(one.key for one in self._inputs.blocks)
                return drawn(draw_heatmap, found, colours[found.key], measure)
        raise GoalError(f"no block {block!r} has results; there are: {'; '.join(titles) or 'none'}")

    def best(self, objective: str = "") -> RetrievalModel:
        """Load the best model by val, of all or of one objective (``con/nca``), to encode and search with.

        Raises:
            GoalError: no training is done.
        """
        from goal_sweep.goal_core.evaluation.trained_model import load_model

        best = best_runs(self._inputs.results, objective).iloc[0]
        return load_model(Store(best["store"] or self.target.config.store).weights_of(best))

    def __repr__(self) -> str:
        return "\n".join((*self.verdict, *self._page()))

    def _repr_html_(self) -> str:
        texts = "".join(f"<p>{html.escape(text)}</p>" for text in self.verdict)
        pages = "".join(f"<p><small>Report: <code>{html.escape(page)}</code></small></p>" for page in self._page())
        return f"<div>{texts}{self._picture()}{pages}</div>"

    def _page(self) -> list[str]:
        """The report; none after a launch that ended before it."""
        return [str(self.folder / PAGE)] if (self.folder / PAGE).is_file() else []

    def _picture(self) -> str:
        if not self.blocks:
            return ""
        content = base64.b64encode(self.heatmap("rsum").png()).decode("ascii")
        return (
            f'<img alt="Mean ± std of rsum by objective" style="max-width: 100%" src="data:image/png;base64,{content}">'
        )
