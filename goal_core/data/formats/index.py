"""The index of a dataset: every image with the digest of its bytes, every caption with its owner, in one mapped file.

Its digest is the data's fingerprint. Whoever reads an image compares its bytes with the index, so data that change at
any moment cannot train under an id.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.columns import StoredArray, Texts, digest_of
from goal_sweep.goal_core.basics.sealed_json import key_of
from goal_sweep.goal_core.basics.user_files import stamp_of
from goal_sweep.goal_core.data.config import DataConfig, ScenesConfig
from goal_sweep.goal_core.data.dataset import COUNTED, SPLIT_NAMES, Dataset, Split, fingerprint_of, importers
from goal_sweep.goal_core.data.formats.features import FeatureRows
from goal_sweep.goal_core.data.formats.image_files import FileReader

VERSION = 6
"""Raise it whenever the same files would give another index."""
_NOT_READ = ("name", "image", "min_word_count")
"""Settings on which no file of a dataset is read in another way."""
_OF_CONTENT = ("captions.text", "captions.ends", "owners", "digests", "text_digests")
"""The columns of a split that a model can see anything of; the others say where its files are."""

_NOTHING = np.zeros((0, 32), np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """What is known of a dataset's files."""

    columns: dict[str, NDArray[Any]]
    """For each split, `SPLIT.COLUMN`: its images' ``names`` (their files below the folder, or ids of features),
    ``digests`` (N, 32) and ``status`` (size and times, (N, 3)), its ``captions``, and their ``owners``, the index of
    each one's image; with features the ``rows`` of the images in a file that repeats them, with images in shards their
    ``spans``; and ``corpus``."""
    about: dict[str, Any]
    """The folder below which image files lie, the stamps of the files that were parsed, and by split the
    files of the features and of the captions' vectors; ``notes`` and ``duplicates``, what is said of them; and
    ``words``: how many words of train and val occur how often, (times, words)."""

    def texts(self, name: str) -> Texts:
        """A column of texts; empty where there is none."""
        if f"{name}.ends" not in self.columns:
            return Texts.of(())
        return Texts(self.columns[f"{name}.text"], self.columns[f"{name}.ends"])

    @property
    def digest(self) -> str:
        """SHA-256 of everything that a model can see of the data: the images' bytes, the captions, and their order."""
        if "digest" in self.about:  # of an index that was kept
            return str(self.about["digest"])
        seen = {
            name: column
            for name, column in self.columns.items()
            if name.startswith("corpus.") or name.partition(".")[2] in _OF_CONTENT
        }
        files = self.about["features"] | {f"{name} texts": file for name, file in self.about["texts"].items()}
        return key_of([digest_of(seen), {name: [file["shape"][1:], file["dtype"]] for name, file in files.items()}])

    def is_current(self, *, thorough: bool) -> bool:
        """Whether the files are those that were read, as their sizes and times say.

        Args:
            thorough: also look at every image; else only at the files that were parsed.
        """
        images = chain.from_iterable(map(self.statuses, SPLIT_NAMES if thorough else ()))
        files = chain(self.about["sources"], images)
        return all(stamp == stamp_of(path) for path, *stamp in files)

    def statuses(self, split: str) -> list[tuple[Any, ...]]:
        """Path, size and times of each image of a split; empty where the stamps of the parsed files tell."""
        root, stamps = self.about["root"], self.columns.get(f"{split}.status", _NOTHING).tolist()
        return [(f"{root}/{name}", *stamp) for name, stamp in zip(self.texts(f"{split}.names"), stamps, strict=False)]

    def digests_by_status(self) -> dict[tuple[Any, ...], NDArray[np.uint8]]:
        """The digests of all images whose sizes and times are known."""
        known = (zip(self.statuses(split), self.columns[f"{split}.digests"], strict=False) for split in SPLIT_NAMES)
        return dict(chain.from_iterable(known))

    def dataset(self, config: DataConfig, path: Path | None) -> Dataset:
        """The dataset, whose images are verified whenever they are read.

        Args:
            path: where the index is kept, with the ids of the captions beside it; None keeps none.
        """
        assert not isinstance(config, ScenesConfig)
        digest, corpus, splits = self.digest, self.texts("corpus"), dict[str, Split]()
        for name in SPLIT_NAMES:
            readers = self.readers(name)
            splits[name] = Split(
                name=name,
                captions=self.texts(f"{name}.captions"),
                caption_image=self.columns[f"{name}.owners"],
                reader=readers[f"{name}.digests"],
                texts=readers.get(f"{name}.text_digests"),
                cache=path and path.with_name(f"{digest}-{name}"),
            )
        return Dataset(
            name=config.name,
            splits=splits,
            fingerprint=fingerprint_of(config.image, config.min_word_count, digest),
            corpus=[corpus] if len(corpus) else [splits[name].captions for name in COUNTED],
            notes=[*self.about["notes"], *self.about["duplicates"], *self._rare_words(config.min_word_count)],
        )

    def _rare_words(self, min_word_count: int) -> list[str]:
        """A line that says how many words a vocabulary of words leaves out, if it does."""
        rare = [(times, words) for times, words in self.about["words"] if times < min_word_count]
        if not rare:
            return []
        few, every = (sum(words for _, words in counts) for counts in (rare, self.about["words"]))
        uses = sum(times * words for times, words in rare)
        what = f"occur fewer than {min_word_count} times (min_word_count), {uses:,} times in all"
        return [f"{few:,} of {every:,} different words of train and val {what}: no vocabulary of words has them"]

    def readers(self, name: str) -> dict[str, Any]:
        """By the column of their digests, the readers of a split's images and of its captions' vectors."""
        names, columns = self.texts(f"{name}.names"), self.columns
        images, texts = (columns.get(f"{name}.{kind}", _NOTHING) for kind in ("digests", "text_digests"))
        readers: dict[str, FileReader | FeatureRows] = {}
        if features := self.about["features"].get(name):
            rows = columns.get(f"{name}.rows")
            readers[f"{name}.digests"] = FeatureRows(_stored(features), names, rows, images)
        else:
            spans = columns.get(f"{name}.spans")
            readers[f"{name}.digests"] = FileReader(self.about["root"], names, images, spans)
        if vectors := self.about["texts"].get(name):
            captions = self.texts(f"{name}.captions")
            readers[f"{name}.text_digests"] = FeatureRows(_stored(vectors), captions, None, texts)
        return readers


def own_indexes() -> Path:
    """This user's folder of indexes, for commands without a store."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "goal-sweep", "indexes")


def index_path(config: DataConfig, folder: Path) -> Path:
    """The file of a dataset's index in the folder of all indexes."""
    used = {name: value for name, value in asdict(config).items() if name not in _NOT_READ}
    if used.get("importer"):  # an edit of it may give other rows
        used["importer"] = [used["importer"], importers[used["importer"]].code]
    if config.root is not None and used.get("annotations") == "auto":  # a second file there must be noticed
        used["annotations"] = sorted(path.name for path in Path(config.root).expanduser().glob("dataset_*.json"))
    return folder / f"{config.format}-{key_of([VERSION, used])}.index"


def _stored(described: Mapping[str, Any]) -> StoredArray:
    """An array as the index describes it; JSON has no tuples."""
    return StoredArray(**{**described, "shape": tuple(described["shape"])})
