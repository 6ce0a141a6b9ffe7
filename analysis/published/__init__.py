"""The numbers of the GOAL paper, and its tables drawn from them by the code that draws a sweep's."""

from __future__ import annotations

from analysis.published.render import published_blocks, render_published

__all__ = ["published_blocks", "render_published"]
