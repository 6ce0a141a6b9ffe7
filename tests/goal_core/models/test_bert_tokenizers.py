"""The word pieces of a BERT in a folder are those of the transformers library, or the folder is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerFast
from transformers import BertConfig as Sizes

from goal_sweep.goal_core.basics.errors import DataError, WeightsError
from goal_sweep.goal_core.data.text import SPECIAL_PIECES
from goal_sweep.goal_core.models import BertConfig
from goal_sweep.goal_core.models.hub import bert_wordpieces

PIECES = [*SPECIAL_PIECES, *"Apple apple May may café cafe x ##y - y x-y 红 旗 红旗 ##旗 a".split()]
TEXTS = ["Apple May café", "apple may cafe", "x-y", "红旗 xy", "a may", "Zebra"]
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def folder_of(folder: Path) -> Path:
    Sizes(vocab_size=len(PIECES), max_position_embeddings=16).save_pretrained(folder)
    return folder


def trained(folder: Path, change: Callable[[Tokenizer], object] = lambda tokenizer: None, **normal: Any) -> Path:
    """A tokenizer of one's own, as people save one that they have trained."""
    tokenizer = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(**normal),
        pre_tokenizers.BertPreTokenizer(),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    change(tokenizer)
    names = {f"{name}_token": piece for name, piece in SPECIAL.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder_of(folder))
    return folder


def listed(folder: Path, **settings: Any) -> Path:
    """The library's own, of a list of pieces."""
    (file := folder_of(folder) / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    BertTokenizer(str(file), **settings).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: (folder_of(folder) / "vocab.txt").write_text("\n".join(PIECES)),
        lambda folder: listed(folder, do_lower_case=False),
        lambda folder: listed(folder, do_lower_case=True),
        lambda folder: listed(folder, do_lower_case=True, strip_accents=False),
        lambda folder: listed(folder, do_lower_case=False, tokenize_chinese_chars=False),
        lambda folder: trained(folder, lowercase=False),
        lambda folder: trained(folder, lowercase=True),
        lambda folder: trained(folder, lowercase=True, strip_accents=False),
        lambda folder: trained(folder, lowercase=False, strip_accents=True),
        lambda folder: trained(folder, handle_chinese_chars=False),
        lambda folder: trained(folder, lambda tokenizer: tokenizer.enable_padding(length=16)),
        lambda folder: (trained(folder, lowercase=False) / "vocab.txt").write_text("\n".join(PIECES)),
        lambda folder: trained(folder, lowercase=False).joinpath("tokenizer_config.json").unlink(),
    ],
)
def test_ids_are_those_of_the_library(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path)
    ours, theirs = bert_wordpieces(BertConfig(weights=str(tmp_path)), [], 1), AutoTokenizer.from_pretrained(tmp_path)
    assert [ours.encode(text) for text in TEXTS] == [theirs(text)["input_ids"] for text in TEXTS]
    with pytest.raises(DataError, match="18 ids, more than the 16 that the BERT reads"):
        ours.encode("a " * 16)


def changed(**parts: Any) -> Callable[[Path], Path]:
    def change(tokenizer: Tokenizer) -> None:
        for name, part in parts.items():
            setattr(tokenizer, name, part)

    return lambda folder: trained(folder, change)


def without_continuation(tokenizer: Tokenizer) -> None:
    tokenizer.model.continuing_subword_prefix = "@@"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (changed(pre_tokenizer=pre_tokenizers.WhitespaceSplit()), "another pre_tokenizer"),
        (changed(normalizer=None), "another normalizer"),
        (changed(normalizer=normalizers.Lowercase()), "another normalizer"),
        (changed(normalizer=normalizers.BertNormalizer(clean_text=False)), "another normalizer"),
        (changed(post_processor=None), "another post_processor"),
        (lambda folder: trained(folder, without_continuation), "another model"),
        (lambda folder: trained(folder, lambda tokenizer: tokenizer.add_tokens(["<person>"])), "other pieces"),
        (lambda folder: trained(folder, lambda tokenizer: tokenizer.add_tokens(["x"])), "other pieces"),
        (changed(model=models.Unigram([("[PAD]", 0.0), ("a", 0.0)])), "other pieces"),
        (folder_of, "other pieces"),
    ],
)
def test_a_tokenizer_that_cuts_otherwise_is_refused(tmp_path: Path, make: Callable[[Path], Path], says: str) -> None:
    with pytest.raises(WeightsError) as refused:
        bert_wordpieces(BertConfig(weights=str(make(tmp_path))), [], 1)
    assert "does not cut words as BERT does" in str(refused.value)
    assert says in str(refused.value)
