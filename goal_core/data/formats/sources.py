"""Data in the layouts that people have anyway: tables, Hugging Face datasets, WebDataset shards, folders of pictures.

Each importer is a function that gives the rows of a dataset: an image, its captions, the name of its split, and a key.
Images are read in place: from their files, or from where their bytes lie in a shard.
"""

from __future__ import annotations

import csv
import hashlib
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from goal_core.basics.errors import DataError, MissingDataError, nearest
from goal_core.data.config import SourceConfig
from goal_core.data.dataset import SPLIT_NAMES
from goal_core.data.formats.layout import Layout, Listing

if TYPE_CHECKING:
    import pyarrow as pa

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_SPLITS = {"train": "train", "restval": "train", "val": "val", "validation": "val", "valid": "val", "dev": "val"}
_SPLITS["test"] = "test"
_COLUMNS = {
    "image": ("image", "image_path", "file_name", "filename", "filepath", "path"),
    "caption": ("caption", "captions", "text", "texts", "sentence", "sentences", "raw"),
    "split": ("split",),
}
"""The names under which a column is looked for where the sweep names none."""


class Row(NamedTuple):
    """An image with some of its captions; the rows of an image come together by its key."""

    key: str
    image: str
    """Its file, relative to the folder of the dataset; in a shard, the shard."""
    captions: Sequence[str]
    split: str
    """As the source names it; empty where it does not."""
    span: tuple[int, int] | None = None
    """Where it begins in a shard, and its bytes."""


class Found(NamedTuple):
    """What a source turned out to be."""

    what: str
    """In words."""
    root: Path
    """The folder of the dataset."""
    files: Sequence[Path]
    """The files that are parsed."""
    rows: Callable[[], Iterable[Row]]


def source(config: SourceConfig) -> Layout:
    """Recognise what lies at `data.root`, and read it."""
    path = Path(config.root).expanduser()
    if not path.exists():
        raise MissingDataError(f"data.root: {path} does not exist")
    found = _recognised(path, config)
    rows = list(found.rows())
    listings = {split: _listing(own) for split, own in _by_split(rows, config).items()}
    return Layout(
        root=found.root,
        files=found.files,
        splits={split: lambda own=listing: own for split, listing in listings.items()},  # type: ignore[misc]
        says=found.what,
    )


def _recognised(path: Path, config: SourceConfig) -> Found:
    if path.is_file():
        if path.suffix in (".csv", ".tsv"):
            return Found(f"table {path.name}", path.parent, [path], lambda: _separated(path, config))
        if path.suffix == ".parquet":
            return Found(f"table {path.name}", path.parent, [path], lambda: _parquet(path, config))
        if path.suffix == ".tar":
            return Found(f"WebDataset shard {path.name}", path.parent, [path], lambda: _shards(path.parent, [path]))
        raise DataError(f"data.root: {path} is no table (.csv, .tsv, .parquet) and no shard (.tar)")
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        files = sorted(path.rglob("*.arrow"))
        names = [*sorted(path.rglob("*.json")), *files]
        return Found("folder of Hugging Face datasets", path, names, lambda: _arrow(path, files, config))
    if shards := sorted(path.rglob("*.tar")):
        return Found(f"{len(shards)} WebDataset shards", path, shards, lambda: _shards(path, shards))
    pictures = sorted(one for one in path.rglob("*") if one.suffix.lower() in PICTURES)
    if pictures:
        texts = [one.with_suffix(".txt") for one in pictures]
        return Found("folder of pictures with a text file beside each", path, texts, lambda: _beside(path, pictures))
    raise DataError(
        f"data.root: {path} has no Hugging Face dataset (dataset_dict.json, state.json), no shards (*.tar), and no "
        f"pictures ({', '.join(PICTURES)})"
    )


def _by_split(rows: Iterable[Row], config: SourceConfig) -> dict[str, list[tuple[Row, list[str]]]]:
    """The images of each split with all of their captions, in the order in which they first occur."""
    images: dict[str, tuple[Row, list[str]]] = {}
    for row in rows:
        first, captions = images.setdefault(row.key, (row, []))
        if row.split != first.split:
            raise DataError(f"image {row.key} is in two splits, {first.split!r} and {row.split!r}")
        captions += [caption.strip() for caption in row.captions]
    splits: dict[str, list[tuple[Row, list[str]]]] = {split: [] for split in SPLIT_NAMES}
    for row, captions in images.values():
        if not all(captions):
            raise DataError(f"image {row.key} has an empty caption")
        if row.split and row.split not in _SPLITS:
            raise DataError(f"image {row.key}: split must be one of {', '.join(_SPLITS)}, got {row.split!r}")
        split = _SPLITS[row.split] if row.split else drawn_split(row.key, config.val_share, config.test_share)
        splits[split].append((row, captions[: config.max_captions or None]))
    return splits


def drawn_split(key: str, val_share: float, test_share: float) -> str:
    """The split of an image for which none is given: by a hash of its key, so the same for ever."""
    place = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
    return "test" if place < test_share else "val" if place < test_share + val_share else "train"


def _listing(images: Sequence[tuple[Row, list[str]]]) -> Listing:
    spans = [(row.image, *row.span) for row, _ in images if row.span is not None]
    names = [row.key if row.span else row.image for row, _ in images]
    return Listing(names=names, captions=[captions for _, captions in images], spans=spans)


def _column(config: SourceConfig, kind: str, names: Sequence[str], where: Path) -> str | None:
    """The column that holds something; None for a split that no column names."""
    asked = getattr(config, f"{kind}_column")
    if asked and asked not in names:
        raise DataError(f"data.{kind}_column: {where} has no column {asked!r}{nearest(asked, names)}; it has {names}")
    found = asked or next((name for name in _COLUMNS[kind] if name in names), None)
    if found is None and kind != "split":
        raise DataError(f"{where} has the columns {', '.join(names)}; name that of the {kind}: data.{kind}_column")
    return found


def _table(
    records: Iterable[Mapping[str, Any]], names: Sequence[str], where: Path, config: SourceConfig
) -> Iterator[Row]:
    """The rows of a table whose images are files."""
    image, caption, split = (_column(config, kind, names, where) for kind in ("image", "caption", "split"))
    for number, record in enumerate(records, start=1):
        at = f"{where}, row {number}"
        name = _relative(record.get(image or ""), f"{at}: {image}")
        yield Row(name, name, _texts(record.get(caption or ""), f"{at}: {caption}"), str(record.get(split or "") or ""))


def _relative(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise DataError(f"{where} must be the path of a file, got {value!r:.80}")
    path = PurePosixPath(value.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"{where} must be a file below the folder of the table, got {value!r}")
    return str(path)


def _texts(value: object, where: str) -> list[str]:
    """Captions: a text, or several in a list or in a list of objects with `raw`."""
    values = value if isinstance(value, list | tuple) else [value]
    texts = [one.get("raw") if isinstance(one, Mapping) else one for one in values]
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise DataError(f"{where} must be a caption or a list of captions, got {value!r:.80}")
    return [str(text) for text in texts]


def _separated(path: Path, config: SourceConfig) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
            yield from _table(reader, list(reader.fieldnames or ()), path, config)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a table in UTF-8: {error}") from error


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise DataError("this source needs pyarrow: pip install pyarrow") from None
    return pyarrow


def _parquet(path: Path, config: SourceConfig) -> Iterator[Row]:
    _pyarrow()
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file: {error}") from error
    image = _column(config, "image", table.column_names, path)
    if not _pyarrow().types.is_string(table.schema.field(image).type):
        raise DataError(
            f"{path}: column {image} holds {table.schema.field(image).type}, not the paths of files; images inside "
            "are read from a folder that the library datasets wrote with save_to_disk"
        )
    yield from _table(table.to_pylist(), table.column_names, path, config)


def _arrow(root: Path, files: Sequence[Path], config: SourceConfig) -> Iterator[Row]:
    """The rows of Arrow files that `datasets` wrote; the bytes of their images stay where they are."""
    pa = _pyarrow()
    for path in files:
        with pa.memory_map(str(path)) as mapped:
            base = mapped.read_buffer(mapped.size()).address
            mapped.seek(0)
            table = pa.ipc.open_stream(mapped).read_all()
            names = table.column_names
            image, caption, split = (_column(config, kind, names, path) for kind in ("image", "caption", "split"))
            part = path.parent.name if path.parent != root else ""
            columns = [table.column(name).to_pylist() if name else [part] * len(table) for name in (caption, split)]
            contents = _contents(pa, table.column(image), f"{path}: column {image}")
            for number, (content, texts, own) in enumerate(zip(contents, *columns, strict=True)):
                key = f"{path.relative_to(root).as_posix()}/{number}"
                captions = _texts(texts, f"{path}, row {number}: {caption}")
                yield Row(key, path.relative_to(root).as_posix(), captions, str(own), (content[0] - base, content[1]))


def _contents(pa: Any, column: pa.ChunkedArray, where: str) -> Iterator[tuple[int, int]]:
    """The address of each image's bytes in memory, which is the mapped file, and how many they are."""
    for chunk in column.chunks:
        content = chunk.field("bytes") if pa.types.is_struct(chunk.type) else chunk
        is_large = pa.types.is_large_binary(content.type)
        if not (is_large or pa.types.is_binary(content.type)):
            raise DataError(f"{where} must hold images, got {content.type}")
        if content.null_count:
            raise DataError(f"{where} has rows without the bytes of an image; save the dataset with embedded images")
        _, offsets, values = content.buffers()
        ends = np.frombuffer(offsets, np.int64 if is_large else np.int32)[content.offset :][: len(content) + 1]
        for start, end in pairwise(ends.tolist()):
            yield values.address + start, end - start


def _shards(root: Path, shards: Sequence[Path]) -> Iterator[Row]:
    """The samples of WebDataset shards: members that share a name up to the first dot."""
    for path in shards:
        name = path.relative_to(root).as_posix()
        split = next((split for split in _SPLITS if path.stem.startswith(split) or path.parent.name == split), "")
        try:
            with tarfile.open(path, "r:") as shard:
                files = [member for member in shard if member.isfile()]
                for key, members in groupby(files, key=lambda member: _stem(member.name)):
                    yield _sample(shard, f"{name}/{key}", name, list(members), split)
        except (tarfile.TarError, OSError) as error:
            raise DataError(f"{path} is not an uncompressed tar file: {error}") from error


def _stem(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"{folder}/{file.partition('.')[0]}".lstrip("/")


def _sample(shard: tarfile.TarFile, key: str, name: str, members: Sequence[tarfile.TarInfo], split: str) -> Row:
    image: tarfile.TarInfo | None = None
    captions: list[str] = []
    for member in members:
        ending = "." + member.name.rpartition(".")[2].lower()
        if ending in PICTURES:
            image = member
        elif ending in (".txt", ".json"):
            file = shard.extractfile(member)
            content = file.read().decode("utf-8", errors="replace") if file else ""
            captions += _captions_in(content, ending, f"{name}: {member.name}")
    if image is None or not captions:
        lacks = "captions (.txt, .json)" if image else f"image ({', '.join(PICTURES)})"
        raise DataError(f"{key} has no {lacks}")
    return Row(key, name, captions, split, (image.offset_data, image.size))


def _captions_in(content: str, ending: str, where: str) -> list[str]:
    """The captions of a text file, one on each line, or of an object's `captions` or `caption`; others have none."""
    if ending == ".txt":
        return [line.strip() for line in content.splitlines() if line.strip()]
    try:
        stored = json.loads(content)
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}") from error
    found = (
        next((stored[name] for name in _COLUMNS["caption"] if name in stored), None)
        if isinstance(stored, dict)
        else None
    )
    return [] if found is None else _texts(found, where)


def _beside(root: Path, pictures: Sequence[Path]) -> Iterator[Row]:
    """Pictures with a text file of the same name beside each, a caption on each line; folders may name splits."""
    for path in pictures:
        name, texts = path.relative_to(root).as_posix(), path.with_suffix(".txt")
        try:
            captions = _captions_in(texts.read_text(encoding="utf-8"), ".txt", str(texts))
        except FileNotFoundError:
            raise MissingDataError(f"{texts} is missing: the captions of {path.name}, one on each line") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{texts} is not UTF-8 text") from error
        if not captions:
            raise DataError(f"{texts} has no captions")
        first = PurePosixPath(name).parts[0]
        yield Row(name, name, captions, first if first in _SPLITS else "")
