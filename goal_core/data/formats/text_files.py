"""Captions and ids in text files, with precomputed features or with images that `id_mapping.json` names.

For each of train, dev (which is val) and test there are `{split}_caps.txt`, one caption per line, those of an image one
after the other, and `{split}_ids.txt`, one id per image or one per caption.

Source: the layouts of VSE++'s `*_precomp` folders (Faghri et al., BMVC 2018), of SCAN (Lee et al. 2018), which adds
ids, and of VSE-infinity. In VSE++'s code an image has five captions; here it has any number, the same for all images
unless there is an id for each caption.
"""

import gzip
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.basics.files import StoredArray, content_of, json_in, reading, text_in
from goal_sweep.goal_core.data.config import IdMappedConfig, PrecompConfig, RegionsConfig
from goal_sweep.goal_core.data.formats import layout
from goal_sweep.goal_core.data.formats.features import REGION_AXES, VECTOR_AXES, read_region_header, row_digests
from goal_sweep.goal_core.data.words import is_seen

_CAPTIONS = 5
"""Captions of an image in the published datasets."""
_ADVICE = "give the image's id for each line of {} in {}"


def text_files(config: IdMappedConfig | RegionsConfig | PrecompConfig) -> layout.Layout:
    """Captions and ids, with features in `{split}_ims.npy`, or with the file of each id in `id_mapping.json`.

    Features are regions of each image, or one vector, beside which ids may be left out.
    """
    root, folder = layout.dataset_folder(config.root), layout.precomp_folder(config.root)
    words = layout.FILE_WORDS | {"test": config.test_file}
    mapping = root / "id_mapping.json" if isinstance(config, IdMappedConfig) else None
    ends = ("ims.npy", "caps.txt", "caps.txt.gz", "ids.txt", "ids.txt.gz")
    parsed = [folder / f"{word}_{end}" for word in words.values() for end in ends]
    files = layout.stamped(root, [*parsed, mapping] if mapping else parsed)
    files_of = json_in(content_of(mapping), mapping) if mapping else None
    if mapping and (not isinstance(files_of, dict) or not files_of):
        raise DataError(f"{mapping} must be an object from image ids to file names")
    splits = {split: partial(_split, config, folder / word, mapping, files_of) for split, word in words.items()}
    return layout.Layout(root=root, files=files, splits=splits)


def _split(
    config: IdMappedConfig | RegionsConfig | PrecompConfig, start: Path, mapping: Path | None, files_of: Any
) -> layout.Listing:
    """One split, whose files' names begin with a path."""
    ims, caps, ids = (start.with_name(f"{start.name}_{end}") for end in ("ims.npy", "caps.txt", "ids.txt"))
    has_vectors = isinstance(config, PrecompConfig)
    features = None if mapping else read_region_header(ims, VECTOR_AXES if has_vectors else REGION_AXES)
    lines = list[str]()
    for number, text in enumerate(read_lines(caps), 1):
        lines += layout.captions_in(text, f"line {number} of {caps}")
        if len(lines) != number:
            raise DataError(f"line {number} of {caps} holds a list, but each caption must have a line")
    if features and has_vectors and not _stored(ids).exists():
        counts = _counts_without_ids(features, caps, len(lines), ids)
        names = [str(image) for image in range(len(counts))]
    else:
        names, counts = _images_of(ids, caps, len(lines))
        if features and features.shape[0] == len(names):
            _check_numbers(names, ids, ims)
    if mapping:
        names = [layout.image_path(files_of.get(name), f"{mapping}: the file of id {name}") for name in names]
    line = iter(lines)
    return layout.Listing(
        names=names,
        captions=[list(itertools.islice(line, count)) for count in counts],
        features=features,
        rows=_first_rows(features, counts, caps) if features else (),
    )


def _stored(path: Path) -> Path:
    """Where a text file is: at its path, or compressed at ``{path}.gz``."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.exists() and not path.exists() else path


def read_lines(path: Path, ends: str | re.Pattern[str] = "\n") -> list[str]:
    """The lines of a text file, stripped, with such ends. Where it does not exist, they are read from ``{path}.gz``."""
    place, packed = _stored(path), path.with_name(f"{path.name}.gz")
    content = content_of(place)
    if packed.exists():
        with reading(f"cannot read {packed}"):
            unpacked = gzip.decompress(content_of(packed))
        if place is path and unpacked != content:
            raise DataError(f"{path} and {packed} differ; delete or move one")
        content = unpacked
    text = text_in(content, place).removesuffix("\n").removesuffix("\r")
    # Captions hold characters that `splitlines` takes for line ends.
    lines = [line.strip() for line in re.split(ends, text)]
    if blank := next((number for number, line in enumerate(lines, start=1) if not is_seen(line)), 0):
        raise DataError(f"{place} is empty" if lines == [""] else f"line {blank} of {place} is empty")
    return lines


def _images_of(path: Path, caps: Path, num_captions: int) -> tuple[list[str], list[int]]:
    """The id of each image, and how many captions it has."""
    names = read_lines(path)
    if len(names) == num_captions:
        runs = [(name, len(list(lines))) for name, lines in itertools.groupby(names)]
        names, counts = [name for name, _ in runs], [count for _, count in runs]
    else:
        counts = layout.equal_counts(num_captions, len(names), caps, _ADVICE.format(caps.name, path))
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(f"image {twice[0]} is listed twice in {path}; the lines of an image must follow one another")
    return names, counts


def _check_numbers(names: Sequence[str], ids: Path, ims: Path) -> None:
    """Refuse ids that are the numbers of all rows in another order: rows are taken in the order of the ids."""
    numbers = [int(name) for name in names if name.isdecimal()]
    first = min(numbers, default=0)
    if len(numbers) == len(names) > max(numbers) - first and first < 2 and numbers != sorted(numbers):
        raise DataError(
            f"the ids in {ids} are the numbers from {first} to {max(numbers)} in another order, but the rows of {ims} "
            "are taken in the order of the ids; write captions and ids in the order of the rows or, where the ids do "
            "not number the rows, a letter before each id"
        )


def _counts_without_ids(file: StoredArray, caps: Path, num_captions: int, ids: Path) -> list[int]:
    """How many captions each image has, by the number of rows and by which rows are equal.

    Where each caption has a row, equal neighbours are one image or several with equal rows. Rows that all repeat
    equally often are one image each; rows that repeat in multiples of five have the five captions of VSE++.
    """
    num_rows = file.shape[0]
    if num_rows != num_captions:
        return layout.equal_counts(num_captions, num_rows, caps, _ADVICE.format(caps.name, ids))
    rows = row_digests(file)
    runs = np.diff([0, *(1 + np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1))), num_rows])
    step = int(runs[0]) if (runs == runs[0]).all() else _CAPTIONS
    if (runs % step).any():
        raise DataError(
            f"{file.path} has a row for each line of {caps.name}, and the rows repeat {min(runs)} to {max(runs)} "
            "times; equal neighbours may be one image or several that look the same, which only ids can tell: "
            + _ADVICE.format(caps.name, ids)
        )
    return [step] * (num_rows // step)


def _first_rows(file: StoredArray, counts: Sequence[int], caps: Path) -> Sequence[int]:
    """The first row of each image where the file repeats it for every caption; empty where it has one row per image."""
    num_rows = file.shape[0]
    if num_rows == len(counts):
        return ()
    if num_rows != sum(counts):
        must = f"one for each of the {len(counts)} images or for each of the {sum(counts)} captions in {caps}"
        raise DataError(f"{file.path} has {num_rows} rows, but must have {must}")
    rows, starts = row_digests(file), np.cumsum([0, *counts[:-1]])
    odd = (rows != rows[np.repeat(starts, counts)]).any(axis=1)
    if odd.any():
        image = int(np.searchsorted(starts, np.argmax(odd), side="right")) - 1
        own = f"the {counts[image]} captions of one image, but are not equal"
        raise DataError(f"rows {starts[image]} to {starts[image] + counts[image] - 1} of {file.path} belong to {own}")
    return tuple(starts.tolist())
