"""Tables of images and captions: CSV in any of its dialects, and Parquet."""

import csv
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.errors import DataError, nearest
from goal_sweep.goal_core.basics.files import content_of, opened, parquet_table, pyarrow, reading, seems, text_in
from goal_sweep.goal_core.data.config import SourceConfig
from goal_sweep.goal_core.data.dataset import Row
from goal_sweep.goal_core.data.formats.layout import PICTURES, checked, split_of

_Record = Mapping[str, Any]
USUAL_NAMES = {
    "image": ("image", "image_path", "image_name", "file_name", "filename", "filepath", "path"),
    "caption": ("caption", "captions", "text", "texts", "sentence", "sentences", "raw", "title", "comment"),
    "split": ("split",),
}
"""The names under which a column is looked for where the sweep names none."""
_CAPTION = re.compile(
    "captions?(?!.*(ids?|num(ber)?|count|len(gth)?|path|file|url|lang(uage)?|source|score|similarity|tokens|split)$)"
)
"""A name that begins so counts before `text` and its like, but for what tells only something of captions."""
_PLACE, _LETTER = re.compile(rf"://|({'|'.join(map(re.escape, PICTURES))})$", re.I), re.compile(r"[^\W\d_]")
_FEW = 100
"""Rows by which a column is taken for texts."""
LINES = re.compile("\r\n|\r|\n")
"""The line ends of text files; captions hold characters that `splitlines` takes for others."""
_QUOTES = "inside quotes, write a double quote twice, not a backslash; after the closing quote must come a separator"


def found(config: SourceConfig, kind: str, names: Sequence[str]) -> list[str]:
    """The columns with the name that the sweep gives, or else with the first of the usual names that there is."""
    if asked := getattr(config, f"{kind}_column"):
        return [name for name in names if name == asked]
    usual = [[name for name in names if name.lower() == one] for one in USUAL_NAMES[kind]]
    if kind == "caption":
        usual.insert(2, [name for name in names if _CAPTION.match(name.lower())])
    return next(filter(None, usual), [])


def column_of(config: SourceConfig, kind: str, names: Sequence[str], where: object) -> str | None:
    """The column that holds something; None for a split that no column names."""
    asked, key, taken = getattr(config, f"{kind}_column"), f"data.{kind}_column", found(config, kind, names)
    if kind == "image" and not taken and any(ending in name.lower() for name in names for ending in PICTURES):
        says = "has no header: put a line above that names the columns, such as image and caption; its first line is"
        raise DataError(f"{where} {says} {', '.join(names)!r:.80}")
    if asked and not taken:
        raise DataError(f"{where} has no column {asked!r}{nearest(asked, names)}; it has {', '.join(names)}", key)
    if not taken and kind != "split":
        raise DataError(f"{where} has the columns {', '.join(names)}; name that of the {kind}: {key}")
    if len(taken) > 1:
        mend = f"name one: {key}" if taken[0] != taken[1] else "rename one"
        mend += "; to keep both, write a row for each caption" * (kind == "caption")
        raise DataError(f"{where} has two columns {' and '.join(map(repr, taken[:2]))}; {mend}")
    return taken[0] if taken else None


def also_named(config: SourceConfig, values: Mapping[str, Sequence[Any]]) -> list[str]:
    """A line for what is read although other columns have a usual name for the same, or texts like captions.

    Args:
        values: of each column, some of its cells or, where these cannot be texts, none.
    """
    lines, taken = [], {kind: found(config, kind, [*values]) for kind in USUAL_NAMES}
    for kind, own in taken.items():
        free = [name for name in values if not any(name in names for names in taken.values())]
        others = [name for name in free if name.lower() in USUAL_NAMES[kind]]
        if kind == "caption":
            others = [name for name in free if _holds_captions(name, values[name])]
        if own and others and not getattr(config, f"{kind}_column"):
            lines.append(_not_taken(kind, own[0], others))
    return lines


def _holds_captions(name: str, cells: Iterable[Any]) -> bool:
    """Whether most cells have several words, or any where the name is usual for captions."""
    is_usual = bool(_CAPTION.match(name.lower())) or name.lower() in USUAL_NAMES["caption"]
    texts = [str(cell) for cell in cells if cell and isinstance(cell, str | list)]
    words = [0 if _PLACE.search(text) else sum(map(bool, map(_LETTER.search, text.split()))) for text in texts]
    return sum(count >= (1 if is_usual else 3) for count in words) * 2 > len(texts)


def split_like(config: SourceConfig, values: Mapping[str, Iterable[Any]], where: object, said: list[str]) -> str | None:
    """The column called `split`, or the only one in which each row names a split, train among others; or None.

    A line is added where a column of another name is taken, or would do, too.
    """
    named = column_of(config, "split", [*values], where)
    full = [name for name, own in values.items() if name != named and all(map(split_of, own))]
    others = [name for name in full if {"train"} < {*map(split_of, values[name])}]
    if named is not None:
        said += [_not_taken("split", named, others)] if others and not config.split_column else []
        return named
    if len(others) > 1:
        raise DataError(f"{where}: columns {' and '.join(map(repr, others))} name splits; set data.split_column")
    said += [f"split read from column {name!r}" for name in others]
    return others[0] if others else None


def _table(
    records: Iterable[_Record], names: Sequence[str], path: Path, config: SourceConfig, said: list[str], how: str = ""
) -> Iterator[Row]:
    """The rows of a table whose images are files; how it was read is said with whatever is wrong.

    A line is added to `said` where the splits are in a column of another name, and where several may hold captions.
    """
    where = f"{path}{how}"
    columns = [column_of(config, kind, names, where) for kind in ("image", "caption")]
    numbered = enumerate(records, start=1)
    rows = {number: one for number, one in numbered if any(str(cell or "").strip() for cell in one.values())}
    said += also_named(config, {name: [one.get(name) for one in islice(rows.values(), _FEW)] for name in names})
    columns += [split_like(config, {name: [one.get(name) for one in rows.values()] for name in names}, where, said)]
    for number, record in rows.items():
        if None in record or ("" in names[1:] and str(record[""] or "").strip()):  # what no column has a name for
            raise DataError(f"{where}, row {number} has more fields than the header; quote captions, name all columns")
        cells: list[Any] = [name and record.get(name) for name in columns]
        row = Row(_below_folder(cells[0], path.parent), *cells[1:])
        yield checked(row, f"{where}, row {number}: ", columns)


def _not_taken(kind: str, taken: str, others: Sequence[str]) -> str:
    return f"{kind}s read from column {taken!r}, not {', '.join(map(repr, others[:3]))} (data.{kind}_column)"


def _below_folder(image: Any, folder: Path) -> Any:
    """The path of an image below the table's folder, for an absolute one that lies there."""
    if isinstance(image, str) and os.path.isabs(image):
        for own in (folder.absolute(), folder.resolve()):
            if Path(image).is_relative_to(own):
                return Path(image).relative_to(own).as_posix()
    return image


def _separated(path: Path, config: SourceConfig, said: list[str]) -> Iterator[Row]:
    usual, content = "\t" if path.suffix.lower() == ".tsv" else ",", content_of(path)
    if what := seems(content):
        raise DataError(f"{path}{what}")
    _, before, text = re.split(r"\A\ufeff*(sep=.\r?\n)?", text_in(content, path), maxsplit=1)  # as Excel writes them
    separator = _separator(LINES.split(text, 1)[0], usual, config)
    how = "" if separator == usual else f" (its separator is {separator!r}, not {usual!r})"
    blanks = separator in ",;"  # before a quote; in Flickr30K's file, after `|`, a quote is part of the caption
    reader = csv.DictReader(StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=blanks)
    try:
        if not reader.fieldnames:
            raise DataError(f"{path} is empty, or its first line is, which must name the columns")
        reader.fieldnames = [name.strip() for name in reader.fieldnames]
        yield from _table(_apart(reader, separator, path), reader.fieldnames, path, config, said, how)
    except csv.Error as error:
        says = f"the row cannot be read{how}: {error}; {_QUOTES}"
        raise DataError(f"{path}:{reader.line_num + 1 + bool(before)}: {says}") from error


def _apart(records: Iterable[_Record], separator: str, path: Path) -> Iterator[_Record]:
    """Records, of which no cell may hold others, with their pictures, as after a stray quote at its beginning."""
    picture = re.compile(rf'({"|".join(map(re.escape, PICTURES))})[ "]*({re.escape(separator)}|$)', re.MULTILINE | re.I)
    for number, record in enumerate(records, start=1):
        cells = [cell for cell in record.values() if isinstance(cell, str) and separator in cell and LINES.search(cell)]
        if held := [cell for cell in cells if picture.search(cell)]:
            says = "a cell that begins with a quote holds other rows; double the quote, or take it away"
            raise DataError(f"{path}, row {number}: {says}: {held[0]!r:.80}")
        yield record


def _separator(header: str, usual: str, config: SourceConfig) -> str:
    """The separator with which a table's header has an image and a caption, or else the most columns."""

    def fits(separator: str) -> tuple[bool, int, bool]:
        names = [name.strip(' "') for name in header.split(separator)]
        return all(found(config, kind, names) for kind in ("image", "caption")), len(names), separator == usual

    return max(",;\t|", key=fits)


def _parquet(path: Path, config: SourceConfig, said: list[str]) -> Iterator[Row]:
    with opened(path) as file, reading(f"{path}{seems(path) or ' is not a Parquet file'}"):
        table = parquet_table(file)
        table.validate(full=True)
        records = table.to_pylist()
    image = column_of(config, "image", table.column_names, path)
    types, kind = pyarrow("types"), table.schema.field(image).type
    if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        where = f"the folder that datasets.Dataset.from_parquet({path.name!r}).save_to_disk(FOLDER) writes"
        says = f"column {image} holds {kind}, not the paths of files; images inside are read from {where}"
        raise DataError(f"{path}: {says}")
    yield from _table(records, table.column_names, path, config, said)


TABLES = {".csv": _separated, ".tsv": _separated, ".parquet": _parquet}
