"""The index of a dataset: every image with the digest of its bytes, every caption with its owner, in one mapped file.

Its digest is the data's fingerprint. Whoever reads an image compares its bytes with the index, so data that change at
any moment cannot train under an id. Image files that annotations name are found by listing folders, and read and
decoded when they are needed.
"""

import glob
import hashlib
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unicodedata import normalize
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.errors import ChangedDataError, DataError, MissingDataError
from goal_sweep.goal_core.basics.files import StoredArray, Texts, digest_of, key_of, opened, stamp_of
from goal_sweep.goal_core.data.config import SHIPPED, DataConfig, ScenesConfig
from goal_sweep.goal_core.data.dataset import COUNTED, SPLIT_NAMES, Dataset, Split, fingerprint_of, importers
from goal_sweep.goal_core.data.formats.features import FeatureRows
from goal_sweep.goal_core.data.formats.layout import PICTURES, check_backslashes, check_links, dataset_folder
from goal_sweep.goal_core.data.formats.pictures import decode_image, examined
from goal_sweep.goal_core.data.formats.report import DataReport

WITH_FOLDER = ("", "images")
"""Where the folder of an image name is looked for, relative to the root: the root itself, then `images`."""
WITHOUT_FOLDER = ("images", "flickr30k-images", "flickr30k_images", "")
"""Where an image name without a folder is looked for, relative to the root, the root itself last."""
MOST_FOLDERS = 12
"""Which a report of the data lists one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class FileReader:
    """Reads a split's images from their files; an :class:`~goal_core.data.dataset.ImageReader`."""

    root: str
    """The folder below which the files lie."""
    paths: Sequence[str]
    """Of each image, relative to it."""
    digests: NDArray[np.uint8]
    """SHA-256 of each image's bytes, (N, 32)."""
    spans: NDArray[np.int64] | None = None
    """Where each image begins in its file, and its bytes, (N, 2); None where each has a file of its own."""
    places: Sequence[str] = ()
    """The name of each image in its file; empty where each has a file of its own."""

    def __len__(self) -> int:
        return len(self.paths)

    def content(self, index: int) -> tuple[bytes, list[int]]:
        """The bytes of an image as they are now, and the stamp that its file had when it was opened."""
        try:
            with opened(os.path.join(self.root, self.paths[index])) as file:
                stamp = stamp_of(file.fileno())
                begin, size = (0, stamp[0]) if self.spans is None else map(int, self.spans[index])
                return os.pread(file.fileno(), size, begin), stamp
        except DataError as error:
            raise ChangedDataError(str(error)) from error

    def read(self, index: int) -> NDArray[np.uint8]:
        """Decode one image; see :func:`decode_image`."""
        (content, _), path = self.content(index), self.label(index)
        if hashlib.sha256(content).digest() != self.digests[index].tobytes():
            raise ChangedDataError(f"image {path} is not the one that was indexed; if it is right now, touch it")
        return decode_image(content, path)

    def fresh(self, indices: Sequence[int]) -> tuple[bytes, list[list[int]], list[str], list[tuple[str, str]]]:
        """SHA-256 of some images as they are now, together; their files' stamps; a line for each not decodable one.

        Also the path of each that viewers show turned or mirrored, or that is nearly black, and what is said of it.
        """
        digests, stamps, problems, shown = [], [], [], list[tuple[str, str]]()
        for index in indices:
            content, stamp = self.content(index)
            digests.append(hashlib.sha256(content).digest())
            stamps.append(stamp)
            try:
                shown += [(self.label(index), remark) for remark in examined(content, self.label(index))[1]]
            except DataError as error:
                problems.append(str(error))
        return b"".join(digests), stamps, problems, shown

    def label(self, index: int) -> str:
        """The file's path, and the image's name in it if it holds several."""
        path = os.path.join(self.root, self.paths[index])
        return f"{path}: {self.places[index]}" if self.spans is not None else path


def find_images(root: Path, pictures: Mapping[str, Sequence[str]], report: DataReport) -> dict[str, str]:
    """The file of each image by its name, relative to the root, found by listing each folder once; none is opened.

    Several paths are tried for each folder (:data:`WITH_FOLDER`, :data:`WITHOUT_FOLDER`). The first that contains one
    of the folder's images is used for all of them.
    """
    folders: dict[str, list[str]] = defaultdict(list)
    times = Counter(chain.from_iterable(pictures.values()))
    for name in times:
        folders[name.rpartition("/")[0]].append(name)
    for name in [name for name, number in times.items() if number > 1][:1]:
        splits = [split for split, names in pictures.items() if name in names]
        report.note("images", "wrong", f"image {name} is listed twice, in {' and '.join(splits)}")
    report.attempt("images", partial(check_backslashes, root, WITH_FOLDER, times))
    files: dict[str, str] = {}
    for folder, listed in sorted(folders.items()):
        item = f"{folder}/" if folder else "images"
        if there := report.attempt(item, partial(_files_in, root, folder, listed)):
            if len(folders) <= MOST_FOLDERS:
                report.note(item, "ok", f"{len(there):,} files in {root / os.path.dirname(there[listed[0]])}")
            files |= there
    if len(folders) > MOST_FOLDERS:
        report.note("images", "ok", f"{len(files):,} files in {len(folders):,} folders of {root}")
    return files


def _files_in(root: Path, folder: str, names: Sequence[str]) -> dict[str, str]:
    """The files of one folder, by name, from the first path that contains any of them."""
    paths = [root / parent / folder for parent in (WITH_FOLDER if folder else WITHOUT_FOLDER)]
    existing = [path for path in paths if path.is_dir()]
    if not existing:
        alike = [one for path in paths for one in path.parent.glob("*/") if one.name.lower() == path.name.lower()]
        hint = f"; there is {alike[0]}" if alike else ""
        raise MissingDataError(f"image folder not found; looked for {', '.join(map(str, paths))}{hint}")
    name_of = {name.rpartition("/")[2]: name for name in names}
    there: dict[str, str] = {}
    for path in existing:
        try:
            with os.scandir(path) as entries:
                files = [entry for entry in entries if entry.name in name_of and entry.is_file()]
        except OSError as error:
            raise DataError(f"cannot list image folder {path}: {error.strerror or error}") from error
        if files:
            check_links(root, [str(path), *(file.path for file in files if file.is_symlink())])
            place = "" if path == root else f"{os.path.relpath(path, root)}/"
            there = {name_of[file.name]: place + file.name for file in files}
            break
    others = [] if folder or not there else [one for one in existing if one != path]
    for twin, name in ((other / name, name) for other in others for name in sorted(there.keys() & os.listdir(other))):
        if (root / there[name]).read_bytes() != twin.read_bytes():
            raise DataError(f"{root / there[name]} and {twin} differ; delete or move one")
    if missing := [name for name in names if name not in there]:
        few = ", ".join([*missing[:3], *(["..."] if len(missing) > 3 else ())])
        name = missing[0].rpartition("/")[2]
        there_is = {_bare(other): path / other for path in existing for other in sorted(os.listdir(path))}
        hint, near = "", there_is.get(_bare(name))
        if near and near.name == name:
            hint = f"; there is {near}, while others are elsewhere; bring them together"
        elif near:
            is_form = normalize("NFC", near.name) == normalize("NFC", name)
            how = "Unicode form (NFC or NFD)" if is_form else "letters, signs or ending"
            hint = f"; there is {near.name!r}, which differs in {how}"
        elif not there and (below := sorted(root.glob(f"*/{glob.escape(missing[0])}"))):
            above = below[0].relative_to(root).parts[0]
            hint = f"; there is {below[0]}: rename the folder {above} to images, or begin each path with {above}/"
        raise MissingDataError(f"{len(missing)} of {len(names)} images are missing under {root}: {few}{hint}")
    return there


def _bare(name: str) -> str:
    """A name without what is often lost, changed or added: outer blanks, capitals, Unicode form, %20, #0, ending."""
    bare = normalize("NFC", unquote(name)).strip(" \t'\"").casefold()
    stem, ending = os.path.splitext(re.sub(r"#\d+\Z", "", bare))
    return stem if ending in PICTURES else stem + ending


VERSION = 15
"""Raise it whenever the same files would give another index."""
_NOT_READ = ("name", "image", "min_word_count")
"""Settings on which no file of a dataset is read in another way."""
_OF_CONTENT = ("captions.text", "captions.ends", "owners", "digests", "text_digests", "text", "ends")
"""The columns that a model can see anything of, the last two of the corpus; the others say where files are."""

_NOTHING = np.zeros((0, 32), np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """What is known of a dataset's files."""

    columns: dict[str, NDArray[Any]]
    """For each split, `SPLIT.COLUMN`: its images' ``names`` (their files below the folder, or ids of features),
    ``digests`` (N, 32) and ``status`` (size and times, (N, 3)), its ``captions``, and their ``owners``, the index of
    each one's image; with features the ``rows`` of the images in a file that repeats them, with images in shards their
    ``spans`` and ``places``; and ``corpus``."""
    about: dict[str, Any]
    """The folder below which image files lie, the stamps of the files that were parsed, and by split the
    files of the features and of the captions' vectors; ``notes``, ``duplicates`` and ``unspaced``, what is said of
    them; and ``words``: how many words of train and val occur how often, (times, words); ``words_of_test``: how many
    words of test are such that occur so often there."""

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
        seen = {name: column for name, column in self.columns.items() if name.partition(".")[2] in _OF_CONTENT}
        files = self.about["features"] | {f"{name} texts": file for name, file in self.about["texts"].items()}
        return key_of([digest_of(seen), {name: [file["shape"][1:], file["dtype"]] for name, file in files.items()}])

    def is_current(self, *, thorough: bool) -> bool:
        """Whether the files are those that were read, as their sizes and times say.

        Args:
            thorough: also look at every image; else only at the files that were parsed.
        """
        images = chain.from_iterable(map(self.statuses, SPLIT_NAMES if thorough else ()))
        return all(stamp == stamp_of(path) for path, *stamp in chain(self.about["sources"], images))

    def statuses(self, split: str) -> list[tuple[Any, ...]]:
        """Path, size and times of each image of a split; empty where the stamps of the parsed files tell."""
        root, stamps = self.about["root"], self.columns.get(f"{split}.status", _NOTHING).tolist()
        return [(f"{root}/{name}", *stamp) for name, stamp in zip(self.texts(f"{split}.names"), stamps, strict=False)]

    def dataset(self, config: DataConfig, path: Path | None) -> Dataset:
        """The dataset, whose images are verified whenever they are read.

        Args:
            path: where the index is kept, with the ids of the captions beside it; None keeps none.
        """
        assert not isinstance(config, ScenesConfig)
        digest, corpus, splits = self.digest, self.texts("corpus"), dict[str, Split]()
        for name in SPLIT_NAMES:
            if not len(self.columns[f"{name}.owners"]):
                continue
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
            corpus=[corpus] if len(corpus) else [splits[name].captions for name in COUNTED if name in splits],
            notes=[*self.about["notes"], *self.about["duplicates"]],
            word_notes=[*self.about["unspaced"], *self._rare_words(config.min_word_count)],
        )

    def _rare_words(self, least: int) -> list[str]:
        """Lines that say how many words a vocabulary of words leaves out; of those of test, only if they are most."""
        (every, few), (of_test, new) = (
            [sum(words for times, words in self.about[name] if times < most) for most in (math.inf, least)]
            for name in ("words", "words_of_test")
        )
        uses = sum(times * words for times, words in self.about["words"] if times < least)
        rare = f"{few:,} of {every:,} different words of train and val occur fewer than {least} times (min_word_count)"
        lines = [f"{rare}, {uses:,} times in all, and become <unk>"] * bool(few)
        if 2 * new > of_test:
            often = f"occur fewer than {least} times" if least > 1 else "never occur"
            what = f"words of the test captions are unknown, as they {often} in train and val"
            lines.append(f"{new:,} of {of_test:,} {what}")
        return lines

    def readers(self, name: str) -> dict[str, Any]:
        """By the column of their digests, the readers of a split's images and of its captions' vectors."""
        names, columns = self.texts(f"{name}.names"), self.columns
        images, texts = (columns.get(f"{name}.{kind}", _NOTHING) for kind in ("digests", "text_digests"))
        readers: dict[str, FileReader | FeatureRows] = {}
        if features := self.about["features"].get(name):
            readers[f"{name}.digests"] = FeatureRows(_stored(features), names, columns.get(f"{name}.rows"), images)
        else:
            readers[f"{name}.digests"] = FileReader(
                self.about["root"], names, images, columns.get(f"{name}.spans"), self.texts(f"{name}.places")
            )
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
    if str(config.root).startswith(SHIPPED):  # two installations have two places
        used["root"] = str(dataset_folder(str(config.root)))
    if config.root is not None and used.get("annotations") == "auto":  # a second file there must be noticed
        used["annotations"] = sorted(path.name for path in Path(config.root).expanduser().glob("dataset_*.json"))
    return folder / f"{config.format}-{key_of([VERSION, used])}.index"


def _stored(described: Mapping[str, Any]) -> StoredArray:
    """An array as the index describes it; JSON has no tuples."""
    return StoredArray(**{**described, "shape": tuple(described["shape"])})
