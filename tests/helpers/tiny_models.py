"""Tiny models of the transformers library with random weights, in folders as the library saves them."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPConfig,
    CLIPModel,
    DistilBertConfig,
    DistilBertModel,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipModel,
)

WORDS = [
    "<pad>",
    "<start>",
    "<unk>",
    "<end>",
    *"a an the of and on with in red green blue small large circle square".split(),
]
SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def save_tokenizer(folder: Path, **settings: Any) -> None:
    """Whole words; captions end with `<end>`."""
    ids = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<start> $A <end>", special_tokens=[("<start>", 1), ("<end>", 3)]
    )
    special: dict[str, Any] = {"pad_token": "<pad>", "bos_token": "<start>", "eos_token": "<end>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special, **settings).save_pretrained(folder)


def clip_folder(folder: Path, seed: int = 0) -> Path:
    """A CLIP of 32 px and 12 numbers."""
    torch.manual_seed(seed)
    text = {**SIZES, "vocab_size": len(WORDS), "max_position_embeddings": 12, "eos_token_id": 3, "pad_token_id": 0}
    vision = {**SIZES, "image_size": 32, "patch_size": 16}
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def siglip_folder(folder: Path) -> Path:
    """A SigLIP of 32 px and 16 numbers, whose captions are padded to 12 ids, and not with what its settings name."""
    torch.manual_seed(0)
    text = {**SIZES, "vocab_size": len(WORDS), "max_position_embeddings": 12, "eos_token_id": 3, "pad_token_id": 1}
    vision = {**SIZES, "image_size": 32, "patch_size": 16}
    SiglipModel(SiglipConfig(text_config=text, vision_config=vision)).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def encoder_folder(folder: Path) -> Path:
    """A DistilBERT, which is a text encoder and no BERT."""
    torch.manual_seed(0)
    sizes = DistilBertConfig(
        vocab_size=len(WORDS), dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=12, dropout=0.0,
        attention_dropout=0.0,
    )  # fmt: skip
    DistilBertModel(sizes).save_pretrained(folder)
    save_tokenizer(folder)
    return folder
