from __future__ import annotations

import numpy as np

from goal_sweep.goal_core.data.captions import EncodedCaptions
from goal_sweep.goal_core.data.text.vocabulary import Vocabulary

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
