"""Models of the transformers library: pairs of towers, text encoders, and BERT whole or in two halves.

Pretrained ones are given by their name on the hub or their folder.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor, nn

from goal_sweep.goal_core.basics.devices import compiled, computing
from goal_sweep.goal_core.basics.errors import ConfigError, WeightsError, first_line, nearest
from goal_sweep.goal_core.basics.files import read_json, seems
from goal_sweep.goal_core.data.text import SPECIAL_PIECES, Subwords, Wordpieces
from goal_sweep.goal_core.data.transforms import Fit
from goal_sweep.goal_core.models.backbones import CLIP_MEAN, CLIP_STD, ImageBackbone, own_module
from goal_sweep.goal_core.models.config import BackboneConfig, BertConfig
from goal_sweep.goal_core.models.heads import attention_mask, length_mask
from goal_sweep.goal_core.models.weights import check_finite_weights, text_encoders, tokenizer_named

T = TypeVar("T")
_LIKE_ROBERTA = re.compile(
    "roberta|altclip|bridgetower|camembert|data2vec|ibert|longformer|luke|markuplm|mpnet|xmod|^esm"
)
"""Kinds of text encoders that count positions on from that of padding."""


class Towers(nn.Module):
    """Both towers of a model such as CLIP or SigLIP, with their projections."""

    def __init__(self, model: Any, pad: int | None) -> None:
        super().__init__()
        self.model, text, size = model, model.config.text_config, model.config.vision_config.image_size
        self._pad = pad
        self._longest: int = text.max_position_embeddings
        # CLIP reads the state of a caption's end, which sees only what comes before; a mask would wait for the device.
        self._masks = model.config.model_type != "clip"
        with torch.no_grad():
            self.num_features = self(torch.zeros(1, 3, size, size)).shape[1]

    @property
    def own(self) -> dict[str, Tensor]:
        """The logarithm of the inverse `temperature`, and the `bias`, as far as the model has them."""
        named = {"temperature": "logit_scale", "bias": "logit_bias"}
        found = {name: getattr(self.model, attribute, None) for name, attribute in named.items()}
        return {name: tensor for name, tensor in found.items() if isinstance(tensor, nn.Parameter)}

    def forward(self, pixels_B3SS: Tensor) -> Tensor:
        """Map normalised pixels (B, 3, S, S) to vectors (B, F)."""
        return _vectors(self.model.get_image_features(pixel_values=pixels_B3SS))

    def texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Map padded ids (B, L) to vectors (B, F)."""
        mask_BL = length_mask(lengths_B, tokens_BL.shape[1], tokens_BL.device)
        if self._pad is None:
            mask = mask_BL.long() if self._masks else None
            return _vectors(self.model.get_text_features(input_ids=tokens_BL, attention_mask=mask))
        rest = 0, self._longest - tokens_BL.shape[1]
        padded = nn.functional.pad(tokens_BL.masked_fill(~mask_BL, self._pad), rest, value=self._pad)
        return _vectors(self.model.get_text_features(input_ids=padded))


def build_dual(config: BackboneConfig, *, image_size: int) -> ImageBackbone:
    """Load both towers of a pretrained model; both train, or neither."""
    from transformers import AutoModel  # two seconds of import

    model = _load(AutoModel, config.weights)
    if not hasattr(model, "get_text_features") or not hasattr(model, "get_image_features"):
        raise WeightsError(f"{config.weights!r} is a {type(model).__name__}, which does not have two towers")
    if (own := getattr(model.config.vision_config, "image_size", None)) is None:
        raise WeightsError(f"{config.weights!r} takes pictures of any size; only models of one size are known")
    if own != image_size:
        raise ConfigError(f"{config.weights!r} sees images of {own} px, got {image_size}; set data.image.size: {own}")
    settings = _settings_of(config.weights, "preprocessor_config.json")
    settings = settings or _settings_of(config.weights, "processor_config.json").get("image_processor", {})
    scales = settings.get("do_rescale", True) and abs(255 * settings.get("rescale_factor", 1 / 255) - 1) < 1e-3
    if not (scales and settings.get("do_normalize", True)):
        raise WeightsError(
            f"the processor of {config.weights!r} does not divide by 255 and normalise; only that is known"
        )
    mean, std = settings.get("image_mean", CLIP_MEAN), settings.get("image_std", CLIP_STD)
    # SigLIP reads the last state of captions that are padded to the full length, with nothing masked. With what, only
    # its tokenizer knows: the configuration of many a SigLIP names another id.
    pad = _tokenizer_of(config.weights)[1] if model.config.model_type.startswith("siglip") else None
    backbone = ImageBackbone(Towers(model, pad), mean=mean, std=std)
    backbone.fit = _fit_of(settings, image_size)
    return backbone


def _fit_of(settings: dict[str, Any], side: int) -> Fit | None:
    """How a processor fits pictures to a square of so many pixels; None where it is in none of the known ways."""
    size: Any = settings.get("size") if settings.get("do_resize", True) else None
    crops = settings.get("do_center_crop")
    with suppress(TypeError, KeyError, ValueError):
        resampling = Image.Resampling(settings.get("resample", Image.Resampling.BICUBIC))
        if size == {"height": side, "width": side} or (size == side and not crops):
            return Fit(0, resampling)
        shorter = size["shortest_edge"] if isinstance(size, dict) else size
        if crops is not False and shorter >= side:
            return Fit(shorter, resampling)
    return None


def build_encoder(weights: str, vocab_size: int) -> nn.Module:
    """A text encoder for :func:`word_states`: one of one's own, or a pretrained one of the library."""
    if weights in text_encoders:
        encoder = own_module(text_encoders[weights], vocab_size=vocab_size)
    else:
        from transformers import AutoModel, AutoModelForTextEncoding

        try:
            encoder = _load(AutoModelForTextEncoding, weights)
        except WeightsError:  # as of a kind that this list of the library lacks
            encoder = _load(AutoModel, weights)
    try:
        with torch.no_grad():
            shape = word_states(encoder, torch.ones(1, 2, dtype=torch.long), torch.tensor([2])).shape
    except Exception as error:
        raise WeightsError(f"{weights!r} is a {type(encoder).__name__}, which gives no states of words") from error
    if shape != (1, 2, width := states_width(encoder)):
        raise WeightsError(f"{weights!r} gives states of shape {tuple(shape)} of two words, not {width} each")
    return encoder


def states_width(encoder: Any) -> int:
    """Numbers that a text encoder gives for a word."""
    return int(encoder.config.hidden_size if hasattr(encoder, "config") else encoder.num_features)


def word_states(encoder: Any, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
    """The last states (B, L, W) of padded captions by a text encoder of the library or of one's own."""
    is_bert = hasattr(encoder, "config") and encoder.config.model_type == "bert"
    mask = (attention_mask if is_bert else length_mask)(lengths_B, tokens_BL.shape[1], tokens_BL.device)
    run = _program() if getattr(encoder, "compiles", False) else _states
    with computing(encoder, tokens_BL.device):
        return run(encoder, tokens_BL, mask).float()


@cache
def _program() -> Callable[..., Tensor]:
    """One program for all encoders of a kind, whose weights it takes as arguments."""
    return compiled(_states, "text encoder")


def _states(encoder: Any, tokens_BL: Tensor, mask: Tensor) -> Tensor:
    if not hasattr(encoder, "config"):
        own: Tensor = encoder(tokens_BL, mask)
        return own
    states: Tensor = encoder(input_ids=tokens_BL, attention_mask=mask).last_hidden_state
    return states


def tokenizer_of(encoder: str, words: Callable[[], T]) -> T | Subwords:
    """The tokenizer of a text encoder; one of one's own that names none reads the captions' words."""
    named = tokenizer_named(encoder)
    return subwords_of(named) if named else words()


def subwords_of(weights: str) -> Subwords:
    """The tokenizer of a model of the library, which cuts captions to what the model can read."""
    sizes, (tokenizer, _) = _sizes_of(weights), _tokenizer_of(weights)
    text = getattr(sizes, "text_config", sizes)
    if (rows := getattr(text, "vocab_size", math.inf)) <= (highest := max(tokenizer.get_vocab().values())):
        raise WeightsError(f"{weights!r} embeds ids below {rows}, but its tokenizer gives ids up to {highest}")
    if sizes.model_type == "clip" and (ids := tokenizer.encode("a photo").ids):
        end = max(ids) if text.eos_token_id == 2 else text.eos_token_id  # OpenAI's own say 2 for the highest id
        if ids[-1] != end:
            reads = f"but the text tower reads one at the id {end} (eos_token_id; 2 there means the highest id)"
            raise WeightsError(f"the tokenizer of {weights!r} ends captions with the id {ids[-1]}, {reads}")
    positions = getattr(text, "max_position_embeddings", 512)
    if _LIKE_ROBERTA.search(text.model_type):
        positions -= text.pad_token_id + 1
    cut = tokenizer.truncation
    tokenizer.enable_truncation(min(positions, cut["max_length"]), direction=cut["direction"])
    return Subwords(tokenizer.to_str())


def _tokenizer_of(weights: str) -> tuple[Any, int]:
    """A model's tokenizer, of the `tokenizers` library, and the id that fills captions up."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(weights)
        backend, pad = tokenizer.backend_tokenizer, tokenizer.pad_token_id or 0
        backend.no_padding()  # which is of batches
        longest = min(tokenizer.model_max_length, 1 << 30)  # which is huge where it is not known
        backend.enable_truncation(longest, direction=tokenizer.truncation_side)
        return backend, pad
    except (OSError, ValueError, AttributeError, ImportError) as error:
        raise _unread("the tokenizer of", weights, error) from error


def build_bert(config: BertConfig, *, vocab_size: int) -> nn.Module:
    """A `BertModel` without pooler, or another text encoder; torch's global generator draws `random` weights."""
    from transformers import BertConfig as Sizes  # two seconds of import that `status` and `plan` should not pay
    from transformers import BertModel

    if config.weights == "random":
        widths = {"hidden_size": config.width, "intermediate_size": 4 * config.width, "vocab_size": vocab_size}
        sizes = Sizes(num_hidden_layers=config.layers, num_attention_heads=config.heads, **widths)
        fresh: nn.Module = BertModel(sizes, add_pooling_layer=False)
        return fresh
    if not is_bert(config.weights):
        return build_encoder(config.weights, vocab_size)
    model: nn.Module = _load(BertModel, config.weights, add_pooling_layer=False)
    rows: Any = model.config.vocab_size  # type: ignore[union-attr]  # a BertModel has it
    if rows < vocab_size:
        raise WeightsError(f"BERT {config.weights!r} embeds {rows} word pieces, but its vocabulary has {vocab_size}")
    return model


def split_bert(config: BertConfig, *, vocab_size: int, fusion_layer: int, image_width: int) -> tuple[nn.Module, Any]:
    """A BERT split in two: a `BertModel` of the lower layers, and one without embeddings of the upper layers.

    Each of these has cross-attention to an image's tokens (B, R, F), which no file contains: torch's global generator
    draws it.
    """
    from transformers import BertModel

    text: Any = build_bert(config, vocab_size=vocab_size)
    layers = text.config.num_hidden_layers
    if not 0 < fusion_layer < layers:
        must = f"leave at least one of BERT's {layers} layers to see the image"
        raise ConfigError(f"fusion_layer must {must}, got {fusion_layer}")
    sizes = deepcopy(text.config)
    sizes.num_hidden_layers, sizes.vocab_size = layers - fusion_layer, 1  # its embeddings are discarded
    sizes.is_decoder = sizes.add_cross_attention = True
    upper: Any = BertModel(sizes, add_pooling_layer=False)
    for own, given in zip(upper.encoder.layer, text.encoder.layer[fusion_layer:], strict=True):
        # The library's cross-attention accepts only images as wide as captions.
        for name in ("key", "value"):
            fresh = nn.Linear(image_width, sizes.hidden_size)
            nn.init.normal_(fresh.weight, std=sizes.initializer_range)
            nn.init.zeros_(fresh.bias)
            setattr(own.crossattention.self, name, fresh)
        own.load_state_dict(given.state_dict(), strict=False)
        own.attention.self.is_causal = False  # captions are read in both directions, in the upper layers too
    text.encoder.layer = text.encoder.layer[:fusion_layer]
    text.config.num_hidden_layers = fusion_layer
    del upper.embeddings
    return text, upper


def bert_wordpieces(config: BertConfig, captions: Iterable[str], min_word_count: int) -> Wordpieces | Subwords:
    """The word pieces of a BERT; for `random` weights, the words of the captions; of another encoder its own ids."""
    words = partial(Wordpieces.of_captions, captions, min_word_count)
    if config.weights == "random":
        return words()
    if not is_bert(config.weights):
        return tokenizer_of(config.weights, words)
    sizes, (tokenizer, *_) = _sizes_of(config.weights), _tokenizer_of(config.weights)
    stored = json.loads(tokenizer.to_str())
    added = {one["content"] for one in stored["added_tokens"]}
    other = f"the tokenizer of {config.weights!r} does not cut words as BERT does"
    if stored["model"]["type"] != "WordPiece" or not added <= {*SPECIAL_PIECES} < {*stored["model"]["vocab"]}:
        raise WeightsError(f"{other}: it has other pieces")
    ids: dict[str, int] = stored["model"]["vocab"]
    normal = stored["normalizer"] or {}
    settings = {
        "lowercase": normal.get("lowercase", True),
        "strip_accents": normal.get("strip_accents"),
        "tokenize_chinese_chars": normal.get("handle_chinese_chars", True),
        "positions": sizes.max_position_embeddings,
    }
    found = Wordpieces(tuple(sorted(ids, key=ids.__getitem__)), **settings)
    own = json.loads(found.portable()[0].to_str())
    differ = [name for name in ("normalizer", "pre_tokenizer", "model") if own[name] != stored[name]]
    if differ or found.encode("a") != tokenizer.encode("a").ids:
        raise WeightsError(f"{other}: it has another {(*differ, 'post_processor')[0]}")
    return found


def is_bert(weights: str) -> bool:
    """Whether a text encoder is a BERT; a `WeightsError` where its configuration cannot be found."""
    return weights == "random" or (weights not in text_encoders and _sizes_of(weights).model_type == "bert")


@cache
def _sizes_of(weights: str) -> Any:
    """The configuration of a model of the library."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(weights)
    except (OSError, ValueError) as error:
        raise _unread("the text encoder", weights, error) from error


def _unread(what: str, weights: str, error: Exception) -> WeightsError:
    """Say why a folder, or a model of the hub, cannot be read."""
    if (place := Path(weights).expanduser()).is_dir():
        return WeightsError(f"cannot load {what} {weights!r}: {first_line(error)}")
    near = nearest(weights, (str(one) for one in place.parent.glob("*") if one.is_dir()))
    hub = f"no model of this name on the hub could be read: {first_line(error)}"
    return WeightsError(f"there is no folder {weights!r} beside the sweep{near}, and {hub}")


def _load(kind: Any, weights: str, **options: Any) -> Any:
    from transformers.utils import logging

    logging.disable_progress_bar()  # which would fill the logs of workers
    try:
        options |= {"use_safetensors": True, "dtype": torch.float32, "output_loading_info": True}
        model, info = kind.from_pretrained(weights, **options)
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        files = sorted(Path(weights).expanduser().glob("*.safetensors"))
        said = [f"{file}{what}" for file in files if (what := seems(file))]
        raise (WeightsError(said[0]) if said else _unread("the model", weights, error)) from error
    if lacking := sorted(name for name in info["missing_keys"] if "pooler" not in name):  # which nothing here reads
        what = f"{len(lacking):,} tensors of a {type(model).__name__}, such as {lacking[0]!r}"
        other = f"; it has others, such as {min(info['unexpected_keys'])!r}" if info["unexpected_keys"] else ""
        raise WeightsError(f"{weights!r} lacks {what}{other}")
    check_finite_weights(model.named_parameters(), repr(weights))
    return model


def _settings_of(weights: str, name: str) -> dict[str, Any]:
    """The settings in a JSON file of a model, in its folder or in the hub's cache; empty where there is none."""
    from transformers.utils import cached_file

    try:
        file = cached_file(weights, name)
    except (OSError, ValueError):
        file = None
    return (read_json(Path(file), sealed=False) if file else None) or {}


def _vectors(output: Any) -> Tensor:
    """Of a model's answer the vectors; before version 5 of the library it is nothing else."""
    vectors: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return vectors
