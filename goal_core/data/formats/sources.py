"""Importers of images with captions: each gives the rows of a dataset, and so does one of a plugin.

`source` recognises tables, Hugging Face datasets, WebDataset shards and folders of pictures, whose images are read in
place. `karpathy` reads an object whose ``images`` list holds, for each image, ``filename``, ``split`` (train, restval,
val or test), ``sentences`` (each with ``raw`` text, or ``tokens``) and, where images lie in folders, ``filepath``.
`xvlm_json` reads one list of records for each split: pairs of ``image`` and ``caption`` to train on, and images with
the list of their captions to evaluate on. Other keys are ignored.
"""

from __future__ import annotations

import csv
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from goal_sweep.goal_core.basics.errors import DataError, GoalError, MissingDataError, first_line, nearest
from goal_sweep.goal_core.data.config import KarpathyConfig, SourceConfig, XvlmJsonConfig
from goal_sweep.goal_core.data.dataset import Row, importers
from goal_sweep.goal_core.data.formats.features import pyarrow
from goal_sweep.goal_core.data.formats.layout import (
    SPLIT_OF,
    Layout,
    by_split,
    captions_in,
    dataset_folder,
    image_path,
    listing,
    read_json,
    split_named,
    stamped,
)

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_COLUMNS = {
    "image": ("image", "image_path", "file_name", "filename", "filepath", "path"),
    "caption": ("caption", "captions", "text", "texts", "sentence", "sentences", "raw"),
    "split": ("split",),
}
"""The names under which a column is looked for where the sweep names none."""


def source(config: SourceConfig) -> Layout:
    """Recognise what lies at `data.root`, and read it."""
    path = Path(config.root).expanduser()
    if not path.exists():
        raise MissingDataError(f"data.root: {path} does not exist")
    recognised = _by_plugin if config.importer else _in_folder if path.is_dir() else _in_file
    says, files, rows = recognised(path, config)
    stamps = stamped(files)
    root = path if path.is_dir() else path.parent
    return Layout(root=root, files=stamps, splits=by_split(rows, config.val_share, config.test_share), says=says)


def _in_file(path: Path, config: SourceConfig) -> tuple[str, Sequence[Path], Iterator[Row]]:
    """What a file is, in words, the files that are parsed, and its rows."""
    if path.suffix in (".csv", ".tsv"):
        return f"table {path.name}", [path], _separated(path, config)
    if path.suffix == ".parquet":
        return f"table {path.name}", [path], _parquet(path, config)
    if path.suffix == ".tar":
        return f"WebDataset shard {path.name}", [path], _shards(path.parent, [path])
    raise DataError(f"data.root: {path} is no table (.csv, .tsv, .parquet) and no shard (.tar)")


def _in_folder(path: Path, config: SourceConfig) -> tuple[str, Sequence[Path], Iterator[Row]]:
    """The same for a folder. The folders in it are among the files, so that a new file is noticed."""
    below = sorted(path.rglob("*"))
    folders = [path, *(one for one in below if one.is_dir())]
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        files = [one for one in below if one.suffix == ".arrow"]
        named = [one for one in below if one.suffix == ".json"]
        return "folder of Hugging Face datasets", [*folders, *named, *files], _arrow(path, files, config)
    if shards := [one for one in below if one.suffix == ".tar"]:
        return f"{len(shards)} WebDataset shards", [*folders, *shards], _shards(path, shards)
    if pictures := [one for one in below if one.suffix.lower() in PICTURES]:
        texts = [one.with_suffix(".txt") for one in pictures]
        says = "folder of pictures with a text file beside each"
        return says, [*folders, *texts], _beside(path, pictures, texts)
    raise DataError(
        f"data.root: {path} has no Hugging Face dataset (dataset_dict.json, state.json), no shards (*.tar), and no "
        f"pictures ({', '.join(PICTURES)})"
    )


def _by_plugin(path: Path, config: SourceConfig) -> tuple[str, Sequence[Path], Iterator[Row]]:
    """The same for what a plugin's importer reads: it may read any file but the pictures."""
    below = [one for one in sorted(path.rglob("*")) if one.suffix.lower() not in PICTURES]
    return f"read by the importer {config.importer}", [path, *below], _rows_of(config.importer, path)


def _rows_of(importer: str, path: Path) -> Iterator[Row]:
    """The rows that a plugin's importer gives, each of them checked."""
    entry, number = importers[importer], 0
    where = f"plugin {entry.plugin}: {importer}"
    try:
        for number, given in enumerate(entry.function(path), start=1):
            row, at = Row(*given), f"{where}, row {number}"
            image, captions = image_path(row.image, f"{at}: image"), captions_in(row.captions, f"{at}: captions")
            split = split_named(row.split, f"{at}: split") if row.split else ""
            yield row._replace(image=image, captions=captions, split=split)
    except GoalError:
        raise
    except Exception as error:
        raise DataError(f"{where}, after row {number}: {type(error).__name__}: {first_line(error)}") from error


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
        own = split_named(record[split], f"{at}: {split}") if split and record.get(split) else ""
        name = image_path(record.get(image or ""), f"{at}: {image}")
        yield Row(name, captions_in(record.get(caption or ""), f"{at}: {caption}"), own)


def _separated(path: Path, config: SourceConfig) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
            yield from _table(_whole(reader, path), list(reader.fieldnames or ()), path, config)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a table in UTF-8: {error}") from error


def _whole(reader: csv.DictReader[str], path: Path) -> Iterator[dict[str, Any]]:
    for record in reader:
        if None in record:  # what no column has a name for
            raise DataError(f"{path}:{reader.line_num} has more fields than the header; put quotes around the caption")
        yield record


def _parquet(path: Path, config: SourceConfig) -> Iterator[Row]:
    parquet = pyarrow("parquet")
    try:
        table = parquet.read_table(path)
    except (ValueError, OSError) as error:  # pyarrow's own are among these
        raise DataError(f"{path} is not a Parquet file: {first_line(error)}") from error
    image = _column(config, "image", table.column_names, path)
    types, kind = pyarrow("types"), table.schema.field(image).type
    if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        raise DataError(
            f"{path}: column {image} holds {kind}, not the paths of files; images inside are read from a folder that "
            "the library datasets wrote with save_to_disk"
        )
    yield from _table(table.to_pylist(), table.column_names, path, config)


def _arrow(root: Path, files: Sequence[Path], config: SourceConfig) -> Iterator[Row]:
    """The rows of Arrow files that `datasets` wrote; the bytes of their images stay where they are."""
    memory_map, open_stream = pyarrow("lib").memory_map, pyarrow("ipc").open_stream
    for path in files:
        with memory_map(str(path)) as mapped:
            base = mapped.read_buffer(mapped.size()).address
            mapped.seek(0)
            table = open_stream(mapped).read_all()
            names = table.column_names
            image, caption, split = (_column(config, kind, names, path) for kind in ("image", "caption", "split"))
            part = path.parent.name if path.parent != root else ""
            columns = [table.column(name).to_pylist() if name else [part] * len(table) for name in (caption, split)]
            contents = _contents(table.column(image), f"{path}: column {image}")
            name = path.relative_to(root).as_posix()
            for number, ((begin, size), texts, own) in enumerate(zip(contents, *columns, strict=True)):
                at = f"{path}, row {number}"
                captions = captions_in(texts, f"{at}: {caption}")
                of_split = split_named(own, f"{at}: {split or 'folder'}") if own else ""
                yield Row(name, captions, of_split, (begin - base, size), f"{name}/{number}")


def _contents(column: Any, where: str) -> Iterator[tuple[int, int]]:
    """The address of each image's bytes in memory, which is the mapped file, and how many they are."""
    types = pyarrow("types")
    for chunk in column.chunks:
        content = chunk.field("bytes") if types.is_struct(chunk.type) else chunk
        is_large = types.is_large_binary(content.type)
        if not (is_large or types.is_binary(content.type)):
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
        known = (SPLIT_OF[word] for word in SPLIT_OF if path.stem.startswith(word) or path.parent.name == word)
        split = next(known, "")
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
    return Row(name, captions, split, (image.offset_data, image.size), key)


def _captions_in(content: str, ending: str, where: str) -> list[str]:
    """The captions of a text file, one on each line, or of an object's `captions` or `caption`; others have none."""
    if ending == ".txt":
        return [line.strip() for line in content.splitlines() if line.strip()]
    try:
        stored = json.loads(content)
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}") from error
    names = [name for name in _COLUMNS["caption"] if isinstance(stored, dict) and name in stored]
    return captions_in(stored[names[0]], where) if names else []


def _beside(root: Path, pictures: Sequence[Path], texts: Sequence[Path]) -> Iterator[Row]:
    """Pictures with a text file of the same name beside each, a caption on each line; folders may name splits."""
    for path, beside in zip(pictures, texts, strict=True):
        try:
            captions = _captions_in(beside.read_text(encoding="utf-8"), ".txt", str(beside))
        except FileNotFoundError:
            raise MissingDataError(f"{beside} is missing: the captions of {path.name}, one on each line") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{beside} is not UTF-8 text") from error
        name = path.relative_to(root)
        yield Row(name.as_posix(), captions_in(captions, str(beside)), SPLIT_OF.get(name.parts[0], ""))


def karpathy(config: KarpathyConfig) -> Layout:
    """Read Karpathy's annotations; images keep the order of the file.

    The corpus of the `legacy` vocabulary is every caption in the file.

    Source: VSE++ (vocab.py) counts words over COCO's train2014 and val2014, or over all of `dataset_flickr30k.json`.
    """
    root = dataset_folder(config.root)
    path = _annotation_file(root, config.annotations)
    files = stamped([path])
    stored = read_json(path)
    images = stored.get("images") if isinstance(stored, dict) else None
    if not isinstance(images, list):
        raise DataError(f"{path} must be an object with a list 'images', the layout of Karpathy's dataset_*.json")
    rows = [_karpathy_row(item, number, where) for number, item, where in _objects(images, f"{path}: images[", "]")]
    corpus = [text.strip() for row in rows for text in row.captions] if config.vocabulary == "legacy" else []
    return Layout(root=root, files=files, splits=by_split(rows), corpus=corpus)


def _annotation_file(root: Path, annotations: str) -> Path:
    """The file that ``data.annotations`` names; for ``auto``, the only ``dataset_*.json`` in the root."""
    found = sorted(path for path in root.glob("dataset_*.json") if path.is_file())
    there = f"in {root} there is {', '.join(path.name for path in found) or 'no dataset_*.json'}"
    if annotations == "auto":
        if len(found) != 1:
            raise (DataError if found else MissingDataError)(f"{there}; name the annotation file: data.annotations")
        return found[0]
    if not (root / annotations).is_file():
        raise MissingDataError(f"data.annotations: {root / annotations} is missing; {there}")
    return root / annotations


def _objects(items: Sequence[object], before: str, after: str = "") -> Iterator[tuple[int, dict[str, Any], str]]:
    """Objects of a JSON list, each with its number, and its place: the number between two texts."""
    for number, item in enumerate(items):
        where = f"{before}{number}{after}"
        if not isinstance(item, dict):
            raise DataError(f"{where} must be an object, got {item!r:.80}")
        yield number, item, where


def _karpathy_row(item: dict[str, Any], number: int, where: str) -> Row:
    name = image_path(item.get("filename"), f"{where}.filename")
    if item.get("filepath"):
        name = image_path(f"{item['filepath']}/{name}", f"{where}.filepath")
    captions = captions_in(item.get("sentences"), f"{where}.sentences")
    return Row(name, captions, split_named(item.get("split"), f"{where}.split"), key=str(number))


def xvlm_json(config: XvlmJsonConfig) -> Layout:
    """Read X-VLM's JSON files; training pairs are grouped by image, in the order in which images first occur."""
    root = dataset_folder(config.root)
    names = {"train": config.train_files, "val": (config.val_file,), "test": (config.test_file,)}
    files = {split: [root / name for name in own] for split, own in names.items()}
    return Layout(
        root=root / config.image_root,
        files=stamped(path for own in files.values() for path in own),
        splits={split: partial(listing, chain.from_iterable(map(_xvlm_rows, own))) for split, own in files.items()},
    )


def _xvlm_rows(path: Path) -> Iterator[Row]:
    stored = read_json(path)
    if not isinstance(stored, list) or not stored:
        raise DataError(f"{path} must be a list of records, the layout of X-VLM's retrieval files")
    for _, item, where in _objects(stored, f"{path}: record "):
        yield Row(image_path(item.get("image"), f"{where}.image"), captions_in(item.get("caption"), f"{where}.caption"))
