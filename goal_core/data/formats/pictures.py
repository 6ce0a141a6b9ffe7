"""Pictures in files, decoded to RGB: what could be read as another picture is refused or said.

So is damage of JPEG files that their decoder passes over: it fills with grey, or with noise, what it cannot read.
"""

import io
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from goal_sweep.goal_core.basics.errors import DataError, first_line
from goal_sweep.goal_core.basics.files import seems

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""The formats of images that are read. Pillow knows others, of which some start programs, whatever a file is called."""
MAX_PIXELS = 89_000_000
"""Of an image: a small file may unpack to more than the memory holds."""
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # of more pixels, which are refused
warnings.filterwarnings("ignore", message="Corrupt EXIF")  # of which only the orientation would count
_TURNS = "FLIP_LEFT_RIGHT ROTATE_180 FLIP_TOP_BOTTOM TRANSPOSE ROTATE_90 TRANSVERSE ROTATE_270"
_BACK = {number: Image.Transpose[name] for number, name in enumerate(_TURNS.split(), start=2)}
"""What undoes the turn of each EXIF orientation but 1, which has none."""
TURNED = "have a rotation tag (EXIF), and are read as stored, without it"
DARK = "of 16 bits or more, or of signed numbers, use little but the dark part of their range; scale them up"
CLEAR = "are transparent everywhere, and are read as white; save them without an alpha channel"
WHITE = "are white on transparency, and are read as white throughout; lay them on another colour"
PARTLY = (
    "are TIFF whose last band is called transparency, and are laid on white; if it is infrared, save the others alone"
)
SEVERAL = "hold several pages or frames, of which the first is read"
"""What is said of images, after how many they are."""
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
"""What begins a part of the file; the data of a scan hold none."""
_TABLES, _SCAN, _END, _PLAIN = 0xC4, 0xDA, 0xD9, (0xC0, 0xC1)
_ZEROS = bytes(64)
"""As many as three squares with all details at once, by the usual tables."""
_MORE = b"\x55\xaa" * 64


def decode_image(source: str | os.PathLike[str] | bytes, label: str = "") -> NDArray[np.uint8]:
    """Decode an image file, or the content of one, to RGB (H, W, 3) uint8; a `DataError` where it cannot be read.

    Transparency is composited on white. 16-bit greyscale keeps its upper 8 bits. Numbers of 32 bits must lie in 0 to 1
    (floating point), 0 to 255, or 0 to 65,535 (integers). Palettes, greyscale and CMYK are
    converted. An EXIF orientation is not applied, in any format, as in the published pipelines. Animations give their
    first frame. Messages name the image by its path, or by the label.
    """
    label = label or str(source)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise DataError(f"it has {image.width} x {image.height} pixels, more than {MAX_PIXELS:,}")
            _check_clear(image)
            return np.asarray(to_rgb(image))
    except MemoryError:
        raise
    except Image.DecompressionBombError as error:
        raise DataError(f"cannot read image {label}: it has more than {MAX_PIXELS:,} pixels") from error
    except UnidentifiedImageError as error:  # Pillow's words name the object that it read from
        what = seems(source if isinstance(source, bytes) else Path(source))
        what = what or f" is damaged, or in none of the formats {', '.join(FORMATS)}"
        raise DataError(f"cannot read image {label}: it{what}") from error
    # Pillow's decoders raise OSError, SyntaxError, ValueError, EOFError, struct.error and more on damaged files.
    except Exception as error:
        raise DataError(f"cannot read image {label}: {first_line(error)}") from error


def examined(content: bytes, label: str) -> tuple[NDArray[np.uint8], list[str]]:
    """The pixels of a picture, as :func:`decode_image`, which must not be damaged, and what is to be said of it.

    That is that viewers show it turned or mirrored, that it is nearly black or transparent, or one of several pictures.
    """
    pixels = decode_image(content, label)
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if _is_torn(image, content, pixels):
            raise DataError(f"cannot read image {label}: its data break off, or hold zeros")
        tags = getattr(image, "tag_v2", {})  # of TIFF
        is_signed = 2 in tags.get(339, ()) and max(tags.get(258, (1,))) <= 16
        is_dark = _is_wide(image) and bool(np.percentile(pixels, 99) < (128 if is_signed else 64))
        said = [TURNED] * (_orientation(image) in _BACK) + [DARK] * is_dark
        if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:  # a telephone's second one is spare
            said.append(SEVERAL)
        if image.has_transparency_data and image.mode != "La" and (tags or pixels.min() == 255):
            alpha = np.asarray(image.convert("RGBA"))[..., 3]
            is_clear = not alpha.any()
            is_partly = not is_clear and bool((alpha < 255).any())
            said += [CLEAR] * is_clear + [WHITE] * (is_partly and bool(pixels.min() == 255))
            said += [PARTLY] * (is_partly and bool(tags))
        if _is_guessed(image):
            said.append(f"are read as from 0 to {_top_of(image, np.asarray(image))}, as their own numbers suggest")
        return pixels, said


def _parts(content: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """The kind of each part up to the end, where it begins, what it says, and the data that follow it."""
    mark = _MARKER.search(content, 2)
    while mark:
        kind, begin, start = mark[1][0], mark.start(), mark.end()
        data = start if kind == _END else start + int.from_bytes(content[start : start + 2])
        mark = _MARKER.search(content, data) if kind != _END else None
        yield kind, begin, content[start + 2 : data], content[data : mark.start() if mark else None]


def _is_torn(image: Image.Image, content: bytes, pixels: NDArray[np.uint8]) -> bool:
    """Whether a file is a damaged JPEG although it could be decoded; others say so themselves.

    It has more zeros than a picture gives, as after a lost block of a disk, or ends in them; or its data end too early,
    so that what more data in their place would be is seen. A file that only lacks its end mark is whole. Zeros tell
    nothing where tables say that they end a square, as flat surfaces then have many; nor in a progressive file, which
    may also lack a whole scan without a trace. A PNG or TIFF whose compressed stream ends early but is well formed is
    not noticed.
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
        return bool((decode_image(content[:end] + _MORE + content[end:]) != pixels).any())
    return True


def _is_wide(image: Image.Image) -> bool:
    """Whether each number of a picture, which was not loaded yet, has more than 8 bits."""
    packed = image.format in ("TIFF", "PNG") and any(";16" in str(part.args) for part in getattr(image, "tile", ()))
    return image.mode[0] in "IF" or packed


def _check_clear(image: Image.Image) -> None:
    """Refuse what Pillow would read as something else, of a picture that was not loaded yet."""
    tags = getattr(image, "tag_v2", {})  # of TIFF
    if tags.get(262) == 0 and _is_wide(image):
        raise DataError("its 0 is white (MinIsWhite) in more than 8 bits; save it with BlackIsZero")
    if 2 in tags.get(339, ()) and image.mode[0] != "I":
        raise DataError("its numbers are signed, of which only 16 and 32 bits of grey are known")
    if tags.get(284) == 2 and tags.get(259, 1) == 1 and tags.get(277, 1) > 1 and max(tags.get(258, (1,))) > 8:
        raise DataError("its bands of more than 8 bits lie apart, uncompressed (PlanarConfiguration); compress it")
    if tags.get(277) == 2 and not {1, 2} & {*tags.get(338, ())}:
        raise DataError("it has two bands, of which no tag (ExtraSamples) says what the second is; save it as RGB")
    if image.mode == "RGBA" and tags and 338 not in tags:
        raise DataError("no tag (ExtraSamples) says whether its fourth band is transparency; save it as RGB")
    if "transparency" in image.info and _is_wide(image):
        raise DataError("it has a transparent colour (tRNS) of 16 bits; save it with an alpha channel")


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation of an open picture; 1 where it is to be shown as it is stored."""
    with suppress(Exception):  # as damaged entries raise, which hide no pixel
        return int(image.getexif().get(0x0112, 1)) if image.format == "TIFF" or "exif" in image.info else 1
    return 1


def to_rgb(image: Image.Image) -> Image.Image:
    """A picture in RGB, converted as :func:`decode_image` says; a TIFF as it is stored, unless it was loaded before."""
    # Pillow turns a TIFF as it loads it, and forgets by how much; of a named file it may swap the sides alone.
    turn = image.info.setdefault("as stored", _orientation(image)) if image.format == "TIFF" else 0
    if turn in _BACK:
        image.filename = ""  # type: ignore[attr-defined]  # of opened files
    image.load()
    return _in_rgb(image).transpose(_BACK[turn]) if turn in _BACK else _in_rgb(image)


def _in_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):  # which Pillow would clip to 255 when it converts them
        return Image.fromarray(_eight_bits(image)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        coloured = image.convert("LA" if image.mode == "La" else "RGBA").convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", coloured.size, (255, 255, 255, 255)), coloured).convert("RGB")
    return image.convert("RGB")


_BRIGHT = 16
"""A picture from 0 to 255 in floating point has a number of at least so much; a darker one seems to be from 0 to 1."""


def _top_of(image: Image.Image, values: NDArray[Any]) -> int:
    """What is white in floating-point and wide greyscale, as is known or seen of its numbers."""
    if not np.isfinite(values).all():
        raise DataError("it has numbers that are not finite")
    low, high = values.min(), values.max()
    if image.mode == "F":
        tops = (1,) if high < _BRIGHT else (1, 255)
    else:
        tops = (255, 65535) if _is_guessed(image) else (65535,)
    if fits := [top for top in tops if 0 <= low and high <= top]:
        return fits[0]
    known = " or ".join(f"0 to {top}" for top in tops)
    raise DataError(f"its numbers lie between {low:g} and {high:g}, and only those from {known} are known")


def _eight_bits(image: Image.Image) -> NDArray[np.uint8]:
    top = _top_of(image, values := np.asarray(image))
    return (values.astype(np.int64) >> 8 if top == 65535 else values * (255 if top == 1 else 1)).astype(np.uint8)


def _is_guessed(image: Image.Image) -> bool:
    """Whether nothing but a picture's own numbers says what is white in it."""
    return image.mode == "F" or (image.mode == "I" and image.format != "PPM")
