"""Content hashes of datasets."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable
from dataclasses import asdict

from goal_core.data.config import ImageConfig

DECODE_VERSION = 1
"""Raised whenever the pixels or the words that a model sees of the same files would change."""


def fingerprint_of(image: ImageConfig | None, min_word_count: int, records: Iterable[object]) -> str:
    """Hash what a model sees of a dataset.

    Args:
        image: decoding, resizing and augmentation; None where features were computed before.
        min_word_count: threshold of the vocabulary.
        records: JSON-able descriptions of the data, in order; the order counts, that of an object's keys does not.

    Returns:
        The first 16 hexadecimal digits of a SHA-256.
    """
    digest = hashlib.sha256()
    header = {"decode": DECODE_VERSION, "image": image and asdict(image), "min_word_count": min_word_count}
    for record in itertools.chain([header], records):
        digest.update(json.dumps(record, sort_keys=True, separators=(",", ":")).encode())
        digest.update(b"\n")
    return digest.hexdigest()[:16]
