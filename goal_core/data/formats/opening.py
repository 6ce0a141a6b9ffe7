"""Open and check a dataset of any layout: by its index, which is made from its files where there is none yet."""

import gc
import html
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.atomic import make_folder
from goal_sweep.goal_core.basics.errors import ChangedDataError, DataError, listening, warn
from goal_sweep.goal_core.basics.files import Texts, kept_columns, stamp_of, write_columns
from goal_sweep.goal_core.data.config import DataConfig, ScenesConfig
from goal_sweep.goal_core.data.dataset import COUNTED, SPLIT_NAMES, Dataset
from goal_sweep.goal_core.data.formats.features import embeddings
from goal_sweep.goal_core.data.formats.index import Index, find_images, index_path
from goal_sweep.goal_core.data.formats.layout import Layout, Listing, check_links
from goal_sweep.goal_core.data.formats.pictures import TURNED
from goal_sweep.goal_core.data.formats.report import DataReport, Progress, SplitCounts, published_counts
from goal_sweep.goal_core.data.formats.sources import karpathy, source, xvlm_json
from goal_sweep.goal_core.data.formats.text_files import text_files
from goal_sweep.goal_core.data.scenes import open_scenes
from goal_sweep.goal_core.data.words import is_word, unspaced, word_counts

LAYOUTS: Mapping[str, Callable[[Any], Layout]] = {
    "karpathy": karpathy,
    "id_mapping": text_files,
    "xvlm_json": xvlm_json,
    "regions": text_files,
    "precomp": text_files,
    "source": source,
    "embeddings": embeddings,
}
"""By `data.format` in sweep files; `scenes` are drawn."""
_LETTER = re.compile(r"[^\W\d_]")
_BROKEN = re.compile(
    r"\ufffd|</?(?:a|b|br|div|em|i|p|span|u)\b[^<>]*>|</\w+>|<!\[CDATA\[|\\u[0-9a-fA-F]{4}|<U\+[0-9A-F]{4,}>"
    r"|\\x[0-9a-f]{2}|\\[23][0-7]{2}|(%[0-9a-fA-F]{2}|=[0-9A-F]{2})\S*\1|\[object Object\]|[À-ÿ][¡-ÿ]{5}"
    r"|\A(?:https?://\S+|\S+\.(?i:txt|caption|json|jpe?g|png|webp|npy))\Z|\A=\s*\".*\"\Z|_x000[9AD]_|\\\""
)
"""What is left where a program could not read a character, tags of HTML, escapes, places of files, what Excel writes
for texts and ends of lines, and more signs of Western languages in a row than they have."""
_CODE_PAGES = ("mac_roman", "iso8859-2", "koi8-r", *(f"cp{n}" for n in (437, 850, 866, 1250, 1251, *range(1253, 1259))))
"""Encodings other than Western ones, as which UTF-8 is read by mistake. A caption or two may mean what they say."""
_BETWEEN = re.compile(r"(\|+|;|#{2,}|\n|\t|\\[nt]|\x1f|[•¶¦~]|\$\$|::|&&| / |<sep>|\[SEP\]|</?s>|[\"”],\s*[\"“])")
"""What people write between several captions of one cell."""
_TOGETHER = 64
"""Images, or rows of features, that a thread reads at a time."""


def open_dataset(
    config: DataConfig,
    indexes: Path | None = None,
    *,
    renew: bool = True,
    needed: Collection[str] = SPLIT_NAMES,
    progress: Progress = lambda done, total: None,
) -> Dataset:
    """Open what a sweep file's `data` names.

    Where its index is kept already, its columns are read, and nothing is parsed. Otherwise the annotations are parsed
    and checked in full, and every image and feature is read once, decoded and checked, for its digest.

    Args:
        indexes: the folder of all indexes; None keeps none.
        renew: look at every image, and read those again whose size or times changed. Without it only the files that are
            parsed are looked at; images that changed are noticed when they are read.
        needed: splits that must have images; others may be empty, and are then left out.
    """
    if isinstance(config, ScenesConfig):
        return open_scenes(config)
    path = indexes and index_path(config, indexes)
    kept = path and kept_columns(path)
    known = Index(*kept) if kept else None
    if known is not None and not all(len(known.columns[f"{split}.owners"]) for split in needed):
        known = None  # it was kept by who needed less
    if known is not None and known.is_current(thorough=renew):
        return known.dataset(config, path)
    index = _indexed(config, DataReport(name=config.name, raises=True, needed=needed), known, progress)
    assert index is not None  # or it has been raised
    if path is not None:
        with suppress(OSError):  # a disk that refuses it costs only time
            make_folder(path.parent)
            write_columns(path, index.columns, {**index.about, "digest": index.digest})
    return index.dataset(config, path)


def check_data(
    config: DataConfig,
    *,
    quick: bool = False,
    progress: Progress = lambda done, total: None,
    captions: Callable[[Dataset], object] = lambda dataset: None,
    words: bool = True,
) -> DataReport:
    """Check everything that a sweep needs of its data, and report faults without raising; nothing is downloaded.

    Args:
        quick: look only whether images and regions are present, and do not read them.
        captions: raises a `DataError` for captions that a model cannot read.
        words: also say what concerns a model that counts words.
    """
    report = DataReport(name=config.name)
    if isinstance(config, ScenesConfig):
        report.fingerprint = (scenes := open_scenes(config)).fingerprint
        for drawn in scenes.splits.values():
            report.counts(drawn.name, SplitCounts(images=drawn.num_images, captions=drawn.num_captions), None)
    elif index := _indexed(config, report, None, progress, read=not quick):
        dataset = index.dataset(config, None)
        for line in [*dataset.notes, *(dataset.word_notes if words else ())]:
            report.note("used", "note", line)
        report.fingerprint = "" if quick else dataset.fingerprint
        with listening(lambda line: report.note("captions", "note", line)):
            report.attempt("captions", partial(captions, dataset))
        if quick:
            images = (path for split in SPLIT_NAMES for path, *_ in index.statuses(split))
            empty = [f"image {path} is empty" for path in images if stamp_of(path)[:1] == [0]]
            report.content("not read (--quick)", empty)
    return report


def _indexed(
    config: DataConfig, report: DataReport, known: Index | None, progress: Progress, *, read: bool = True
) -> Index | None:
    """The index of the files as they are now, if nothing is wrong with them; each split and folder is reported.

    Args:
        report: receives what is found.
        known: an earlier index. Where the parsed files are still the same, so are the rows; images whose size and times
            are still those are not read again.
        read: without it the index has no digests.
    """
    was_enabled = gc.isenabled()
    gc.disable()  # it would visit the millions of small objects of a listing again and again, and none is in a cycle
    try:
        index = _as_before(known) or _listed(config, report)
    finally:
        if was_enabled:
            gc.enable()
    if index is None or not read:
        return index
    digests = report.attempt("content", partial(_digests, index, known, report, progress))
    if digests is None or not report.complete:
        return None
    index.columns.update(digests)
    index.about["duplicates"] = _duplicates(digests)
    report.attempt("features", partial(_check_features, index))
    report.attempt("content", partial(_check_stamps, index.about["sources"]))
    return index if report.complete else None


def _as_before(known: Index | None) -> Index | None:
    """The rows of an earlier index, if the files that were parsed are still the same, and all images are there."""
    if known is None or not known.is_current(thorough=False):
        return None
    if not all(os.path.exists(path) for split in SPLIT_NAMES for path, *_ in known.statuses(split)):
        return None
    statuses = {name: column.copy() for name, column in known.columns.items() if name.endswith(".status")}
    about = {name: content for name, content in known.about.items() if name != "digest"}
    return Index({**known.columns, **statuses}, about)


def _listed(config: DataConfig, report: DataReport) -> Index | None:
    """What an importer says, as an index without digests."""
    layout = report.attempt(config.root or "", partial(LAYOUTS[config.format], config))
    if layout is None:
        return None
    if layout.says:
        report.note(config.root or "", "ok", layout.says)
    listings, notes = _listings(config, layout, report)
    notes = [*filter(None, [layout.split]), *notes]
    pictures = {split: own.names for split, own in listings.items() if config.image is not None and not own.spans}
    files = find_images(layout.root, pictures, report)
    if not report.complete:
        for line in notes:  # which may say why
            report.note("used", "note", line)
        return None
    columns = dict[str, NDArray[Any]]()
    for split, listing in listings.items():
        columns |= _columns(split, listing, files, report)
    if layout.corpus:
        columns |= Texts.of(layout.corpus).columns("corpus")
    about: dict[str, Any] = {"root": str(layout.root), "sources": layout.files, "notes": notes}
    about |= {"duplicates": [], "unspaced": []}
    for kind in ("features", "texts"):
        arrays = {split: getattr(listing, kind) for split, listing in listings.items()}
        about[kind] = {split: asdict(array) for split, array in arrays.items() if array is not None}
    own = [] if about["texts"] else [listings[split].captions for split in COUNTED]
    counted = list(chain.from_iterable(chain.from_iterable(own)))
    if whole := unspaced(counted):
        about["unspaced"].append(
            f"{whole:,} of {len(counted):,} captions of train and val are in a script without spaces, where "
            "a sentence counts as one word; a text encoder of transformers knows its parts (model.text.encoder)"
        )
    notes += _remarks([] if about["texts"] else [listing.captions for listing in listings.values()])
    if twice := sum(len(one) - len({*one}) for listing in listings.values() for one in listing.captions):
        notes.append(f"captions that repeat another of the same image, and count each time: {twice:,}")
    of_images = [text for own in listings["test"].captions if not about["texts"] for text in {*own}]
    if of_images and (again := 1 - len({*of_images}) / len(of_images)) > 0.1:
        notes.append(f"{100 * again:.0f} % of the test captions repeat another image's, which recall counts as wrong")
    words, of_test = word_counts(counted), Counter[int]()
    about["words"] = list(Counter(words.values()).items())
    for word, times in word_counts(chain.from_iterable(listings["test"].captions if counted else ())).items():
        of_test[words[word]] += times
    about["words_of_test"] = list(of_test.items())
    return Index(columns, about) if report.complete else None


def _remarks(splits: Sequence[Sequence[Sequence[str]]]) -> Iterator[str]:
    """What is to be said of captions that look like something else."""
    captions = [caption for split in splits for one in split for caption in one]
    bare = [caption for caption in captions if not _LETTER.search(caption)]
    apart = [one for split in splits for one in split if len(one) > 2 and all(map(is_word, one))]
    beyond = [caption for caption in captions if not caption.isascii()][:1000]
    likely = [page for page in _CODE_PAGES if 2 * sum(_misread(one, page) for one in beyond) > max(len(beyond), 4)]
    broken = [text for caption in captions if (text := _broken(caption, ("cp1252", "latin-1", *likely)))]
    of = f"of {len(captions):,} captions"
    joined = Counter(found[1] for caption in captions if (found := _BETWEEN.search(html.unescape(caption))))
    for between, times in joined.most_common(1):
        if 4 * times > len(captions):
            yield f"{times:,} {of} hold {between!r}; if it stands between captions, make them a list"
    if bare:
        yield f"{len(bare):,} {of} contain no letter, such as the labels of boxes"
    if 2 * (number := sum(map(len, apart))) > len(captions):
        yield f"{number:,} {of} are one word, such as {apart[0][0]!r:.30}; if a list holds their words, join it"
    if 2 * (number := sum(caption[:1] == caption[-1:] == '"' for caption in captions)) > len(captions):
        yield f"{number:,} {of} stand in quotes, which are read as words"
    if broken:
        yield f"{len(broken):,} {of} are HTML or paths, or of Excel or another encoding, such as {broken[0]!r:.30}"


def _broken(caption: str, encodings: Iterable[str]) -> str:
    """What shows that a caption is HTML, JSON, a path, or UTF-8 read in such an encoding; empty where nothing does."""
    if found := _BROKEN.search(caption):
        return found[0]
    if ";" in caption and html.unescape(caption) != caption:
        return caption
    return caption if any(_misread(caption, encoding) for encoding in encodings) else ""


def _misread(caption: str, encoding: str) -> bool:
    """Whether a caption is UTF-8 that was read in an encoding."""
    with suppress(UnicodeError):
        return not caption.isascii() and caption.encode(encoding).decode() != caption
    return False


def _listings(config: DataConfig, layout: Layout, report: DataReport) -> tuple[dict[str, Listing], list[str]]:
    """The splits in which nothing is wrong, and a line for each limit that leaves something out."""
    listings: dict[str, Listing] = {}
    max_captions, max_words = (getattr(config, name, 0) for name in ("max_captions", "max_words"))
    most = getattr(config, "max_val_images", 0)
    left_out: dict[str, list[str]] = {
        f"images beyond the first {most} (data.max_val_images)": [],
        f"captions beyond the first {max_captions} (data.max_captions)": [],
        f"words beyond the first {max_words} (data.max_words)": [],
    }
    published = published_counts(config)
    for split in SPLIT_NAMES:
        listing = report.attempt(split, layout.splits[split])
        if listing is None:
            continue
        listing, *left = _limited(listing, most if split == "val" else 0, max_captions, max_words)
        for lines, count in zip(left_out.values(), left, strict=True):
            lines += [f"{split} {count:,}"] if count else []
        listings[split] = listing
        captions = sum(map(len, listing.captions))
        report.counts(split, SplitCounts(images=len(listing.names), captions=captions), published.get(split))
        if file := listing.features:
            report.note(f"{split} features", "ok", f"shape {file.shape}, {np.dtype(file.dtype)}")
        if not listing.names and split in report.needed:
            mend = "move rows to it, or leave out all splits" if config.format == "source" else ""
            said = filter(None, [f"split {split!r} has no images", layout.split or mend])
            report.note(split, "wrong", ": ".join(said))
    return listings, [f"{what}, which are not used: {', '.join(own)}" for what, own in left_out.items() if own]


def _limited(listing: Listing, images: int, captions: int, words: int) -> tuple[Listing, int, int, int]:
    """The first images alone, of each the first captions, and of these the first words; 0 keeps all.

    Also how many images, and how many captions and words of all images, are not used.
    """
    texts, words_left_out = [own[: captions or None] for own in listing.captions], 0
    left_out = sum(map(len, listing.captions)) - sum(map(len, texts))
    if words:
        words_left_out = sum(max(0, len(text.split()) - words) for own in texts for text in own)
        texts = [[" ".join(text.split()[:words]) for text in own] for own in texts]
    kept = slice(images or None)
    parts = {name: getattr(listing, name)[kept] for name in ("names", "rows", "spans", "places")}
    images_left_out = len(listing.names) - len(parts["names"])
    return replace(listing, captions=texts[kept], **parts), images_left_out, left_out, words_left_out


def _columns(split: str, listing: Listing, files: Mapping[str, str], report: DataReport) -> dict[str, NDArray[Any]]:
    """The captions of a split with their owners, and its images' names and places; a picture is named by its file."""
    counts = np.array([len(captions) for captions in listing.captions], np.int64)
    if not counts.all():
        report.note(split, "wrong", f"image {listing.names[int(counts.argmin())]} of split {split!r} has no captions")
    columns = Texts.of(chain.from_iterable(listing.captions)).columns(f"{split}.captions")
    columns |= Texts.of([files.get(name, name) for name in listing.names]).columns(f"{split}.names")
    columns[f"{split}.owners"] = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    if listing.spans:
        columns |= Texts.of(listing.places).columns(f"{split}.places")
    elif listing.features is None:
        columns[f"{split}.status"] = np.zeros((len(counts), 3), np.int64)
    places = {f"{split}.spans": listing.spans, f"{split}.rows": listing.rows}
    return columns | {name: np.array(own, np.int64) for name, own in places.items() if own}


def _digests(index: Index, known: Index | None, report: DataReport, progress: Progress) -> dict[str, NDArray[np.uint8]]:
    """The digest of every image and feature row, that of an earlier index where a file is still the same.

    The report receives what cannot be decoded or is not finite.
    """
    readers = {name: reader for split in SPLIT_NAMES for name, reader in index.readers(split).items()}
    found = {name: np.empty((len(reader), 32), np.uint8) for name, reader in readers.items()}
    done, total, problems = 0, sum(map(len, readers.values())), list[str]()
    remarks = defaultdict[str, list[str]](list)
    own = (zip(known.statuses(one), known.columns[f"{one}.digests"], strict=False) for one in SPLIT_NAMES if known)
    earlier = dict(chain.from_iterable(own))
    # Reading, hashing and Pillow's decoding release Python's global lock, so threads use all cores.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for name, reader in readers.items():
            split, todo = name.partition(".")[0], list(range(len(reader)))
            status = index.columns.get(f"{split}.status")
            if earlier and status is not None:
                for row in todo:
                    status[row] = stamp_of(reader.label(row)) or 0
                statuses = index.statuses(split)
                todo = [row for row in todo if statuses[row] not in earlier]
                check_links(Path(index.about["root"]), map(reader.label, todo))
                for row in set(range(len(reader))).difference(todo):
                    found[name][row] = earlier[statuses[row]]
            done += len(reader) - len(todo)
            parts = [todo[start : start + _TOGETHER] for start in range(0, len(todo), _TOGETHER)]
            for part, (digests, stamps, faults, shown) in zip(parts, pool.map(reader.fresh, parts), strict=True):
                found[name][part] = np.frombuffer(digests, np.uint8).reshape(-1, 32)
                if status is not None:
                    status[part] = stamps
                problems += faults
                for label, remark in shown:
                    remarks[remark].append(label)
                progress(done := done + len(part), total)
    report.content(f"all read, {total:,}", problems)
    for remark, labels in remarks.items():
        line = f"{len(labels):,} images {remark}; the first is {labels[0]}"
        report.note("content", "note", line)
        if report.raises and remark != TURNED:
            warn(line)
    return found


def _check_stamps(parsed: Iterable[Sequence[Any]]) -> None:
    """Check that the files that were parsed still have the stamps that they had before."""
    if changed := [path for path, *stamp in parsed if stamp != stamp_of(path)]:
        raise ChangedDataError(f"{changed[0]} changed while it was indexed; start again")


def _duplicates(digests: Mapping[str, NDArray[np.uint8]]) -> list[str]:
    """What is to be said of images with the same bytes as another."""
    of_split = [Counter(map(bytes, own)) for name, own in digests.items() if name.endswith(".digests")]
    together = sum(of_split, Counter[bytes]())
    if not (again := together.total() - len(together)):
        return []
    leaks = sum(sum(one in own for own in of_split) > 1 for one in together)
    what = "images have the same bytes as another one (captions of one picture belong in one row)"
    return [f"{again:,} {what}; {leaks:,} are in two splits"]


def _check_features(index: Index) -> None:
    """Check that one model can take the features of all splits, and that no image is in two splits.

    Ids prove it where the features are equal, too. Those that count the rows, as they may in each split, do not.
    """
    for files in (index.about["features"], index.about["texts"]):
        first, *others = files.values() or [None]
        for file in others:
            if (width := file["shape"][-1]) != first["shape"][-1]:
                ours, theirs = file["path"], first["path"]
                raise DataError(f"{ours} has features of {width} numbers, but {theirs} of {first['shape'][-1]}")
    seen: dict[tuple[str, bytes], str] = {}
    for split in index.about["features"]:
        named = zip(index.texts(f"{split}.names"), index.columns[f"{split}.digests"], strict=True)
        for row, (name, digest) in enumerate(named):
            other = split if name == str(row) else seen.setdefault((name, bytes(digest)), split)
            if other != split:
                raise DataError(f"image {name} is in two splits, {other} and {split}, with the same features")
