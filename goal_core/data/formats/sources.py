"""Importers of images with captions: each gives the rows of a dataset, and so does one of a plugin.

`source` recognises tables, Hugging Face datasets, WebDataset shards and folders of pictures, whose images are read in
place. `karpathy` reads an object whose ``images`` list holds, for each image, ``filename``, ``split`` (train, restval,
val or test), ``sentences`` (each with ``raw`` text, or ``tokens``) and, where images lie in folders, ``filepath``.
`xvlm_json` reads one list of records for each split: pairs of ``image`` and ``caption`` to train on, and images with
the list of their captions to evaluate on. Other keys are ignored.
"""

import hashlib
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from goal_sweep.goal_core.basics.errors import DataError, GoalError, MissingDataError, first_line
from goal_sweep.goal_core.basics.files import content_of, json_in, opened, pyarrow, reading, seems, text_in
from goal_sweep.goal_core.data.config import KarpathyConfig, SourceConfig, XvlmJsonConfig
from goal_sweep.goal_core.data.dataset import Row, importers
from goal_sweep.goal_core.data.formats import layout
from goal_sweep.goal_core.data.formats.tables import LINES, TABLES, also_named, column_of, found, split_like

_Load = Callable[[tarfile.TarInfo], Any]
_Found = tuple[str, Sequence[Path], Iterator[Row], Sequence[str]]
_COLUMNS = ("image", "caption", "split")
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_CAPTIONED = (".txt", ".json")
_ADVICE = {
    ".jsonl": "pandas.read_json(FILE, lines=True).to_csv('table.csv', index=False) makes one",
    ".json": "Karpathy's JSON is format karpathy, X-VLM's xvlm_json; of others write a table of image and caption",
    ".xlsx": "save the sheet as CSV in UTF-8",
    ".gz": "unpack it",
}
_OF_SPLIT = re.compile(f"({'|'.join(layout.SPLIT_OF)})(?![a-z])")
"""The beginning of a shard's name that says its split."""


def source(config: SourceConfig) -> layout.Layout:
    """Recognise what lies at `data.root`, and read it."""
    path = Path(config.root).expanduser()
    if not path.exists():
        raise MissingDataError(f"{path} does not exist")
    root = path if path.is_dir() else path.parent
    said: list[str] = []
    says, files, given, lacks = _recognised(path, root, config, said)
    if asked := [f"data.{kind}_column" for kind in lacks if getattr(config, f"{kind}_column")]:
        raise DataError(f"{asked[0]} has no meaning for {path}, {says}", asked[0])
    stamps = layout.stamped(path, files)
    rows, split = layout.with_splits(given, config.val_share, config.test_share)
    said += [split] * bool(split)
    return layout.Layout(root=root, files=stamps, splits=layout.by_split(rows), says=says, split="; ".join(said))


def _recognised(path: Path, root: Path, config: SourceConfig, lines: list[str]) -> _Found:
    """What lies there, in words, the files and folders in which a change is noticed, its rows, and columns it lacks.

    Lines are added for what is not read, and where splits are found otherwise than the documentation says.
    """
    folders, files = layout.below(path)
    if config.importer:  # it may read any file but the pictures
        parsed = [one for one in files if one.suffix.lower() not in layout.PICTURES]
        return f"read by the importer {config.importer}", [*folders, *parsed], _rows_of(config.importer, path), _COLUMNS
    if said := [*path.glob("state.json"), *sorted(path.glob("*/state.json"))]:
        arrows = [file for one in said for file in _arrow_files(one)]
        return "folder of Hugging Face datasets", [path, *said, *arrows], _arrow(path, arrows, config, lines), ()
    pictures = layout.pictures_in(files, lines)
    shards = [one for one in files if one.suffix.lower() == ".tar"]
    packed = [one for one in files if one.name.lower().endswith(_COMPRESSED)]
    if packed and (shards or not pictures):
        raise DataError(f"{packed[0]} is compressed, so it cannot be read in place: unpack it")
    texts = layout.caption_files(pictures, {*files})
    if shards and (captions := {*texts} & {*files}):
        raise DataError(f"{shards[0]} is a shard, {min(captions)} the captions of a picture; move one away")
    if shards:
        rows = _shards(root, shards, config, lines)
        return f"WebDataset shards: {len(shards)}", [*folders, *shards], rows, ("image",)
    if read := TABLES.get(path.suffix.lower().replace(".txt", ".csv") * (not folders)):  # as Kaggle's Flickr8k has it
        return f"table {path.name}", files, read(path, config, lines), ()
    tables = [one for one in files if folders and one.suffix.lower() in TABLES]
    if tables and not {*texts} & {*files}:
        raise DataError(f"{path} is a folder with the table {tables[0]}; if that names the images, give its path")
    if folders and pictures:
        if rest := [*tables, *(one for one in files if one.suffix.lower() in (".json", ".jsonl"))]:
            lines.append(f"not read, as text files beside the pictures hold the captions: {rest[0]}, of {len(rest):,}")
        owners = dict(zip(texts, pictures, strict=True))
        if shared := [(one, own) for own, one in zip(texts, pictures, strict=True) if owners[own] != one]:
            one, own = shared[0]
            raise DataError(f"{one} and {owners[own]} share the captions {own}; delete or rename one")
        if lost := [one for one in files if one.suffix.lower() in layout.BESIDE and one not in owners]:
            lines.append(f"text files not used: {len(lost):,}, such as {lost[0]}; of a.png it is a.txt")
        says, rows = "folder of pictures with a text file beside each", _beside(path, pictures, texts)
        return says, [*folders, *texts], rows, _COLUMNS
    folder = f"shards, a Hugging Face dataset (state.json) or pictures ({', '.join(layout.PICTURES)})"
    if mend := _ADVICE.get(path.suffix.lower() * (not folders)):
        raise DataError(f"{path} is no table (.csv, .tsv, .parquet): {mend}")
    raise DataError(f"{path} is no table (.csv, .tsv, .parquet), no shard (.tar), and no folder with {folder}")


def _arrow_files(state: Path) -> list[Path]:
    """The files that a `state.json` of `datasets` names; what else lies there, such as its caches, is no data."""
    stored: Any = json_in(content_of(state), state)
    if isinstance(stored, dict) and any(stored.get(f"_indices{part}_files") for part in ("", "_data")):
        raise DataError(f"{state} selects rows by _indices_files; save the dataset anew, after its flatten_indices()")
    with reading(f"{state} has no list _data_files, as the library datasets writes it"):
        names = [layout.image_path(one["filename"], f"{state}: filename") for one in stored["_data_files"]]
        return [state.parent / name for name in names]


def _rows_of(importer: str, path: Path) -> Iterator[Row]:
    """The rows that a plugin's importer gives, each of them checked."""
    entry, number = importers[importer], 0
    where = f"plugin {entry.plugin}: {importer}"
    try:
        for number, given in enumerate(entry.function(path), start=1):
            row = Row(*given)
            if row.span and not (len(row.span) == 2 and all(0 <= int(part) < 2**63 for part in row.span)):
                raise DataError(f"{where}, row {number}: span must be where the image begins, and its bytes")
            yield layout.checked(row, f"{where}, row {number}: ")
    except GoalError:
        raise
    except (Exception, SystemExit) as error:
        raise DataError(f"{where}, after row {number}: {type(error).__name__}: {first_line(error)}") from error


def _arrow_table(path: Path) -> tuple[Any, Any]:
    """The content of an Arrow file in memory, and its table."""
    with reading(f"{path} is not an Arrow file of the library datasets"):
        stored = pyarrow("lib").py_buffer(content_of(path))  # a map would end the process where the file is cut
        table = pyarrow("ipc").open_stream(stored).read_all()
        table.validate(full=True)
    return stored, table


def _arrow_split(files: Sequence[Path], config: SourceConfig, said: list[str]) -> str | None:
    """The column that holds the splits; None where folders tell them, or nothing does."""
    values = defaultdict[str, set[Any]](set)
    for path in files if len({path.parent for path in files}) == 1 else ():
        _, table = _arrow_table(path)
        for name, column in zip(table.column_names, table.columns, strict=True):
            values[name].update(column.unique().to_pylist() if column.type in ("string", "large_string") else [None])
        if not any(all(map(layout.split_of, own)) for own in values.values()):
            return None
    return split_like(config, values, files[0].parent, said) if values else None


def _arrow(root: Path, files: Sequence[Path], config: SourceConfig, said: list[str]) -> Iterator[Row]:
    """The rows of Arrow files that `datasets` wrote; the bytes of their images stay where they are."""
    own_split = _arrow_split(files, config, said)
    by_folder = len({layout.split_of(path.parent.name) for path in files} - {""}) > 1
    for path in files:
        stored, table = _arrow_table(path)
        said += also_named(config, _first_texts(table)) if path == files[0] else []
        image, *kinds = [column_of(config, kind, table.column_names, path) for kind in ("image", "caption", "split")]
        kinds[1] = own_split if kinds[1] is None else kinds[1]
        part = path.parent.name if path.parent != root else ""
        with reading(f"{path} is not an Arrow file of the library datasets"):
            columns = [table.column(name).to_pylist() if name is not None else [part] * len(table) for name in kinds]
            contents = list(_contents(table.column(image), f"{path}: column {image}"))
        file, called = path.relative_to(root).as_posix(), (image, kinds[0], kinds[1] or "folder")
        for number, ((content, name), captions, split) in enumerate(zip(contents, *columns, strict=True)):
            at = f"{path}, row {number}: "
            if not content:
                raise DataError(f"{at}{image} holds no image; save the dataset with its images inside")
            # What has no name is known by its bytes where a split is to be drawn.
            name = Path(name or "").name or ("" if split else hashlib.sha256(content).hexdigest())
            span = (content.address - stored.address, content.size)
            if not 0 <= span[0] <= stored.size - span[1]:
                raise DataError(f"{at}{image} is compressed, so it cannot be read in place")
            if by_folder and split and not config.split_column and layout.split_of(split) != layout.split_of(part):
                mend = f"remove the column, or let it count: data.split_column={kinds[1]}"
                raise DataError(f"{at}{kinds[1]} is {split!r:.80}, but its folder is {part}; {mend}")
            row = Row(file, captions, split, span, f"{file}/{number}/{name}", f"row {number}")
            yield layout.checked(row, at, called)


def _first_texts(table: Any) -> dict[str, list[Any]]:
    """Some cells of each column of texts or lists of them; none of others, which may be pictures."""
    kinds = ("string", "large_string")
    return {
        one.name: column.slice(0, 100).to_pylist() if getattr(one.type, "value_type", one.type) in kinds else []
        for one, column in zip(table.schema, table.columns, strict=True)
    }


def _contents(column: Any, where: str) -> Iterator[tuple[Any, str | None]]:
    """The bytes of each image, where they are in the file's content in memory, and its name if it has one."""
    types = pyarrow("types")
    for chunk in column.chunks:
        parts = {field.name for field in chunk.type} if types.is_struct(chunk.type) else ()
        content = chunk.field("bytes") if "bytes" in parts else chunk
        is_large = types.is_large_binary(content.type)
        if not (is_large or types.is_binary(content.type)):
            raise DataError(f"{where} must hold images, got {content.type}")
        _, offsets, values = content.buffers()
        ends = np.frombuffer(offsets, np.int64 if is_large else np.int32)[content.offset :][: len(content) + 1]
        names = chunk.field("path").to_pylist() if "path" in parts else [None] * len(chunk)
        for (start, end), name, is_there in zip(pairwise(ends.tolist()), names, chunk.is_valid(), strict=True):
            yield values.slice(start, (end - start) * is_there.as_py()), name


def _shards(root: Path, shards: Sequence[Path], config: SourceConfig, said: list[str]) -> Iterator[Row]:
    """The samples of WebDataset shards: members that share a name up to the first dot."""
    column = config.split_column
    for path in shards:
        name, known = path.relative_to(root).as_posix(), _OF_SPLIT.match(path.stem)
        split = layout.SPLIT_OF[known[1]] if known else layout.SPLIT_OF.get(path.parent.name, "")
        samples = defaultdict[str, list[tarfile.TarInfo]](list)
        says = f"{path}{seems(path) or ' is not a whole, uncompressed tar file'}"
        with opened(path) as content, reading(says), tarfile.open(fileobj=content, mode="r:") as shard:
            for member in shard:
                folder, _, file = member.name.rpartition("/")
                if member.isfile() and not file.startswith("._"):
                    samples[f"{folder}/{file.partition('.')[0]}".lstrip("/")].append(member)
            content.seek(shard.offset)  # tarfile stops there without a word: at damage, too, or before another tar file
            if len(end := content.read(1 << 16)) < 1024 or any(end):  # POSIX demands two blocks of zeros
                mend = "if all is there, `truncate -s +1024` ends it"
                raise DataError(f"{path} is cut, or goes on after its end; {mend}")
            for number, (key, members) in enumerate(samples.items()):  # the first tells what is not read
                load = cache(partial(_content, shard, name))
                read = partial(_captions_of, load, name, config, None if number else said)
                row = _sample(f"{name}/{key}", name, members, config, read)
                own = _said_of_split(load, members, column, f"{name}/{key}") if column or not split else split
                yield row._replace(split=own)


def _sample(key: str, name: str, members: Sequence[tarfile.TarInfo], config: SourceConfig, read: _Load) -> Row:
    """A sample's picture and captions: of `KEY.txt`, or of `KEY.json` where that has none or a column is named.

    Those of a member with another word in its name, as in `KEY.en.txt`, count where neither has any.
    """
    column = config.caption_column
    images = [one for one in members if one.name.lower().endswith(layout.PICTURES)]
    images = [one for one in images if one.name.lower().endswith(layout.USUAL)] or images
    if len(images) > 1:
        mend = "keep one or, as a key ends at the first dot of a name, write another sign there"
        raise DataError(f"{key} must have one picture, not {images[0].name} and {images[1].name}; {mend}")
    held = [one for one in members if one.name.lower().endswith(".json" if column else _CAPTIONED)]
    captions: Sequence[str] = ()
    for _, equals in groupby(sorted(held, key=_rank), key=_rank):
        holding = [(one.name, own) for one in equals if (own := read(one))]
        if len(holding) > 1:
            mend = "keep one, name it KEY.txt, or name the key of KEY.json that counts: data.caption_column"
            raise DataError(f"{key}: {holding[0][0]} and {holding[1][0]} both hold its captions; {mend}")
        if holding:
            captions = holding[0][1]
            break
    if not images:
        raise DataError(f"{key} must have one picture ({', '.join(layout.PICTURES)}), but has none")
    if not captions:
        wanted = f"a .json with {column!r} (data.caption_column)" if column else " or ".join(_CAPTIONED)
        raise DataError(f"{key} has no caption: it needs {wanted}")
    if images[0].issparse():
        raise DataError(f"{key}: the picture is stored with holes, so it cannot be read in place; make the shard anew")
    span = (images[0].offset_data, images[0].size)
    return layout.checked(Row(name, captions, "", span, key, images[0].name), f"{key}: ")


def _content(shard: tarfile.TarFile, name: str, member: tarfile.TarInfo) -> Any:
    """A member as JSON, or as the bytes that it holds."""
    content = file.read() if (file := shard.extractfile(member)) else b""
    return json_in(content, f"{name}: {member.name}") if member.name.lower().endswith(".json") else content


def _said_of_split(load: _Load, members: Sequence[tarfile.TarInfo], column: str, where: str) -> str:
    """The split that a sample's `KEY.json` says; without a column, one that cannot be read says none."""
    stored = None
    with suppress(*[DataError] * (not column)):
        stored = next((load(one) for one in members if _rank(one) == 1), None)
    said = stored.get(column or "split") if isinstance(stored, dict) else None
    return layout.split_named(said, f"{where}: {column}") if column else layout.split_of(said)


def _rank(member: tarfile.TarInfo) -> int:
    """0 of `KEY.txt`, 1 of `KEY.json`, 2 where the name goes on after the first dot."""
    ending = "." + member.name.rpartition("/")[2].lower().partition(".")[2]
    return _CAPTIONED.index(ending) if ending in _CAPTIONED else len(_CAPTIONED)


def _captions_of(
    load: _Load, name: str, config: SourceConfig, said: list[str] | None, member: tarfile.TarInfo
) -> list[str]:
    """The captions of a text file, or of an object under its column or a usual name; or none."""
    stored, where = load(member), f"{name}: {member.name}"
    if isinstance(stored, bytes):
        return _lines_in(stored, where)
    held = {key: [value] for key, value in stored.items() if value is not None} if isinstance(stored, dict) else {}
    if not found(config, "caption", [*held]):
        return []
    if said is not None and not said:
        said += also_named(config, held)
    key = column_of(config, "caption", [*held], where)
    return layout.captions_in(stored[key], f"{where}: {key}")


def _lines_in(content: bytes, where: str) -> list[str]:
    """The captions of a text file, one on each line or in a list."""
    lines = [line.strip() for line in LINES.split(text_in(content, where)) if line.strip()]
    if lines[:1] == ["["]:  # a list on several lines
        lines = ["\n".join(lines)]
    return layout.Captions(chain.from_iterable(layout.captions_in(line, where) for line in lines))


def _beside(root: Path, pictures: Sequence[Path], texts: Sequence[Path]) -> Iterator[Row]:
    """Pictures with a text file of the same name beside each, a caption on each line; folders may name splits."""
    for path, beside in zip(pictures, texts, strict=True):
        try:
            captions = _lines_in(content_of(beside), str(beside))
        except MissingDataError as error:
            mend = "or make a table (.csv) of file_name, caption and split, as of a metadata.jsonl"
            raise MissingDataError(f"{error}: the captions of {path.name}, one on each line; {mend}") from None
        name = path.relative_to(root)
        yield layout.checked(Row(name.as_posix(), captions, layout.SPLIT_OF.get(name.parts[0], "")), f"{beside}: ")


def karpathy(config: KarpathyConfig) -> layout.Layout:
    """Read Karpathy's annotations; images keep the order of the file.

    The corpus of the `legacy` vocabulary is every caption in the file.

    Source: VSE++ (vocab.py) counts words over COCO's train2014 and val2014, or over all of `dataset_flickr30k.json`.
    """
    root = layout.dataset_folder(config.root)
    path = _annotation_file(root, config.annotations)
    files = layout.stamped(root, [path])
    stored = json_in(content_of(path), path)
    images = stored.get("images") if isinstance(stored, dict) else None
    if isinstance(stored, dict) and "annotations" in stored and not (images and "sentences" in images[0]):
        use = "Karpathy's dataset_coco.json, or write a table of file_name and caption for format: source"
        raise DataError(f"{path} holds COCO's own captions, without splits; use {use}")
    if not isinstance(images, list):
        raise DataError(f"{path} must be an object with a list 'images', the layout of Karpathy's dataset_*.json")
    rows = [_karpathy_row(item, number, at) for number, (item, at) in enumerate(_objects(images, f"{path}: images"))]
    corpus = [text.strip() for row in rows for text in row.captions] if config.vocabulary == "legacy" else []
    return layout.Layout(root=root, files=files, splits=layout.by_split(rows), corpus=corpus)


def _annotation_file(root: Path, annotations: str) -> Path:
    """The file that ``data.annotations`` names; for ``auto``, the only ``dataset_*.json`` in the root."""
    found = sorted(path for path in root.glob("dataset_*.json") if path.is_file())
    there = f"in {root} there is {', '.join(path.name for path in found) or 'no dataset_*.json'}"
    if annotations == "auto":
        if len(found) != 1:
            raise (DataError if found else MissingDataError)(f"{there}; name the annotation file: data.annotations")
        return found[0]
    if not (root / annotations).is_file():
        raise MissingDataError(f"{root / annotations} is missing; {there}", "data.annotations")
    return root / annotations


def _objects(items: Sequence[object], where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Objects of a JSON list, each with its place."""
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise DataError(f"{where}[{number}] must be an object, got {item!r:.80}")
        yield item, f"{where}[{number}]."


def _karpathy_row(item: dict[str, Any], number: int, at: str) -> Row:
    name, named = item.get("filename", "<missing>"), "filename"
    if item.get("filepath"):
        name, named = f"{item['filepath']}/{layout.image_path(name, f'{at}filename')}", "filepath"
    row = Row(name, item.get("sentences", []), layout.split_named(item.get("split"), f"{at}split"), key=str(number))
    return layout.checked(row, at, (named, "sentences", "split"))


def xvlm_json(config: XvlmJsonConfig) -> layout.Layout:
    """Read X-VLM's JSON files; training pairs are grouped by image, in the order in which images first occur."""
    root = layout.dataset_folder(config.root)
    names = {"train": config.train_files, "val": (config.val_file,), "test": (config.test_file,)}
    files = {split: [root / name for name in own] for split, own in names.items()}
    rows = {split: chain.from_iterable(map(_xvlm_rows, own)) for split, own in files.items()}
    return layout.Layout(
        root=root / config.image_root,
        split="data.train_files names a file twice" * (len({*files["train"]}) < len(files["train"])),
        files=layout.stamped(root, chain.from_iterable(files.values())),
        splits={split: partial(layout.listing, own) for split, own in rows.items()},
    )


def _xvlm_rows(path: Path) -> Iterator[Row]:
    stored = json_in(content_of(path), path)
    if not isinstance(stored, list) or not stored:
        raise DataError(f"{path} must be a list of records, the layout of X-VLM's retrieval files")
    for item, at in _objects(stored, str(path)):
        yield layout.checked(Row(item.get("image", ""), item.get("caption", "")), at, ("image", "caption", ""))
