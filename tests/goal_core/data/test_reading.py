"""What is said of captions that a given tokenizer cuts, or whose words it hardly knows."""

from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import listening
from goal_sweep.goal_core.data.inputs import EncodedCaptions, warn_of_reading
from goal_sweep.goal_core.data.text import SPECIAL_PIECES, Tokenizer, Vocabulary, Wordpieces
from goal_sweep.goal_core.models.hub import subwords_of
from tests.helpers.tiny_models import clip_folder, encoder_folder

COLOURS = "red", "green", "blue"


def said_of(captions: list[str], tokenizer: Tokenizer, *, of_these: bool = False) -> list[str]:
    said: list[str] = []
    with listening(said.append):
        warn_of_reading([EncodedCaptions.of(captions, tokenizer)], tokenizer, of_these=of_these)
    return said


@pytest.mark.parametrize("kind", ["encoder", "clip", "x-vlm"])
def test_captions_that_are_cut_are_counted(kind: str, tmp_path: Path) -> None:
    tokenizer: Tokenizer = Wordpieces((*SPECIAL_PIECES, *COLOURS, "##s"), cleans=True)
    if kind != "x-vlm":
        tokenizer = subwords_of(str((encoder_folder if kind == "encoder" else clip_folder)(tmp_path)))
    captions = ["reds greens " * 15, "blue", "reds " * 100, "red " * (9 if kind != "x-vlm" else 29)]
    assert said_of(captions, tokenizer, of_these=True) == [
        "2 of 4 captions fill all that the model reads of one; what follows is cut"
    ]


@pytest.mark.parametrize("kind", ["vocabulary", "pieces", "encoder"])
def test_captions_that_are_hardly_known_are_counted(kind: str, tmp_path: Path) -> None:
    tokenizer: Tokenizer = Vocabulary(COLOURS) if kind == "vocabulary" else Wordpieces((*SPECIAL_PIECES, *COLOURS))
    if kind == "encoder":
        tokenizer = subwords_of(str(encoder_folder(tmp_path)))
    captions = ["rot", "สุนัข", "der Hund", "red Hund", "red", "red green Hund", ""]
    assert said_of(captions, tokenizer) == ["the model does not know half of the words or more in 4 of 7 captions"]
    assert said_of(captions, tokenizer, of_these=True) == said_of(["red green"], tokenizer) == []
