"""Damage of JPEG files that their decoder passes over: it fills with grey, or with noise, what it cannot read."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from goal_sweep.goal_core.basics.errors import DataError

_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
"""What begins a part of the file; the data of a scan hold none."""
_TABLES, _SCAN, _END, _PLAIN = 0xC4, 0xDA, 0xD9, (0xC0, 0xC1)
_ZEROS = bytes(64)
"""As many as three squares with all details at once, by the usual tables."""
_MORE = b"\x55\xaa" * 64


def _parts(content: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """The kind of each part up to the end, where it begins, what it says, and the data that follow it."""
    mark = _MARKER.search(content, 2)
    while mark:
        kind, begin, start = mark[1][0], mark.start(), mark.end()
        data = start if kind == _END else start + int.from_bytes(content[start : start + 2])
        mark = _MARKER.search(content, data) if kind != _END else None
        yield kind, begin, content[start + 2 : data], content[data : mark.start() if mark else None]


def is_torn(
    image: Image.Image, content: bytes, pixels: NDArray[np.uint8], decode: Callable[[bytes], NDArray[np.uint8]]
) -> bool:
    """Whether a file is a damaged JPEG although it could be decoded; other formats say so themselves.

    It has more zeros than a picture gives, as after a lost block of a disk, or ends in them; or its data end too early,
    so that what more data in their place would be is seen. A file that only lacks its end mark is whole. Zeros tell
    nothing where tables say that they end a square, as flat surfaces then have many; nor in a progressive file, which
    may also lack a whole scan without a trace.
    """
    if image.format not in ("JPEG", "MPO"):
        return False
    end, is_plain, first = 0, False, dict[int, int]()
    for kind, begin, says, data in _parts(content):
        if kind == _TABLES:
            while len(says) > 17:
                first |= {says[0] & 15: says[17]} if says[0] >> 4 else {}
                says = says[17 + sum(says[1:17]) :]  # one table after the other
        elif 0xC0 <= kind <= 0xCF:
            is_plain = kind in _PLAIN
        elif kind == _SCAN and is_plain and any(first.get(one & 15) for one in says[2 : 2 + 2 * says[0] : 2]):
            if _ZEROS in data:
                return True
        end = begin if kind == _END else 0
    if not end and content.endswith(_ZEROS):
        return True
    if end and image.mode != "CMYK" and "progressive" not in image.info and (pixels[-1, -1] != 128).any():
        return False  # grey fills what is missing
    end = end or len(content)
    with suppress(DataError):
        return bool((decode(content[:end] + _MORE + content[end:]) != pixels).any())
    return True
