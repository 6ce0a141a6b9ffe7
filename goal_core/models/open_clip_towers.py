"""Both towers of a model of open_clip, an optional library, by a name such as `open_clip:ViT-B-32` and a file."""

from pathlib import Path
from typing import Any

import tokenizers
import torch
from PIL import Image
from tokenizers import Regex, normalizers, pre_tokenizers
from torch import Tensor, nn

from goal_sweep.goal_core.basics.errors import ConfigError, WeightsError, first_line, nearest, warn
from goal_sweep.goal_core.basics.files import seems
from goal_sweep.goal_core.data.text import Subwords
from goal_sweep.goal_core.data.transforms import Fit
from goal_sweep.goal_core.models.backbones import ImageBackbone
from goal_sweep.goal_core.models.config import BackboneConfig
from goal_sweep.goal_core.models.heads import length_mask
from goal_sweep.goal_core.models.hub import Towers
from goal_sweep.goal_core.models.weights import OPEN_CLIP, check_finite_weights, existing


class OpenClipTowers(Towers):
    """Both towers and their projections."""

    def __init__(self, model: Any) -> None:
        nn.Module.__init__(self)
        self.model, self._longest = model, int(model.context_length)
        with torch.no_grad():
            self.num_features = self.texts(torch.zeros(1, 1, dtype=torch.long), torch.ones(1)).shape[1]

    def forward(self, pixels_B3SS: Tensor) -> Tensor:
        """Map normalised pixels (B, 3, S, S) to vectors (B, F)."""
        vectors: Tensor = self.model.encode_image(pixels_B3SS)
        return vectors

    def texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Map padded ids (B, L) to vectors (B, F). The library reads all captions padded with 0 to one length."""
        mask_BL = length_mask(lengths_B, tokens_BL.shape[1], tokens_BL.device)
        rest = 0, self._longest - tokens_BL.shape[1]
        vectors: Tensor = self.model.encode_text(nn.functional.pad(tokens_BL.masked_fill(~mask_BL, 0), rest))
        return vectors


def build_open_clip(config: BackboneConfig, *, image_size: int) -> ImageBackbone:
    """Build both towers and load their weights; both train, or neither."""
    name, path = _known(config.name), existing(Path(config.weights))
    # Of its own weights the library knows how they see pictures, of a file it does not.
    library, keys = _library(), ("mean", "std", "interpolation", "resize_mode")
    tags = (library.get_pretrained_cfg(name, tag) for tag in library.list_pretrained_tags_by_model(name))
    kinds = list(dict.fromkeys(tuple((key, one[key]) for key in keys) for one in tags))
    if len(kinds) > 1:
        warn(f"weights of {name!r} see pictures in {len(kinds)} ways; {path} is read as {dict(kinds[0])}")
    try:
        fits = dict(kinds[0]) if kinds else None
        model = library.create_model(name, pretrained=str(path), weights_only=True, force_preprocess_cfg=fits)
    except Exception as error:
        why = f"open_clip cannot load {path} as {name!r}: {first_line(error)}"
        raise WeightsError(f"{path}{what}" if (what := seems(path)) else why) from error
    check_finite_weights(model.state_dict().items(), path)
    own = model.visual.image_size
    if (side := own if isinstance(own, int) else own[0]) != image_size:
        raise ConfigError(f"{name!r} sees images of {side} px, got {image_size}; set data.image.size: {side}")
    backbone = ImageBackbone(OpenClipTowers(model), mean=model.visual.image_mean, std=model.visual.image_std)
    seen = model.visual.preprocess_cfg
    backbone.fit = Fit(image_size * (seen["resize_mode"] != "squash"), Image.Resampling[seen["interpolation"].upper()])
    return backbone


def open_clip_tokens(name: str) -> Subwords:
    """CLIP's tokenizer as open_clip has it, cut to what the model reads; it does not mend broken Unicode."""
    own = _library().get_tokenizer(_known(name))
    pieces = tokenizers.models.BPE(own.encoder, list(own.bpe_ranks), end_of_word_suffix="</w>", fuse_unk=False)
    tokenizer = tokenizers.Tokenizer(pieces)
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
    words = pre_tokenizers.Split(Regex(own.pat.pattern), behavior="removed", invert=True)
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_of])
    ends = {own.decoder[number]: number for number in (own.sot_token_id, own.eot_token_id)}
    first, last = ends
    template = tokenizers.processors.TemplateProcessing
    tokenizer.post_processor = template(single=f"{first} $A {last}", special_tokens=list(ends.items()))
    tokenizer.enable_truncation(own.context_length)
    return Subwords(tokenizer.to_str())


def _library() -> Any:
    try:
        import open_clip
    except ImportError as error:
        raise WeightsError("models of open_clip need the package open_clip_torch: pip install it") from error
    return open_clip


def _known(name: str) -> str:
    """The name by which the library knows a model that it has, and whose captions CLIP's tokenizer reads."""
    own, library = name.removeprefix(OPEN_CLIP), _library()
    if own not in (known := library.list_models()):
        raise WeightsError(f"open_clip has no model {own!r}{nearest(own, known)}")
    if library.get_model_config(own)["text_cfg"].get("hf_tokenizer_name"):
        reads = "reads captions with a tokenizer of the Hugging Face hub"
        raise WeightsError(f"{name!r} {reads}; take the model from there")
    return own
