"""Captions to ids: the tokenizers of the frameworks."""

from goal_sweep.goal_core.data.text.vocabulary import SPECIAL_WORDS, TextVectors, Tokenizer, Vocabulary, tokenize
