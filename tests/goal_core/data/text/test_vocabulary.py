import json
from collections import Counter

import numpy as np
import pytest

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data.inputs import EncodedCaptions
from goal_sweep.goal_core.data.text import Vocabulary, tokenizer_from_json
from goal_sweep.goal_core.data.words import tokenize, word_counts
from tests.helpers.properties import given, st

CORPUS = ["a cat on a mat", "A cat, a dog!", "two cats"]
FLAG = "\U0001f3f4\U000e0067\U000e0062\U000e007f"


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A man riding a Wave.", "a man riding a wave ."),
        ("The dog's ball, isn't it?", "the dog 's ball , is n't it ?"),
        ("they're can't we'll I'd I've I'm", "they 're ca n't we 'll i 'd i 've i 'm"),
        ("cannot see", "can not see"),
        ("a black-and-white t-shirt", "a black-and-white t-shirt"),
        ("bird's-eye jack-o'-lantern 10:30am 3.5mm a dog's", "bird's-eye jack-o'-lantern 10:30am 3.5mm a dog 's"),
        ("5 o'clock; 1,000 men at 12:30, 3.5 m", "5 o'clock ; 1,000 men at 12:30 , 3.5 m"),
        ("the U.S. flag...", "the u.s. flag ..."),
        ('children\'s toys (red) & "blue" -- $5', 'children \'s toys ( red ) & " blue " -- $ 5'),
        ("two boys' bikes", "two boys ' bikes"),
        ("the man’s café", "the man 's café"),
        ("cafe\u0301", "café"),
        ("two\tmen \n stand\u00a0still", "two men stand still"),
        ("家族 family", "家族 family"),
        ("हिन्दी में लिखा।", "हिन्दी में लिखा ।"),
        ("ஒரு பூனை, தூங்குகிறது", "ஒரு பூனை , தூங்குகிறது"),
        ("الوَلَدُ يَلْعَبُ", "الوَلَدُ يَلْعَبُ"),
        ("הַיֶּלֶד שָׁר", "הַיֶּלֶד שָׁר"),
        ("q\u0303ara n\u0303", "q\u0303ara \u00f1"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("a \u200d dog\u200f, a\u00adway\ufeff", "a dog , away"),
        ("love \u2764\ufe0f!", "love \u2764 !"),
        (
            "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f44d",
            "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d",
        ),
        ("1½ cups, 2²", "1½ cups , 2²"),
        (f"red\u200bcar {FLAG}\U0001f3f4dog\U000e0067", f"red car {FLAG} \U0001f3f4 dog"),
        ('col·lecció · l·l צה״ל ג׳ירפה צה"ל "שלום"', 'col·lecció · l·l צה״ל ג׳ירפה צה"ל " שלום "'),
        ("ի՞նչ o‘zbek ‘dog’ it‘s black‑and‑white a‐b", "ի՞նչ o'zbek ‘ dog ' it 's black-and-white a-b"),
        ("   ", ""),
    ],
)
def test_tokenize(caption: str, words: str) -> None:
    assert tokenize(caption) == words.split()


@given(st.text())
def test_tokenize_loses_no_letter_or_digit_and_gives_no_blank(caption: str) -> None:
    words = tokenize(caption)
    assert all(word and not any(sign.isspace() for sign in word) for word in words)
    assert tokenize(" ".join(caption.split())) == words
    assert sum(sign.isascii() and sign.isalnum() for sign in "".join(words)) >= sum(
        sign.isascii() and sign.isalnum() for sign in caption
    ) - sum(not sign.isascii() for sign in caption)


def test_words_are_ordered_by_count_then_alphabet() -> None:
    vocabulary = Vocabulary.build(CORPUS, 1)
    assert vocabulary.words == ("a", "cat", "!", ",", "cats", "dog", "mat", "on", "two")
    assert len(vocabulary) == 13


def test_rare_words_become_unknown() -> None:
    vocabulary = Vocabulary.build(CORPUS, 2)
    assert vocabulary.words == ("a", "cat")
    assert vocabulary.encode("A dog, a cat") == [1, 4, 3, 3, 4, 5, 2]
    assert vocabulary.encode("") == [1, 2]


def test_a_caption_cannot_spell_a_special_word() -> None:
    vocabulary = Vocabulary.build(["<pad> <unk> words"], 1)
    assert set(vocabulary.words) == {"<", ">", "pad", "unk", "words"}


def test_a_corpus_without_frequent_words_is_refused() -> None:
    with pytest.raises(DataError, match=r"no word occurs 9 times .* \(9 different words\); lower min_word_count"):
        Vocabulary.build(CORPUS, 9)


def test_json_round_trip_keeps_ids() -> None:
    vocabulary = Vocabulary.build([*CORPUS, "café 家族"], 1)
    again = tokenizer_from_json(vocabulary.to_json())
    assert again == vocabulary
    assert again.encode("a café") == vocabulary.encode("a café")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        (json.dumps({"format": "goal-vocabulary-1", "words": ["a"], "more": 1}), "must be an object"),
        (json.dumps({"format": "goal-vocabulary-9", "words": ["a"]}), "must be an object"),
        (json.dumps({"format": "goal-vocabulary-1", "words": ["a", 1]}), "list of strings"),
        (json.dumps({"format": "goal-vocabulary-1", "words": []}), "empty"),
        (json.dumps({"format": "goal-vocabulary-1", "words": ["a", "b", "a"]}), "twice: a"),
        (json.dumps({"format": "goal-vocabulary-1", "words": ["<pad>"]}), "twice: <pad>"),
    ],
)
def test_json_of_anything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        tokenizer_from_json(text)


def test_words_are_counted_as_they_are_cut() -> None:
    captions = ["Don't stop, don't!", "A man's café, a man’s hat", "ΟΔΟΣ\nυ.σ.", ""]
    assert word_counts(captions) == Counter(word for caption in captions for word in tokenize(caption))


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
