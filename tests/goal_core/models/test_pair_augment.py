"""Dropped regions and changed captions against plain loops."""

from collections import Counter

import numpy as np
import pytest
import torch

from goal_sweep.goal_core.data.text import SPECIAL_PIECES, Wordpieces
from goal_sweep.goal_core.models.systems.vse_infty import PairAugment

PIECES = Wordpieces((*SPECIAL_PIECES, "red", "car", "##s", "a", "small", "."))
CAPTION = "A small red CARS zebra."


def test_regions_drop_as_in_a_plain_loop() -> None:
    augment = PairAugment(rate=0.4, wordpieces=PIECES, seed=1)
    regions = np.arange(1, 1 + 30 * 6 * 2, dtype=np.float32).reshape(30, 6, 2)
    captions = np.arange(100, 130)
    kept, lengths = augment.regions(4, captions, regions)
    for row, caption in enumerate(captions.tolist()):
        draws = np.random.Generator(np.random.PCG64(_seed("regions", caption, epoch=4))).random(6).tolist()
        seen = [r for r in range(6) if draws[r] >= 0.4] or [draws.index(max(draws))]
        chosen = [regions[row, r].tolist() for r in seen]
        assert kept[row].tolist() == chosen + [[0.0, 0.0]] * (kept.shape[1] - len(chosen))
        assert lengths[row] == len(chosen) >= 1
    assert kept.shape[1] == lengths.max()
    again, _ = augment.regions(4, captions[::-1].copy(), regions[::-1])
    assert torch.equal(again[-1], kept[0])  # a pair's draws do not depend on its batch
    share = np.mean([augment.keep_regions(1, caption, 36).mean() for caption in range(2000)])
    assert share == pytest.approx(0.6, abs=0.01)
    none = PairAugment(rate=0.999, wordpieces=PIECES, seed=1)
    assert all(none.keep_regions(1, caption, 2).sum() >= 1 for caption in range(50))


def test_words_are_what_pieces_together_stand_for() -> None:
    pieces = [[PIECES.pieces[piece] for piece in word] for word in PIECES.words(PIECES.encode(CAPTION))]
    assert pieces == [["a"], ["small"], ["red"], ["car", "##s"], ["[UNK]"], ["."]]
    assert PIECES.words(PIECES.encode("")) == []


def test_captions_change_as_in_a_plain_loop() -> None:
    augment = PairAugment(rate=0.2, wordpieces=PIECES, seed=1)
    words = PIECES.words(PIECES.encode(CAPTION))
    fates: Counter[str] = Counter()
    for caption in range(4000):
        ids = augment.caption_ids(2, caption, words)
        draws = np.random.Generator(np.random.PCG64(_seed("words", caption))).random(2 * len(words))
        fresh = np.random.Generator(np.random.PCG64(_seed("pieces", caption))).random(sum(map(len, words))).tolist()
        expected = [PIECES.pieces.index("[CLS]")]
        for index, word in enumerate(words):
            if draws[index] >= 0.2:
                fates["kept"] += 1
                expected.extend(word)
            elif draws[len(words) + index] < 0.5:
                fates["masked"] += 1
                expected.extend(PIECES.pieces.index("[MASK]") for _ in word)
            elif draws[len(words) + index] < 0.6:
                fates["replaced"] += 1
                expected.extend(int(fresh.pop(0) * len(PIECES.pieces)) for _ in word)
            else:
                fates["dropped"] += 1
        assert ids == [*expected, PIECES.pieces.index("[SEP]")]
    total = sum(fates.values())
    for fate, share in {"kept": 0.8, "masked": 0.1, "replaced": 0.02, "dropped": 0.08}.items():
        assert fates[fate] / total == pytest.approx(share, abs=0.006)


def _seed(purpose: str, caption: int, epoch: int = 2) -> int:
    from hashlib import sha256

    return int.from_bytes(sha256(f"1/{purpose}/{epoch}/{caption}".encode()).digest()[:8], "big") >> 1
