"""Captions to ids: the tokenizers of the frameworks.

Frameworks choose a tokenizer, checkpoints store it, batches and evaluation encode captions with it. Any room above may
import it; it sees no other room of `data`.
"""

from typing import TYPE_CHECKING

from goal_sweep.goal_core.basics.exports import on_first_use

if TYPE_CHECKING:
    from goal_sweep.goal_core.data.text.vocabulary import SPECIAL_WORDS, TextVectors, Tokenizer, Vocabulary, tokenize
    from goal_sweep.goal_core.data.text.wordpieces import (
        SPECIAL_PIECES,
        Subwords,
        Wordpieces,
        clean_caption,
        tokenizer_from_json,
    )
else:
    __getattr__ = on_first_use(__name__, __file__)
