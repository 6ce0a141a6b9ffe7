"""What every importer says of a dataset: where its files are, and the images and captions of each split.

Whatever is wrong is a `DataError` of one line, which names the file and the place in it.
"""

import ast
import hashlib
import json
import os
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from goal_sweep.goal_core.basics.errors import DataError, MissingDataError, nearest
from goal_sweep.goal_core.basics.files import StoredArray, content_of, is_text, stamp_of
from goal_sweep.goal_core.data.config import SHIPPED
from goal_sweep.goal_core.data.dataset import SPLIT_NAMES, Row
from goal_sweep.goal_core.data.words import is_seen

SHIPPED_FOLDER = Path(__file__).parents[1] / "shipped"
SPLIT_OF = {
    **{"train": "train", "training": "train", "restval": "train", "test": "test", "testing": "test"},
    **{"val": "val", "validation": "val", "valid": "val", "dev": "val"},
}
"""The split for each name of one; `restval`, the rest of COCO's val2014, is trained on."""
FILE_WORDS = {"train": "train", "val": "dev", "test": "test"}
"""First word of the names of each split's text files."""
LINKED_DATA = "GOAL_LINKED_DATA"
"""Environment variable: folders outside the dataset's into which its links may lead, with ``:`` between them."""
_LIST = re.compile(
    r"""
        [\[(][\s\[({]*+ (?:[bru]{,2}["'“‘](?!\w[\w ]*+["'”’]\ \w) | (?<=\{) | \]) (?:[^\]]*+ | .*[\])])  # a list or cut
      | [\[(]\s*+ (?:(?i:nan|none|null|<na>)(?=\s*+[,\])]) | [A-Za-z_.]++\([\[("']) .*[\])]  # one that begins otherwise
      | ["'][\[{] .* [\]}]["']                                                     # one as text, such as JSON in JSON
      | \{ (?:\s*+["'] (?:[^}]*+ | .*\}) | (?=[^{}]*+\}\Z) [^{]*?,(?!\s).*)          # an object, or Postgres's list
      | (?:[\w.]++\(\s*+ (?:[\[({] | \w++=["'\[({]) | np\.\w++\(["']) .*\)          # array([...]), np.str_('...')
      | [bru]{1,2} (?:'(?:[^'\\] | \\.)*+' | "(?:[^"\\] | \\.)*+")                  # bytes
      | <\w*Array\w*>\s*+\[.* | .*\bdtype[:=]\s*+\S++                              # of pandas
    """,
    re.S | re.X,
)
"""A text that is a list or an object of some program, or bytes, rather than a caption."""
_NONE = re.compile(
    r"\s*(NA|NaT|NIL|-|(?i:nan|none|null|undefined|#?n/a|n\.a\.|\\n|[<(\[](na|none|null|nil|empty|blank|missing)[>)\]])"
    r"|character\(0\)|#(NAME\?|REF!|VALUE!|ERROR!|DIV/0!|NUM!)|<[\w .]+ object at 0x\w+>)\s*"
)
"""What programs write for no text, or where they fail."""
_HIDDEN = re.compile(r"\.|@eaDir\Z")
"""As `.git`, macOS's `._3.png` and Synology's `@eaDir` begin."""
_AFTER = re.compile(r"[-_ ]*\d*$")
"""A year or a number after the word for a split."""
_FEW = 1000
"""Of fewer images the shares of a drawn split are exact."""
USUAL = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
BESIDE = (".txt", ".TXT", ".caption")  # of files with the captions of a picture
PICTURES = (*USUAL, ".jpe", ".jfif", ".apng", ".pbm", ".pgm", ".ppm", ".pnm", ".pfm")
"""All endings of the formats that are read; one that is not usual may also be a mask beside a picture."""
_NUMBERED = re.compile(rf"\S+({'|'.join(map(re.escape, PICTURES))})#\d", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One split, in its order."""

    names: Sequence[str]
    """The file of each image, relative, with forward slashes; of precomputed features, the image's id."""
    captions: Sequence[Sequence[str]]
    """The captions of each image, at least one."""
    spans: Sequence[tuple[int, int]] = ()
    """Where each image begins in its shard, and its bytes; empty where each has a file of its own."""
    places: Sequence[str] = ()
    """The name of each in its shard, for messages."""
    features: StoredArray | None = None
    """The file of the images' features; None for image files."""
    rows: Sequence[int] = ()
    """The row of each image in that file where it repeats an image's row for each of its captions; else empty."""
    texts: StoredArray | None = None
    """The file of the captions' vectors; None where these are words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A dataset whose common files have been read; its splits are read one by one, so that a check can name each."""

    root: Path
    """The folder below which image files are looked for."""
    splits: Mapping[str, Callable[[], Listing]]
    """Reads `train`, `val` and `test`."""
    files: Sequence[Sequence[str | int]]
    """The files that are parsed, as :func:`stamped` gave them before: where one changes, all is read again."""
    corpus: Sequence[str] = ()
    """Captions from which the vocabulary is built; empty for those of train and val."""
    says: str = ""
    """What was recognised, in words."""
    split: str = ""
    """How the splits were drawn, or from what they were read, in words; empty where they are given."""


def tree(root: Path) -> list[Path]:
    """What lies below a folder, in order, but what is hidden and stores of goal-sweep: their figures are no data.

    Links to folders are followed as far as :func:`check_links` allows.
    """
    found, left, seen = list[Path](), [root], dict[Path, Path]()
    while left:
        folder = left.pop()
        if folder.is_symlink() and folder != root:
            check_links(root, [str(folder)])
        if (other := seen.setdefault(folder.resolve(), folder)) != folder:
            raise DataError(f"{folder} and {other} are one folder; remove the link")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise DataError(f"cannot read the folder {folder}: Permission denied")
        inside = [one for one in folder.iterdir() if not _HIDDEN.match(one.name)]
        found += inside
        left += [one for one in inside if one.is_dir()]
    stores = {one.parent for one in found if one.name == "store.json" and b'"checksum"' in content_of(one)} - {root}
    return sorted(one for one in found if not stores or stores.isdisjoint((one, *one.parents)))


def below(root: Path) -> tuple[list[Path], list[Path]]:
    """All folders of a tree, the root first, and all its files; of a file, itself."""
    if not root.is_dir():
        return [], [root]
    found = tree(root)
    return [root, *(one for one in found if one.is_dir())], [one for one in found if not one.is_dir()]


def stamped(root: Path, files: Iterable[Path]) -> list[list[str | int]]:
    """Files, whether they exist or not, each with its stamp; none may be a link out of the root (:func:`check_links`).

    To be called before they are read.
    """
    paths = list(map(str, files))
    check_links(root, {*map(os.path.dirname, paths), *filter(os.path.islink, paths)})
    return [[path, *stamp_of(path)] for path in paths]


def check_links(root: Path, paths: Iterable[str]) -> None:
    """Check that paths below the root lie in it, or in a folder that `GOAL_LINKED_DATA` lists, with links followed.

    A dataset may come from anybody, and its links could name any file of this machine. Other paths are the user's own.
    """
    listed = [folder for folder in os.environ.get(LINKED_DATA, "").split(os.pathsep) if folder]
    allowed = [Path(os.path.realpath(folder)) for folder in (str(root), *listed)]
    for path in paths:
        real = Path(os.path.realpath(path))
        is_below = Path(os.path.abspath(path)).is_relative_to(os.path.abspath(root))
        if is_below and not any(real.is_relative_to(folder) for folder in allowed):
            folder = real if real.is_dir() else real.parent
            mend = f"if you trust it, add {folder} to the environment variable {LINKED_DATA}"
            raise DataError(f"{path} is a link to {real}, outside the folder of the dataset; {mend}")


def check_backslashes(root: Path, parents: Sequence[str], pictures: Collection[str]) -> None:
    """Check that no file below the root, or a folder there, is called as Windows would write a picture's path."""
    folders = {name.rpartition("/")[0] for name in pictures} - {""}
    for above in sorted({one for folder in folders for one in PurePosixPath(folder).parents}):
        for place in (root / parent / above for parent in parents):
            for name in os.listdir(place) if os.access(place, os.R_OK) and place.is_dir() else ():
                if "\\" in name and str(above / name.replace("\\", "/")) in pictures:
                    raise DataError(f"{place / name}: a backslash in a path means a folder; rename the file")


def pictures_in(files: Sequence[Path], said: list[str]) -> list[Path]:
    """The pictures among files: those with a usual ending, and others whose captions belong to no such picture.

    A line is added for what is left out.
    """
    usual = {one.with_suffix("") for one in files if one.suffix.lower() in USUAL}
    captioned = {one.with_suffix("") for one in files if one.suffix in BESIDE} - usual
    found, left = list[Path](), list[Path]()
    for one in files:
        ending, has_captions = one.suffix.lower(), one.with_suffix("") in captioned
        is_read = ending in USUAL or (ending in PICTURES and has_captions)
        if is_read or ending in PICTURES or (ending not in BESIDE and has_captions):
            (found if is_read else left).append(one)
    said += [f"{len(left):,} files left out, of another format or without captions, such as {left[0]}"] if left else []
    return found


def listing(rows: Iterable[Row]) -> Listing:
    """The images of a split's rows with all of their captions, in the order in which they first occur."""
    images: dict[str, Row] = {}
    captions: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        key = row.key or row.image
        images.setdefault(key, row)
        captions[key] += [caption.strip() for caption in row.captions]
    names, spans = [row.image for row in images.values()], [row.span for row in images.values() if row.span]
    places = [row.place or row.key for row in images.values() if row.span]
    return Listing(names=names, captions=list(captions.values()), spans=spans, places=places)


def by_split(rows: Iterable[Row]) -> dict[str, Callable[[], Listing]]:
    """Listings of rows by their split."""
    parts: dict[str, list[Row]] = {split: [] for split in SPLIT_NAMES}
    for row in rows:
        parts[row.split].append(row)
    return {split: partial(listing, own) for split, own in parts.items()}


def with_splits(rows: Iterable[Row], val_share: float, test_share: float) -> tuple[list[Row], str]:
    """Rows with splits where a source lacks some, and how they were found, in words.

    Without any they are those that the names of folders and shards say, if these say one for each image, of which some
    are train; else they are drawn. A missing val or test is drawn from train.
    """
    given = list(rows)
    first = {bool(row.split): row.key or row.image for row in reversed(given)}
    named = [row._replace(split=row.split or _split_above(row.key or row.image)) for row in given]
    there, is_given = {row.split for row in named}, True in first
    if is_given and "" in there:
        raise DataError(f"image {first[False]} has no split, but {first[True]} has one; give it for all images or none")
    shares = {"val": val_share, "test": test_share}
    lacking = {split: share for split, share in shares.items() if share and test_share != 1 and split not in there}
    if not given or (is_given and ("train" not in there or not lacking)):
        return named, ""
    says = f"{' and '.join(lacking)} drawn from train" if lacking else "read from the names of folders or shards"
    mend = "; to choose it yourself, give each image a split, or its folder the name of one"
    if "" in there or "train" not in there:
        if test_share == 1:
            return [row._replace(split="test") for row in given], "no split is given, so all images are test"
        half = [f"; that of {row.key or row.image} is not used, as some are missing" for row in named if row.split]
        named, lacking = [row._replace(split="train") for row in given], shares
        says, mend = "drawn", mend + "".join(half[:1])
    train = {row.key or row.image for row in named if row.split == "train"}
    drawn = drawn_splits(train, *(lacking.get(split, 0.0) for split in shares))
    placed = [row._replace(split=drawn[row.key or row.image]) if row.split == "train" else row for row in named]
    counts = Counter({row.key or row.image: row.split for row in placed}.values())
    says += ": " + ", ".join(f"{counts[split]:,} {split}" for split in SPLIT_NAMES) + f" images{mend * bool(lacking)}"
    return placed, f"split {says}"


def _split_above(key: str) -> str:
    """The split that the names of the folders and the shard of an image say, if it is one."""
    found = {SPLIT_OF[word] for word in re.findall("[a-z]+", os.path.dirname(key).lower()) if word in SPLIT_OF}
    return found.pop() if len(found) == 1 else ""


def drawn_splits(keys: Collection[str], val_share: float, test_share: float) -> dict[str, str]:
    """Splits of images for which none are given: by a hash of each one's name, so the same for ever, in any layout.

    A name is a key without folders, and without the ending of a picture; the whole key where names repeat. Of few
    images the shares are exact, at least one image each; of many they are so within chance, and an image keeps its
    split when others come.
    """
    paths = {key: PurePosixPath(key) for key in keys}
    names = {key: path.stem if path.suffix.lower() in USUAL else path.name for key, path in paths.items()}
    if len(set(names.values())) < len(names):
        names = {key: key for key in keys}
    place: dict[str, float] = {
        key: int.from_bytes(hashlib.sha256(name.encode(errors="surrogatepass")).digest()[:8], "big") / 2**64
        for key, name in names.items()
    }
    if len(place) < _FEW:
        place = {key: number for number, key in enumerate(sorted(place, key=lambda key: (place[key], key)))}
        test, val = (float(max(round(share * len(place)), share > 0)) for share in (test_share, val_share))
    else:
        test, val = test_share, val_share
    return {key: "test" if at < test else "val" if at < test + val else "train" for key, at in place.items()}


def caption_files(pictures: Sequence[Path], files: Collection[Path]) -> list[Path]:
    """The text file beside each picture, of the first of these endings that is there, or else of the first."""
    ways = [[one.with_suffix(ending) for ending in BESIDE] for one in pictures]
    return [next((way for way in own if way in files), own[0]) for own in ways]


class Captions(list[str]):
    """Captions that :func:`captions_in` has read."""


def captions_in(value: object, where: str) -> Captions:
    """Captions as files have them: a text, or a list of texts, or of objects with `raw` text or a list `tokens`.

    A text may itself hold such a list or object, as JSON or Python write it; what looks so and is none is refused.
    """
    if isinstance(value, Captions):
        return value
    several, found = value if isinstance(value, list | tuple) else [value], Captions()
    for number, one in enumerate(several):
        at = f"{where}[{number}]" if several is value else where
        raw = one["raw"] if isinstance(one, dict) and one.get("raw") else one
        for way, held in enumerate(texts := _listed(raw, at)):
            text, place = held, at if texts == [raw] else f"{at}[{way}]"
            if isinstance(held, dict):
                tokens = held.get("tokens")
                text = held.get("raw") or (" ".join(map(str, tokens)) if isinstance(tokens, list) else "")
            if is_text(text) and _NONE.fullmatch(text):
                raise DataError(f"{place} is {text!r}, which programs write where there is no caption")
            if not is_text(text) or not is_seen(text):
                raise DataError(f"{place} must be a caption in UTF-8 with something to see, got {held!r:.80}")
            if _NUMBERED.match(text):
                raise DataError(f"{place} has the name and number of a picture, as Flickr8k's list: {text!r:.80}")
            if "\0" in text:
                raise DataError(f"{place} holds NUL characters, as UTF-16 read as UTF-8 does: {text!r:.80}")
            found.append(text)
    if not found:
        raise DataError(f"{where} holds no caption")
    return found


def _listed(text: object, at: str) -> Sequence[Any]:
    """What a text holds that looks like a list or an object, as JSON or Python write it; else the value itself."""
    if not (isinstance(text, str) and _LIST.fullmatch(text.strip())):
        return [text]
    stored, doubled = None, False
    with suppress(ValueError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError):
        try:
            stored = json.loads(text)
        except ValueError:
            stored = ast.literal_eval(text.strip())
            tokens = tokenize.generate_tokens(StringIO(text).readline)
            kinds = [one.type for one in tokens if one.type not in (tokenize.NL, tokenize.COMMENT)]
            doubled = (tokenize.STRING, tokenize.STRING) in pairwise(kinds)  # of which Python makes one text
    if isinstance(stored, list | tuple | dict) and not doubled:
        return [stored] if isinstance(stored, dict) else stored
    if text.lstrip().startswith("(") and "str_(" not in text:  # a caption may well begin so
        return [text]
    says = "looks like a list, an object or bytes, but is none that JSON or Python reads as captions"
    raise DataError(f'{at} {says}; write a list in JSON, such as ["a dog"]: {text!r:.80}')


def image_path(value: object, where: str) -> str:
    """A path of an image below its folder, with forward slashes and without ``.``."""
    path = str(value).replace("\\", "/") if is_text(value) else ""
    if "://" in path:
        raise DataError(f"{where} is a URL, {path!r:.80}; download the pictures and give the paths of their files")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    is_long = any(len(os.fsencode(part)) > 255 for part in parts)  # for a file's name, as a picture's bytes in text
    if path.startswith("/") or path.endswith("/") or ".." in parts or "\0" in path or not parts or is_long:
        raise DataError(f"{where} must be the path of a file below the images' folder, in UTF-8, got {value!r:.200}")
    return "/".join(parts)


def split_of(value: object) -> str:
    """The split that a word means, in any case and with a year or a number after it; empty where it means none."""
    return SPLIT_OF.get(_AFTER.sub("", value.strip().lower()), "") if isinstance(value, str) else ""


def split_named(value: object, where: str) -> str:
    """The split that a file's word for it means."""
    if not (split := split_of(value)):
        close = nearest(value, SPLIT_OF) if isinstance(value, str) else ""
        raise DataError(f"{where} must be one of {', '.join(SPLIT_OF)}, got {value!r:.80}{close}")
    return split


def checked(row: Row, at: str, called: Sequence[object] = Row._fields) -> Row:
    """A row of what a source says, whose place is given and what its image, captions and split are called there."""
    image, captions, split = (f"{at}{name}" for name in called[:3])
    own = "" if row.split in (None, "") else split_named(row.split, split)
    return Row(image_path(row.image, image), captions_in(row.captions, captions), own, *row[3:])


def equal_counts(texts: int, images: int, where: object, advice: str) -> list[int]:
    """The same number of captions for each image."""
    each, rest = divmod(texts, images)
    if rest or not each:
        have = f"{texts} captions, not a multiple of the {images} images"
        raise DataError(f"{where} has {have}; if images have different numbers of captions, {advice}")
    return [each] * images


def dataset_folder(root: str) -> Path:
    """The folder that ``data.root`` names."""
    if root.startswith(SHIPPED):
        names = sorted(path.name for path in SHIPPED_FOLDER.iterdir() if path.is_dir())
        if root.removeprefix(SHIPPED) not in names:
            raise MissingDataError(f"no dataset {root!r} ships with goal-sweep; there is {SHIPPED}{', '.join(names)}")
        return SHIPPED_FOLDER / root.removeprefix(SHIPPED)
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise MissingDataError(f"dataset folder not found: {folder}")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise DataError(f"cannot read the folder {folder}: Permission denied")
    return folder


def precomp_folder(root: str) -> Path:
    """The folder of the `*_caps.txt` files: ``root/precomp`` where it exists, else the root."""
    inner = (folder := dataset_folder(root)) / "precomp"
    if inner.is_dir() and any(inner.glob(ends := "*_caps.txt*")) and any(folder.glob(ends)):
        raise DataError(f"{folder} and {inner} both hold {ends}; delete or move those that are not meant")
    return inner if inner.is_dir() else folder
