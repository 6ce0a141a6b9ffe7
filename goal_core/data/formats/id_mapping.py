"""Raw images in VSE-infinity's tree: captions and ids in text files, and the file of each id in `id_mapping.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from goal_core.data.config import IdMappedConfig
from goal_core.data.fingerprint import fingerprint_of
from goal_core.data.formats.caption_files import CaptionFiles, precomp_folder, read_caption_files, split_files
from goal_core.data.formats.image_files import FileReader, find_images
from goal_core.data.split import SPLIT_NAMES, Split, split_of
from goal_core.errors import DataError


def load_id_mapped(config: IdMappedConfig) -> tuple[dict[str, Split], str]:
    """Read captions, ids and the mapping, and check that every image file exists.

    The fingerprint covers split, file name, captions and bytes of each image.

    Returns:
        The splits train, val and test, and the fingerprint.

    Raises:
        DataError: a file is missing or malformed, an id has no file name, an image file is missing, or an image is
            listed twice. One line that says which.
    """
    root = Path(config.root).expanduser()
    folder, words = precomp_folder(root), split_files(config.test_file)
    texts = {name: read_caption_files(folder, words[name]) for name in SPLIT_NAMES}
    texts["val"] = texts["val"].first(config.max_val_images)
    path = root / "id_mapping.json"
    mapping = read_id_mapping(path)
    names = {name: file_names(texts[name].ids, mapping, path) for name in SPLIT_NAMES}
    check_once(names, path)
    files = {name: find_images(root, names[name]) for name in SPLIT_NAMES}
    described = (
        [name, "/".join(filter(None, place)), captions, file.size]
        for name in SPLIT_NAMES
        for place, captions, file in zip(names[name], texts[name].captions, files[name], strict=True)
    )
    fingerprint = fingerprint_of(config.image, config.min_word_count, described)
    readers = {name: FileReader(paths=tuple(file.path for file in files[name])) for name in SPLIT_NAMES}
    return {name: _split(name, texts[name], readers[name]) for name in SPLIT_NAMES}, fingerprint


def read_id_mapping(path: Path) -> Mapping[str, str]:
    """The file name of each image id, relative to the images' folder.

    Raises:
        DataError: the file is missing, or is no JSON object from ids to relative paths.
    """
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(stored, dict) or not stored:
        raise DataError(f"{path} must be an object from image ids to file names")
    for name, place in stored.items():
        if not isinstance(place, str) or not place or place.startswith("/") or ".." in PurePosixPath(place).parts:
            raise DataError(f"{path}: id {name} must have a file name below the images' folder, got {place!r}")
    return stored


def file_names(ids: Sequence[str], mapping: Mapping[str, str], path: Path) -> list[tuple[str, str]]:
    """Folder (perhaps empty) and file name of each id.

    Raises:
        DataError: ids are not in the mapping; the message counts them and names the first.
    """
    unknown = [name for name in ids if name not in mapping]
    if unknown:
        raise DataError(
            f"{path} has no file name for {len(unknown)} of {len(ids)} image ids, the first is {unknown[0]}"
        )
    places = [PurePosixPath(mapping[name]) for name in ids]
    return [("/".join(place.parts[:-1]), place.name) for place in places]


def check_once(names: Mapping[str, Sequence[tuple[str, str]]], path: Path) -> None:
    """Check that no image file is used twice, in one split or in two.

    Raises:
        DataError: an image is listed twice.
    """
    seen: dict[tuple[str, str], str] = {}
    for split, places in names.items():
        for place in places:
            if place in seen:
                file = "/".join(filter(None, place))
                raise DataError(f"image {file} of {path} is listed twice: in splits {seen[place]} and {split}")
            seen[place] = split


def _split(name: str, texts: CaptionFiles, reader: FileReader) -> Split:
    return split_of(name, texts.captions, reader)
