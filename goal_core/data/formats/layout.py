"""What every layout says of a dataset: where its files are, and the images and captions of each split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from goal_core.basics.errors import MissingDataError
from goal_core.data.config import SHIPPED
from goal_core.data.formats.features import RegionFile

SHIPPED_FOLDER = Path(__file__).parents[1] / "shipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One split, in its order."""

    names: Sequence[str]
    """The path of each image's file, relative, with forward slashes; of precomputed features, the image's id."""
    captions: Sequence[Sequence[str]]
    """The captions of each image, at least one."""
    features: RegionFile | None = None
    """The file of the images' features; None for image files."""
    rows: Sequence[int] = ()
    """The row of each image in that file where it repeats an image's row for each of its captions; else empty."""
    texts: RegionFile | None = None
    """The file of the captions' vectors; None where these are words."""
    spans: Sequence[tuple[str, int, int]] = ()
    """Of images in shards the file of each, relative, where it begins there, and its bytes; else empty."""

    def first(self, num_images: int) -> Listing:
        """The same for the first images only; 0 keeps all."""
        if not num_images:
            return self
        kept = slice(0, num_images)
        return replace(
            self, names=self.names[kept], captions=self.captions[kept], rows=self.rows[kept], spans=self.spans[kept]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A dataset whose common files have been read; its splits are read one by one, so that a check can name each."""

    root: Path
    """The folder below which image files are looked for."""
    splits: Mapping[str, Callable[[], Listing]]
    """Reads `train`, `val` and `test`; raises a `DataError` that says in one line what is wrong."""
    files: Sequence[Path]
    """The files that are parsed, whether they exist or not: where one changes, the dataset is read again."""
    corpus: Sequence[str] = ()
    """Captions from which the vocabulary is built; empty for those of train and val."""
    says: str = ""
    """What was recognised, in words."""


def dataset_folder(root: str) -> Path:
    """The folder that ``data.root`` names.

    Raises:
        MissingDataError: it does not exist.
    """
    if root.startswith(SHIPPED):
        names = sorted(path.name for path in SHIPPED_FOLDER.iterdir() if path.is_dir())
        if root.removeprefix(SHIPPED) not in names:
            raise MissingDataError(f"no dataset {root!r} ships with goal-sweep; there is {SHIPPED}{', '.join(names)}")
        return SHIPPED_FOLDER / root.removeprefix(SHIPPED)
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise MissingDataError(f"data.root: dataset folder not found: {folder}")
    return folder


def precomp_folder(root: str) -> Path:
    """The folder of the `*_caps.txt` files: ``root/precomp`` where it exists, else the root.

    Raises:
        MissingDataError: the root does not exist.
    """
    folder = dataset_folder(root)
    inner = folder / "precomp"
    return inner if inner.is_dir() else folder


def split_files(test_file: Literal["test", "testall"]) -> dict[str, str]:
    """First word of the file names of each split: `train`, `val` and `test`."""
    return {"train": "train", "val": "dev", "test": test_file}
