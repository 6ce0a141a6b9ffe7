from __future__ import annotations

import numpy as np

from goal_sweep.goal_core.data.captions import EncodedCaptions
from goal_sweep.goal_core.data.text.vocabulary import Vocabulary
from tests.helpers.properties import given, st

CORPUS = ["a cat on a mat", "A cat, a dog!", "two cats"]


def test_encoded_captions_pad_to_the_longest_of_the_batch() -> None:
    vocabulary = Vocabulary.build(CORPUS, 1)
    encoded = EncodedCaptions.of([*CORPUS, ""], vocabulary)
    assert len(encoded) == 4
    assert encoded.lengths.tolist() == [7, 8, 4, 2]
    tokens, lengths = encoded.batch(np.array([3, 0, 2]))
    assert lengths.tolist() == [2, 7, 4]
    assert tokens.tolist() == [
        [1, 2, 0, 0, 0, 0, 0],
        vocabulary.encode(CORPUS[0]),
        [*vocabulary.encode(CORPUS[2]), 0, 0, 0],
    ]
    assert str(tokens.dtype) == str(lengths.dtype) == "torch.int64"


@given(st.lists(st.text(alphabet="ab ", max_size=9), min_size=1, max_size=12), st.integers(1, 5))
def test_batches_hold_every_caption_in_the_order_asked_for(captions: list[str], batch_size: int) -> None:
    vocabulary = Vocabulary.build(["a b"], 1)
    encoded, rows = EncodedCaptions.of(captions, vocabulary), []
    for start in range(0, len(captions), batch_size):
        tokens, lengths = encoded.batch(np.arange(start, min(start + batch_size, len(captions))))
        assert len(tokens) <= batch_size
        rows += [row[:length].tolist() for row, length in zip(tokens, lengths.tolist(), strict=True)]
    assert rows == [vocabulary.encode(caption) for caption in captions]
