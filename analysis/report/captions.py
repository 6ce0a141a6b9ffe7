"""Captions of several tables that stand together: what they share is said once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.blocks import Block


def shared_caption(blocks: Sequence[Block], measure: str) -> str:
    """The sentences that hold for all blocks; empty without a block."""
    first, *others = (_sentences(block.caption(measure)) for block in blocks) if blocks else [[]]
    return " ".join(text for text in first if all(text in other for other in others))


def own_caption(block: Block, blocks: Sequence[Block], measure: str) -> str:
    """What `shared_caption` of the blocks lacks of a block's caption, but for its title; empty for a block alone."""
    shared = [*_sentences(shared_caption(blocks, measure)), f"{block.key.title}."]
    return " ".join(text for text in _sentences(block.caption(measure)) if text not in shared)


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.]) (?=[A-Z])", text)
