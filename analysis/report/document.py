"""A report as one document: what it contains, and its Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.report.chapter import Chapter
from analysis.report.sections import TextTable
from analysis.report.tables import text_table_to_markdown, to_markdown
from analysis.tracking.blocks import Block, BlockKey
from analysis.tracking.run_links import RunLink
from analysis.tracking.run_schema import METRICS, RSUM

SHOWN_METRICS = (*METRICS, RSUM[1])
"""What every block has a table and a heatmap of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Everything that a reader of one sweep's report is shown."""

    name: str
    """The sweep's name."""
    summary: str
    """How much of what was asked for is there, in a sentence."""
    notes: tuple[str, ...]
    blocks: tuple[Block, ...]
    colours: Mapping[BlockKey, str]
    missing: TextTable | None
    excluded: TextTable | None
    marginals: tuple[TextTable, ...]
    differences: tuple[TextTable, ...]
    comparisons: tuple[TextTable, ...]
    run_links: tuple[RunLink, ...] = ()
    """Only in the page: MLflow's view of every run."""
    chapters: tuple[Chapter, ...] = ()
    """What follows the statistics, in order."""


def heatmap_name(block: Block, metric: str) -> str:
    """Where a report keeps a heatmap, relative to its folder."""
    return f"heatmaps/{block.slug}-{metric.replace('@', '').lower()}.png"


def to_markdown_document(document: Document) -> str:
    """The report in Markdown, with heatmaps linked by relative paths."""
    parts = [f"# {document.name}", document.summary, *document.notes]
    for block in document.blocks:
        parts.append(f"## {block.key.title}")
        if block.is_empty:
            parts.append(f"Nothing of this block is finished: {len(block.gaps)} runs are missing. {block.protocol}")
            continue
        for metric in SHOWN_METRICS:
            picture = f"![Heatmap of {metric}: {block.key.title}]({heatmap_name(block, metric)})"
            parts += [f"### {metric}", to_markdown(block, metric, with_gaps=False).strip(), picture]
    parts += _section("Missing, and not counted", [t for t in (document.missing, document.excluded) if t])
    parts += _section("Each weight on its own", document.marginals)
    parts += _section("Differences from con/con", document.differences)
    parts += _section("Beside the published numbers", document.comparisons)
    for chapter in document.chapters:
        parts += _chapter(chapter)
    return "\n\n".join(parts) + "\n"


def _chapter(chapter: Chapter) -> list[str]:
    parts = [f"## {chapter.title}", *chapter.paragraphs]
    for figure in chapter.figures:
        parts += [f"![{figure.title}]({figure.path})", *([figure.note] if figure.note else [])]
    return parts + _tables(chapter.tables)


def _section(title: str, tables: Sequence[TextTable]) -> list[str]:
    return [f"## {title}", *_tables(tables)] if tables else []


def _tables(tables: Sequence[TextTable]) -> list[str]:
    parts = []
    for table in tables:
        parts += [f"### {table.title}", text_table_to_markdown(table)]
        if table.note:
            parts.append(table.note)
    return parts
