"""What files hold: a user's text and JSON, or in one line what is wrong with it; and our own, sealed by a checksum.

Sealed files, of which damage shows when they are read, are JSON, or columns of numbers and texts. Columns are a
safetensors file, of which nothing is parsed but the header. That holds the SHA-256 of all columns and of the file's
name: under the name of another it is damaged. Whoever opens the file reads all of it into memory. A map would show
later edits, and end the process where the file was cut.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, overload
from zipfile import ZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.atomic import DamagedError, open_file, read_bytes, replace_with, usual_mode
from goal_sweep.goal_core.basics.errors import ConfigError, DataError, GoalError, MissingDataError, first_line, warn

_LONE = re.compile("[\ud800-\udfff]")
"""Half of a character, which UTF-8 lacks: of an escape in JSON, or of the name of a file."""


def stamp_of(file: str | int) -> list[int]:
    """The size of a file, by path or open, and when its content and its entry last changed; empty where there is none.

    Both times are in nanoseconds. A program can set the first back, but not the second.
    """
    try:
        status = os.stat(file)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """A file, open to be read; a `DataError` where it is missing or cannot be."""
    try:
        with open_file(path) as file:
            yield file
    except FileNotFoundError:
        raise MissingDataError(f"{path} is missing") from None
    except (OSError, DamagedError) as error:
        raise DataError(f"cannot read {path}: {first_line(error)}") from error


@contextmanager
def reading(says: str, kind: type[GoalError] = DataError) -> Iterator[None]:
    """Turn what libraries raise on a damaged file, errors of many kinds, into one that says what is wrong."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise kind(f"{says}: {first_line(error)}") from error


def content_of(path: Path) -> bytes:
    """The content of a file."""
    with opened(path) as file:
        return file.read()


def seems(source: Path | bytes) -> str:
    """What a file is in place of what was expected, in words that follow its name; empty where that is not known."""
    if isinstance(source, Path):
        with open_file(source) as file:
            head = file.read(200)
    else:
        head = source[:200]
    start = head.lstrip().lower()
    if not start:
        return " is empty"
    if start.startswith(b"version https://git-lfs"):
        return " is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
    if start.startswith((b"<!doctype html", b"<html")):
        return " is a web page, not the file itself; download it anew"
    if start.startswith((b"ii*\0", b"mm\0*")):
        return " is a TIFF that is damaged, or has bands or numbers of an unknown kind; save it as RGB of 8 bits"
    if start.startswith(b"pk\3\4"):
        return _zipped(source)
    if isinstance(source, Path) and source.suffix != ".safetensors" and head[6:10] == b'\0\0{"':  # after its length
        return " is a safetensors file; name it .safetensors"
    return " is compressed; unpack it" if start.startswith(b"\x1f\x8b") else ""


def _zipped(source: Path | bytes) -> str:
    """What a zip archive is in place of weights, as torch writes them, or of a content."""
    if not is_zipfile(source if isinstance(source, Path) else BytesIO(source)):
        return " has lost its end; copy or download it anew"
    if not isinstance(source, Path):
        return " is a zip archive, as Excel writes"
    is_program = _PROGRAM.search("\n".join(ZipFile(source).namelist()))
    what = " is a program (TorchScript or torch.export), not weights; save the state_dict() of its model"
    return what if is_program else ""


def new_file(path: Path, *, force: bool, read: Iterable[Path] = ()) -> Path:
    """A file to write, which is refused where it is there already, unless forced; always where the caller reads it."""
    if path.exists() and not force:
        mend = "give another name, or write over it with --force (in Python force=True)"
        raise ConfigError(f"{path} is there already; {mend}")
    if path.exists() and path.resolve() in map(Path.resolve, read):
        raise ConfigError(f"{path} is read by this command; give another name")
    return path


def text_in(content: bytes, where: object) -> str:
    """Content as text, without the mark that some programs write before it; a `DataError` names the faulty line."""
    try:
        text = content.decode("utf-8-sig")
        if "\0" in text:  # every second byte of UTF-16
            line = text.count("\n", 0, text.index("\0")) + 1
            raise DataError(f"{where}:{line} holds NUL characters, as UTF-16 does; save it as UTF-8")
        return text
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{where}:{line} is not UTF-8 text; save it as UTF-8") from error


def json_in(content: bytes, where: object) -> object:
    """Content as JSON; a `DataError` says where it is none."""
    try:
        return json.loads(text_in(content, where), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where} is not valid JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r} stands twice in an object that begins with {str(dict(pairs[:1]))!r:.80}")
    return found


def is_text(value: object) -> bool:
    """Whether a value is text that UTF-8 can hold."""
    return isinstance(value, str) and (value.isascii() or not _LONE.search(value))


_PROGRAM = re.compile(r"/code/|/models/.*\.json$", re.MULTILINE)
_CHECKSUM = "checksum"


def pyarrow(module: str) -> Any:
    """A module of pyarrow, which not everybody needs."""
    try:
        return import_module(f"pyarrow.{module}")
    except ImportError:
        raise DataError("Parquet and Arrow files need pyarrow: pip install pyarrow") from None


def parquet_table(source: Any, **options: Any) -> Any:
    """The table of a Parquet file, as `pyarrow.parquet.read_table` reads it.

    By this thread alone: a process that ends right afterwards would be aborted where a thread of Arrow still runs.
    """
    return pyarrow("parquet").read_table(source, use_threads=False, pre_buffer=False, **options)


def json_bytes(content: Any, *, indent: int | None = 2, seal: bool = True) -> bytes:
    """Strict JSON in UTF-8, with a final newline; numbers that JSON lacks become ``"nan"``, ``"inf"``, ``"-inf"``.

    Sealed, an object has a key ``"checksum"``, which :func:`parse_json` verifies and removes.
    """
    finite = _finite(content)
    if seal and isinstance(finite, dict):
        finite.pop(_CHECKSUM, None)
        finite[_CHECKSUM] = key_of(finite)
    return json.dumps(finite, indent=indent, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def key_of(content: Any) -> str:
    """16 hex digits that identify JSON-able content; the order of an object's keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _finite(content: Any) -> Any:
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    if isinstance(content, Mapping):
        return {str(key): _finite(value) for key, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, (list, tuple)) else content


def read_json(path: Path, *, sealed: bool = True) -> dict[str, Any] | None:
    """The JSON object in ``path``, as by :func:`parse_json`, or None where there is no such file."""
    content = read_bytes(path)
    return None if content is None else parse_json(content, str(path), sealed=sealed)


def parse_json(content: bytes, source: str, *, sealed: bool = True) -> dict[str, Any]:
    """Parse what :func:`json_bytes` wrote; a `DamagedError` where it is not whole or does not match its checksum."""
    try:
        parsed = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{source} is damaged: it is not valid JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise DamagedError(f"{source} is damaged: it is not a JSON object")
    if (sealed or _CHECKSUM in parsed) and parsed.pop(_CHECKSUM, None) != key_of(parsed):
        raise DamagedError(f"{source} is damaged: its content does not match its checksum")
    return parsed


Columns = Mapping[str, NDArray[Any]]
_DTYPES = {"U8": "u1", "I32": "<i4", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8"}
"""Numpy's types by the names that safetensors gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """An array of numbers in a file, row by row."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    begin: int
    """Where its numbers begin, bytes."""
    column: str = ""
    """The column of a Parquet file that holds it; empty for others."""
    by_columns: bool = False
    """Whether an `.npy` file stores it column by column, as that of a transposed array does."""


@dataclass(frozen=True, slots=True, eq=False)
class Texts(Sequence[str]):
    """Many texts in two arrays, each decoded when it is asked for."""

    content: NDArray[np.uint8]
    """All of them in UTF-8, one after the other."""
    ends: NDArray[np.int64]
    """Where each ends, (N,)."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Put texts together."""
        encoded = [text.encode() for text in texts]
        ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self.content[self.ends[place - 1] if place else 0 : self.ends[place]].tobytes().decode()

    def columns(self, name: str) -> dict[str, NDArray[Any]]:
        """The two arrays as columns."""
        return {f"{name}.text": self.content, f"{name}.ends": self.ends}


def digest_of(columns: Columns, about: str = "") -> str:
    """SHA-256 of columns with their names, types and shapes, whatever their order, and of a text: hexadecimal."""
    digest = hashlib.sha256(about.encode())
    for name, column in sorted(columns.items()):
        digest.update(f"{name} {column.dtype.str} {column.shape}\n".encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def write_columns(path: Path, columns: Columns, about: Mapping[str, Any]) -> None:
    """Write columns, and JSON-able content about them. The file appears whole or not at all."""
    from safetensors.numpy import save_file  # which objectives and recalls do without

    said = json.dumps(dict(about))
    # One entry only: safetensors writes several in no fixed order, and equal columns are equal files.
    sealed = {"sealed": json.dumps([said, digest_of(columns, said + path.name)])}
    contiguous = {name: np.ascontiguousarray(column) for name, column in columns.items()}

    def write(temporary: Path) -> None:
        with usual_mode(temporary):
            save_file(contiguous, temporary, metadata=sealed)

    replace_with(path, write)


def header_of(file: BinaryIO) -> tuple[dict[str, StoredArray], dict[str, str]]:
    """What a safetensors file holds, and its metadata; a `DamagedError` where it is none."""
    size, end = int.from_bytes(file.read(8), "little"), 0
    num_bytes = os.fstat(file.fileno()).st_size - 8 - size
    content = file.read(size) if num_bytes >= 0 else b""
    with reading("it is no whole safetensors file", DamagedError):
        header = json.loads(content)
        meta, places = header.pop("__metadata__", {}), dict[str, StoredArray]()
        for name, one in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            kind, shape, begin = one["dtype"], tuple(one["shape"]), end
            if kind not in _DTYPES:
                raise DataError(f"{file.name}: {name} has numbers of type {kind}; save them as float32")
            if any(type(length) is not int or length < 0 for length in shape):
                raise ValueError(f"{name} has the shape {one['shape']}")
            end += math.prod(shape) * np.dtype(_DTYPES[kind]).itemsize
            if one["data_offsets"] != [begin, end]:  # no gaps, and nothing twice
                raise ValueError(f"{name} must lie at {[begin, end]}, not at {one['data_offsets']}")
            places[name] = StoredArray(path=file.name, shape=shape, dtype=_DTYPES[kind], begin=8 + size + begin)
        if end != num_bytes:
            raise ValueError(f"it has {num_bytes} bytes of numbers, but says {end}")
    return places, meta


def read_columns(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The columns of a file, and what it says about them; a `DamagedError` where they are not what was written."""
    with open_file(path) as file:
        places, meta = header_of(file)
        file.seek(0)
        content = np.fromfile(file, np.uint8).data
    with reading("it is no whole file of columns", DamagedError):
        columns = {name: np.ndarray(one.shape, one.dtype, content, one.begin) for name, one in places.items()}
        said, digest = json.loads(meta["sealed"])
        if digest_of(columns, said + path.name) != digest:
            raise ValueError("its content or its name does not match its checksum")
        about: dict[str, Any] = json.loads(said)
    return columns, about


def kept_columns(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
    """As :func:`read_columns`, of a cache: None where there is none of use. A damaged one is named in the log."""
    try:
        return read_columns(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        warn(f"cannot read {path}: {error.strerror or error}; it is not used")
    except DamagedError as error:
        warn(f"{path} is damaged: {error}; it is made again")
    return None
