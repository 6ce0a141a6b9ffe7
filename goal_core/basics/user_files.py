"""What a user's files hold, as bytes, text and JSON, or in one line what is wrong with them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from goal_sweep.goal_core.basics.atomic import DamagedError, open_file
from goal_sweep.goal_core.basics.errors import DataError, GoalError, MissingDataError, first_line

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


def seems(path: Path) -> str:
    """What a file is in place of what was expected, in words that follow its name; empty where that is not known."""
    with open_file(path) as file:
        start = file.read(200).lstrip().lower()
    if not start:
        return " is empty"
    if start.startswith(b"version https://git-lfs"):
        return " is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
    if start.startswith((b"<!doctype html", b"<html")):
        return " is a web page, not the file itself; download it anew"
    return ""


def text_in(content: bytes, where: object) -> str:
    """Content as text, without the mark that some programs write before it; a `DataError` names the faulty line."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{where}:{line} is not UTF-8 text") from error


def json_in(content: bytes, where: object) -> object:
    """Content as JSON; a `DataError` says where it is none."""
    try:
        return json.loads(text_in(content, where))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where} is not valid JSON: {error}") from error


def is_text(value: object) -> bool:
    """Whether a value is text that UTF-8 can hold."""
    return isinstance(value, str) and (value.isascii() or not _LONE.search(value))
