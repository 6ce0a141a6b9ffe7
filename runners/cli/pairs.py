"""What `compare` shows of two objectives: the first results of their models on the test split. It calls `analysis`."""

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from textwrap import fill

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console

from goal_sweep.analysis.report.pair import Direction, Group, Item
from goal_sweep.analysis.statistics.pair import Pair
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.data import Split
from goal_sweep.goal_core.data.formats.features import FeatureRows
from goal_sweep.goal_core.data.words import tokenize
from goal_sweep.goal_core.evaluation.evaluate import open_checkpoint
from goal_sweep.goal_core.evaluation.metrics import METRICS
from goal_sweep.goal_core.evaluation.recalls import check_embedded, embed_split
from goal_sweep.goal_core.evaluation.retrieval import nearest_items
from goal_sweep.runners.cli.output import progress_bar
from goal_sweep.runners.store import Store
from goal_sweep.sweeps import SweepConfig

_SIDE = 128
"""Pixels of the longer side of a thumbnail."""


@dataclass(frozen=True, slots=True)
class Tested:
    """The test split, and what both objectives rank first with one seed."""

    pair: Pair
    place: int
    """Of the seed, in the pair's."""
    split: Split
    firsts: dict[str, list[NDArray[np.int64]]]
    """By direction the index of each query's first result, (queries,), of each objective."""

    def direction(self, way: str, most: int) -> Direction:
        """One direction, with at most so many queries of each outcome."""
        (one, other), (first, second) = self.pair.hits[way][:, self.place], self.pair.titles
        outcomes = {
            f"Only {first} is right": one & ~other,
            f"Only {second} is right": other & ~one,
            "Both are wrong, and differ": ~(one | other) & np.not_equal(*self.firsts[way]),
        }
        groups = []
        for (title, among), side in zip(outcomes.items(), (1, -1, 0), strict=True):
            queries = tuple(self._query(way, query) for query in self.pair.drawn(way, among, most, side))
            groups.append(Group(title=title, number=int(among.sum()), queries=queries))
        return Direction(key=way, words=self.pair.words(way, self._words(way)), groups=tuple(groups))

    def _query(self, way: str, query: int) -> tuple[Item, list[Item], str]:
        show = (self._caption, self._image) if way == "t2i" else (self._image, self._caption)
        hits, names = self.pair.hits[way][:, :, query], self.pair.titles
        found = [
            replace(show[1](int(own[query])), name=name, is_right=bool(hit))
            for own, name, hit in zip(self.firsts[way], names, hits[:, self.place], strict=True)
        ]
        if not hits[:, self.place].any():
            right = int(self.split.caption_image[query]) if way == "t2i" else self._caption_of(query)
            found.append(replace(show[1](right), name="right", is_right=True))
        note = ", ".join(f"{name} {hit.sum()}" for name, hit in zip(names, hits, strict=True))
        return show[0](query), found, f"Seeds that are right, of {hits.shape[1]}: {note}" if hits.shape[1] > 1 else ""

    def _caption(self, index: int) -> Item:
        return Item(text=self.split.captions[index])

    def _image(self, index: int) -> Item:
        reader, caption = self.split.reader, self.split.captions[self._caption_of(index)]
        name = reader.ids[index] if isinstance(reader, FeatureRows) else Path(reader.label(index)).name
        item = Item(text=f"{name}: {caption}")
        if self.split.region_shape is not None:
            return item
        (picture := Image.fromarray(self.split.load_image(index))).thumbnail((_SIDE, _SIDE))
        picture.save(content := io.BytesIO(), "WEBP", quality=80)
        return replace(item, picture=f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}")

    def _caption_of(self, image: int) -> int:
        return int(np.searchsorted(self.split.caption_image, image))

    def _words(self, way: str) -> list[set[str]]:
        """The words of each query: a caption, or an image with all its captions; none where captions are vectors."""
        texts = [] if self.split.texts is not None else [*self.split.captions]
        if way == "i2t" and texts:
            owned = groupby(zip(self.split.caption_image, texts, strict=True), itemgetter(0))
            texts = [" ".join(text for _, text in own) for _, own in owned]
        return [{word for word in tokenize(text) if any(map(str.isalnum, word))} for text in texts]


def tested(config: SweepConfig, pair: Pair, seed: int, device: str) -> Tested:
    """Rank the test split with both models of a seed; whether the first result is right, the report's ranks say.

    The sweep says where its store and its data are now.
    """
    store, root = Store(config.store), config.data.root
    place, firsts = pair.seeds.index(seed), dict[str, list[NDArray[np.int64]]](i2t=[], t2i=[])
    with progress_bar("ranking") as count:
        for number, run in enumerate(runs.loc[seed] for runs in pair.runs):
            count("the test split", number, len(pair.runs))
            path = store.weights_of(run)
            opened = open_checkpoint(path, root=root, device=device, splits=["test"], indexes=store.indexes)
            if opened.encoder.heads.rerank_top:
                raise GoalError(f"{run['framework']} re-ranks; compare shows rankings by similarity alone")
            prepared = opened.prepared("test")
            images, texts = check_embedded(embed_split(opened.encoder, prepared), str(path))
            owners, numbers = prepared.caption_image.to(images.device), torch.arange(len(images), device=images.device)
            for way, given in (("i2t", (images, texts, numbers, owners)), ("t2i", (texts, images, owners, numbers))):
                right, wrong = (index.cpu().numpy() for index in nearest_items(*given))
                firsts[way].append(np.where(pair.hits[way][number, place], right, wrong))
    return Tested(pair, place, opened.dataset.splits["test"], firsts)


def print_pair(pair: Pair, directions: Iterable[Direction], console: Console) -> None:
    """Print the numbers."""
    lines = [f"{pair.block.key.title}; {pair.seeds_text}"]
    for way in directions:
        means = ", ".join(map(" ".join, zip(pair.titles, pair.means(way.key), strict=True)))
        counts = ", ".join(f"{name} {number:,}" for name, number in pair.counts(way.key).items())
        lines.append(f"{METRICS[f'{way.key}_r1'].title.replace('→', '->')}: {means}")
        lines += [f"  {' - '.join(pair.titles)}: {pair.difference(way.key)}", f"  queries: {counts}"]
        for title, words in zip(pair.titles, way.words, strict=True):
            listed = ", ".join(f"{one.word} {one.better} ({one.expected:.1f})" for one in words)
            if listed:
                lines.append(f"  words of more queries that {title} wins than expected (in brackets): {listed}")
    for line in lines:
        console.print(fill(line, console.width, subsequent_indent=" " * 4, break_on_hyphens=False))
