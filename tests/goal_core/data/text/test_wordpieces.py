import json
from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data.text import SPECIAL_PIECES, Wordpieces, clean_caption, tokenizer_from_json

PIECES = Wordpieces((*SPECIAL_PIECES, "red", "car", "##s", "a", "small", "."))
CAPTION = "A small red CARS zebra."


def test_wordpieces_cut_as_bert_and_survive_storage(tmp_path: Path) -> None:
    from transformers import BertTokenizer

    (tmp_path / "vocab.txt").write_text("\n".join(PIECES.pieces) + "\n")
    assert Wordpieces.from_file(tmp_path / "vocab.txt") == PIECES
    theirs = BertTokenizer(vocab={piece: index for index, piece in enumerate(PIECES.pieces)})
    for caption in (CAPTION, "", "  réd   car,cars", "x" * 200):
        assert PIECES.encode(caption) == theirs(caption)["input_ids"]
    assert tokenizer_from_json(PIECES.to_json()) == PIECES
    assert Wordpieces.of_captions(["b a a", "b c"], 2).pieces == (*SPECIAL_PIECES, "a", "b")
    with pytest.raises(DataError, match="lack"):
        tokenizer_from_json(json.dumps({**json.loads(PIECES.to_json()), "pieces": ["[PAD]", "a"]}))


def test_captions_are_cleaned_and_cut() -> None:
    assert (
        clean_caption("  A <PERSON>'s well-known, red/blue  (small) hat!\n")
        == "a persons well known red blue small hat"
    )
    assert clean_caption(" ".join(f"w{index}" for index in range(50))).split(" ")[-1] == "w29"
    assert clean_caption("?!") == ""
    pieces = Wordpieces((*SPECIAL_PIECES, "red", "car", "##s"))
    tokenizer = replace(pieces, cleans=True)
    with pytest.raises(DataError, match=r"'\?!' has no word"):
        tokenizer.encode("?!")
    assert tokenizer.encode("Red, cars!") == pieces.encode("red cars")
    assert tokenizer_from_json(tokenizer.to_json()) == tokenizer
    long = tokenizer.encode("cars " * 30)
    assert (len(long), long[0], long[-1]) == (40, pieces.encode("")[0], pieces.encode("")[1])
    with pytest.raises(DataError, match="must be a list of strings"):
        tokenizer_from_json(json.dumps({**json.loads(tokenizer.to_json()), "pieces": [1]}))


@pytest.mark.parametrize(
    "settings",
    [{"lowercase": False, "strip_accents": True}, {"strip_accents": False}, {"tokenize_chinese_chars": False}],
)
def test_the_settings_of_a_tokenizer_are_followed(settings: dict[str, bool]) -> None:
    from transformers import BertTokenizer

    pieces = (*SPECIAL_PIECES, "Rot", "rot", "möbel", "mobel", "Mobel", "犬", "犬が", "が")
    own = Wordpieces(pieces, **settings)
    given = {"do_lower_case" if name == "lowercase" else name: value for name, value in settings.items()}
    theirs = BertTokenizer(vocab={piece: index for index, piece in enumerate(pieces)}, **given)
    for caption in ("Möbel Rot", "möbel rot", "犬が 犬"):
        assert own.encode(caption) == theirs(caption)["input_ids"]
    assert tokenizer_from_json(own.to_json()) == own


def test_a_caption_that_is_longer_than_the_bert_reads_is_refused() -> None:
    short = replace(PIECES, positions=6)
    assert len(short.encode("a small red car")) == 6
    with pytest.raises(DataError, match="has 7 ids, more than the 6 that the BERT reads"):
        short.encode("a small red cars")
