"""The layouts of the published checkpoints: the model in a file, and the names it gives the model's tensors.

VSE++: ``fartashf/vsepp``, ``model_best.pth.tar``. VSE-infinity: ``woodfrog/vse_infty``, ``model_best.pth``.
X-VLM: ``zengyan-97/X-VLM``, ``.th``, pre-trained or fine-tuned for retrieval.
"""

import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.models import BackboneConfig, BertConfig, ModelConfig, TextConfig, XvlmConfig

RESNETS = {f"resnet{depth}": f"resnet{depth}.tv_in1k" for depth in (18, 34, 50, 101, 152)}
"""VSE++'s name of a backbone, and timm's; training started from torchvision's first weights."""
RESNEXTS = {"wsl": "resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "imagenet_resnext": "resnext101_32x8d.tv_in1k"}
"""VSE-infinity's name of a backbone, and timm's. Its others have strides and padding that no timm backbone has."""
SWINS = {128: "swin_base_patch4_window12_384"}
"""timm's name of X-VLM's Swin, by the width of its first stage."""
_SEQUENCES = {
    **{"conv1": "base.0", "bn1": "base.1", "layer1": "base.4", "layer2": "base.5", "layer3": "base.6"},
    "layer4": "top.0",
}
"""The parts of a ResNet, and their names in the two sequences that VSE-infinity's code runs."""
_BERT_HEAD_WIDTH = 64
"""Width of an attention head in every published BERT."""
_LAYER = re.compile(r"text(?:_encoder|\.bert)\.encoder\.layer\.(\d+)\.(crossattention\.)?")
_POSITIONS = "0, 1, 2, ..., which today's transformers computes itself"
Rules = Mapping[str, str | Callable[[ModelConfig, re.Match[str]], str]]
"""Regular expressions and what replaces a match of them, applied one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a system's files contain, and under which names."""

    system: str
    model: Callable[[Namespace, Mapping[str, Tensor], str], ModelConfig]
    """The model in a file, from the options of its training, its tensors and its name for messages."""
    words: str
    """The word embedding, which shows the size of the vocabulary."""
    names: Rules
    """From our name of a tensor (`heads.*`, `backbone.net.*`) to the published one."""
    encoders: tuple[str, ...] = ()
    """What to put before the names of the image and the text encoder; empty where they are not stored apart."""
    prefix: str = ""
    """What every name begins with, such as that of DataParallel; it is taken off."""
    wrapper: tuple[str, str] = ("", "")
    """A regular expression of the names that only some of the files have, and what they are called in the others."""
    leftovers: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions of the tensors that the model does not use, with the reason."""

    needs: tuple[str, ...] = ()
    """Tensors without which a file is of something else."""
    usual: Mapping[str, object] = field(default_factory=dict)
    """The options that change the model, and their values in the models that can be converted."""

    def check(self, options: Namespace, tensors: Mapping[str, Tensor], source: str) -> None:
        """Check that a file is of this system, trained as usual; a `WeightsError` says why not."""
        if missing := [name for name in (self.words, *self.needs) if name not in tensors]:
            raise WeightsError(f"{source} is not a checkpoint of {self.system}: it lacks {' and '.join(missing)}")
        for name, usual in self.usual.items():
            if (value := getattr(options, name, usual)) != usual:
                raise WeightsError(f"{source} was trained with {name} = {value!r}; only {usual!r} can be converted")

    def published_name(self, model: ModelConfig, name: str) -> str:
        """The published name of one of our tensors."""
        for rule, replacement in self.names.items():
            name = re.sub(rule, replacement if isinstance(replacement, str) else partial(replacement, model), name)
        return name


def _one_of(table: Mapping[Any, str], key: object, what: str, source: str) -> str:
    """Timm's name of a published backbone."""
    if key not in table:
        raise WeightsError(f"{source} has the {what} {key!r}; only {', '.join(map(str, table))} can be converted")
    return table[key]


def _vsepp(options: Namespace, tensors: Mapping[str, Tensor], source: str) -> ModelConfig:
    if not any(name.startswith("cnn.") for name in tensors):
        raise WeightsError(f"{source} is a VSE++ model of precomputed features: it has no image network to convert")
    name = _one_of(RESNETS, getattr(options, "cnn_type", None), "image network", source)
    backbone, embed_dim = BackboneConfig(name=name, weights="random"), len(tensors["fc.weight"])
    text = TextConfig(word_dim=tensors["embed.weight"].shape[1])
    return ModelConfig(backbone=backbone, text=text, embed_dim=embed_dim)


def _vse_infty(options: Namespace, tensors: Mapping[str, Tensor], source: str) -> ModelConfig:
    kind = getattr(options, "precomp_enc_type", None)
    if kind == "basic":
        backbone = BackboneConfig(name="butd_region", weights="precomputed")
    elif kind == "backbone":
        name = _one_of(RESNEXTS, getattr(options, "backbone_source", None), "backbone", source)
        backbone = BackboneConfig(name=name, weights="random")
    else:
        raise WeightsError(f"{source} has precomp_enc_type = {kind!r}; only 'basic' and 'backbone' can be converted")
    bert, embed_dim = _bert(_layers(tensors), tensors[VSE_INFTY.words].shape[1]), len(tensors["image.fc.weight"])
    return ModelConfig(framework="vse_infty", backbone=backbone, embed_dim=embed_dim, bert=bert)


def _xvlm(options: Namespace, tensors: Mapping[str, Tensor], source: str) -> ModelConfig:
    patches = tensors.get("vision_encoder.patch_embed.proj.weight", ())
    name = _one_of(SWINS, len(patches), "image encoder of width", source)
    fused = _layers(tensors, that_see_images=True)
    if not fused:
        raise WeightsError(f"{source} is not a checkpoint of X-VLM: no layer of its BERT sees the image")
    backbone, xvlm = BackboneConfig(name=name, weights="random"), XvlmConfig(fusion_layer=min(fused))
    bert, embed_dim = _bert(_layers(tensors), tensors[XVLM.words].shape[1]), len(tensors["vision_proj.weight"])
    return ModelConfig(framework="xvlm", backbone=backbone, embed_dim=embed_dim, bert=bert, xvlm=xvlm)


def _layers(tensors: Mapping[str, Tensor], *, that_see_images: bool = False) -> set[int]:
    """The numbers of BERT's layers, or of those with cross-attention to the image."""
    matches = (_LAYER.match(name) for name in tensors)
    return {int(match[1]) for match in matches if match and (match[2] or not that_see_images)}


def _bert(layers: Iterable[int], width: int) -> BertConfig:
    heads = max(1, width // _BERT_HEAD_WIDTH)
    return BertConfig(weights="random", layers=max(layers, default=0) + 1, width=width, heads=heads)


VSEPP = Layout(
    system="VSE++",
    model=_vsepp,
    words="embed.weight",
    needs=("fc.weight", "fc.bias"),
    usual={"use_abs": False, "no_imgnorm": False, "measure": "cosine", "num_layers": 1},
    encoders=("", ""),
    names={r"^backbone\.net\.": "cnn.module.", r"^heads\.(image|text)\.": ""},
)
VSE_INFTY = Layout(
    system="VSE-infinity",
    model=_vse_infty,
    words="text.bert.embeddings.word_embeddings.weight",
    needs=("image.fc.weight",),
    usual={"no_imgnorm": False, "no_txtnorm": False},
    encoders=("image.", "text."),
    prefix="module.",
    wrapper=(r"^image\.image_encoder\.", "image."),
    names={
        r"^heads\.": "",
        r"pool\.rnn\.": "gpool.gru.",
        r"pool\.score\.": "gpool.linear.",
        r"^text\.fc\.": "text.linear.",
        r"^image\.mlp\.first\.": "image.mlp.layers.0.",
        r"^image\.mlp\.second\.": "image.mlp.layers.1.",
        r"^image\.mlp\.norm\.": "image.mlp.bns.0.",
        **{rf"^backbone\.net\.{part}\.": f"image.backbone.{place}." for part, place in _SEQUENCES.items()},
    },
    leftovers={
        r"image\.mlp\.bns\.1\.": "a normalisation that the published code builds and never runs",
        r"image\.backbone\.resnet\.fc\.": "the backbone's classifier",
        r"image\.backbone\.resnet\.": "the backbone's tensors, registered a second time",
        r"text\.bert\.pooler\.": "BERT's pooler, which nothing reads",
        r"text\.bert\.embeddings\.position_ids$": _POSITIONS,
    },
)
XVLM = Layout(
    system="X-VLM",
    model=_xvlm,
    words="text_encoder.embeddings.word_embeddings.weight",
    needs=("vision_proj.weight", "itm_head.0.weight"),
    wrapper=(r"^text_encoder\.bert\.", "text_encoder."),
    names={
        # Timm halves the map at the beginning of a stage, X-VLM's Swin at the end of the stage before.
        r"^backbone\.net\.layers\.(\d+)\.(?=downsample\.)": lambda _, at: f"vision_encoder.layers.{int(at[1]) - 1}.",
        r"^backbone\.net\.": "vision_encoder.",
        # X-VLM counts the layers that see the image on from those that do not.
        r"^heads\.cross\.encoder\.layer\.(\d+)(?=\.)": lambda model, at: (
            f"text_encoder.encoder.layer.{int(at[1]) + model.xvlm.fusion_layer}"
        ),
        r"^heads\.text\.": "text_encoder.",
        r"^heads\.temperature$": "temp",
        r"^heads\.": "",
    },
    leftovers={
        r"vision_encoder\..*\.(relative_position_index|attn_mask)$": "computed anew for the size of the windows",
        r"text_encoder\.cls\.": "the head that predicts masked words",
        r"bbox_head\.": "the head that predicts boxes",
        r"text_encoder\.embeddings\.position_ids$": _POSITIONS,
    },
)
LAYOUTS: Mapping[str, Layout] = {"vsepp": VSEPP, "vse_infty": VSE_INFTY, "xvlm": XVLM}
"""By framework."""
