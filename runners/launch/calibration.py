"""How fast backbones and devices are: the numbers from which `plan` prices a sweep that has never run.

Seconds of a forward pass on a GPU: timm's benchmark of an RTX 3090 in mixed precision, channels last, torch 2.4
(github.com/huggingface/pytorch-image-models, results/benchmark-infer-amp-nhwc-pt240-cu124-rtx3090.csv, commit
aa4b5850). On a CPU: measured on one core of a 2.x GHz AMD EPYC server, fp32, torch 2.15. Sizes are timm's, without the
classifier. `swin_mini_patch8_window4` and `test_resnet` are not in the benchmark; there they have `test_byobnet`'s.
Memory: what autograd's hooks for saved tensors see, fp32, evaluation mode, torch 2.15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple


class BackboneSpeed(NamedTuple):
    """One backbone at one image size."""

    image_size: int
    """Pixels per side of the measured images."""
    params_m: float
    """Weights, in millions."""
    width: int
    """Numbers that it gives for an image or for a cell."""
    cpu_ms: float
    """Forward pass of one image on one CPU core, in milliseconds."""
    cuda_ms: float
    """The same on the GPU."""
    kept_mb: float
    """What autograd keeps of the forward pass of one image until the backward pass, in megabytes of fp32."""
    passing_mb: float
    """The largest input and output of a layer for one image, in megabytes of fp32: what a pass without gradients
    holds."""


BACKBONES: Final = {
    "resnet18": BackboneSpeed(224, 11.18, 512, 46.7, 0.089, 22.18, 6.42),
    "resnet50": BackboneSpeed(224, 23.51, 2048, 123.9, 0.268, 85.9, 6.42),
    "resnet101": BackboneSpeed(224, 42.50, 2048, 190.1, 0.437, 126.84, 6.42),
    "resnet152": BackboneSpeed(224, 58.14, 2048, 273.5, 0.623, 177.42, 6.42),
    "resnext101_32x8d": BackboneSpeed(224, 86.74, 2048, 440.4, 0.838, 246.67, 12.85),
    "vit_small_patch16_224": BackboneSpeed(224, 21.67, 384, 120.6, 0.217, 59.1, 2.42),
    "vit_base_patch16_224": BackboneSpeed(224, 85.80, 768, 443.3, 0.636, 117.56, 4.84),
    "swin_base_patch4_window7_224": BackboneSpeed(224, 86.74, 1024, 447.4, 1.133, 226.2, 12.85),
    "swin_base_patch4_window12_384": BackboneSpeed(384, 86.88, 1024, 1471.1, 4.279, 773.31, 42.47),
    "tf_efficientnet_lite0": BackboneSpeed(224, 3.37, 1280, 23.7, 0.120, 79.48, 9.63),
    "test_byobnet": BackboneSpeed(160, 0.20, 256, 2.58, 0.0105, 3.9, 1.23),
    "test_resnet": BackboneSpeed(160, 0.37, 96, 4.78, 0.0105, 5.96, 1.64),
    "test_vit": BackboneSpeed(160, 0.31, 64, 1.56, 0.0097, 2.52, 0.33),
    "swin_mini_patch8_window4": BackboneSpeed(64, 0.14, 64, 0.40, 0.0105, 0.49, 0.07),
}
"""By timm's name without the tag of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpeed:
    """What a device takes for everything but a backbone's forward pass."""

    name: str
    train_factor: float
    """Time of a training step of a backbone divided by that of a forward pass."""
    gmac_s: float
    """Seconds of training a head for 1e9 multiply-adds of its forward pass."""
    step_s: float
    """Seconds of a step of one cell besides the arithmetic: the objective, the optimiser, starting kernels."""
    fp32_factor: float
    """Time in single precision divided by that in which the device was measured."""


DEVICES: Final[dict[Literal["cpu", "cuda"], DeviceSpeed]] = {
    # train_factor: 2.8 (resnet18) to 5.8 (tf_efficientnet_lite0). gmac_s: 0.08 for wide GRUs and BERT, 0.15 for narrow
    # ones with their word vectors (emoji_vsepp). step_s: the scenes sweep's 12 ms a step.
    "cpu": DeviceSpeed(name="one AMD EPYC core", train_factor=4.0, gmac_s=0.12, step_s=0.01, fp32_factor=1.0),
    # train_factor: 3.1 (swin) to 4.0 (vit_base), timm's benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv. gmac_s: twice
    # that of training vit_base there. step_s and fp32_factor are assumed, not measured.
    "cuda": DeviceSpeed(name="an RTX 3090", train_factor=3.5, gmac_s=3e-4, step_s=0.01, fp32_factor=2.0),
}
IMAGE_LOAD_S: Final = 0.005
"""Seconds in which one core decodes and crops a photograph of 640 x 480 pixels."""
CAPTION_LENGTH: Final = 14
"""Words or word pieces of a caption, the special ones included: COCO's mean."""
NUM_WORDS: Final = 12_000
"""Words of a vocabulary that is not counted: VSE++'s on COCO has 11,755."""
BERT_PIECES: Final = 30_522
"""Word pieces of `bert-base-uncased`."""
NUM_REGIONS: Final = (36, 2048)
"""Precomputed regions of an image, and numbers of each: the published ones."""
FACTOR: Final = 3
"""An estimate from this calibration is right within about this factor on the device that it names."""
