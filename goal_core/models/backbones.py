"""Image backbones: any timm architecture, as a vector or as the cells of its last feature map; torchvision's pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from goal_sweep.goal_core.basics.devices import compiled, computing, send, set_arithmetic_of
from goal_sweep.goal_core.basics.errors import WeightsError, about, first_line, nearest, warn
from goal_sweep.goal_core.basics.files import seems
from goal_sweep.goal_core.basics.numerics import derive_seed
from goal_sweep.goal_core.basics.registry import Entry
from goal_sweep.goal_core.data.transforms import Fit
from goal_sweep.goal_core.models import weights
from goal_sweep.goal_core.models.config import BackboneConfig

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Channel means and standard deviations of CLIP's training images (Radford et al. 2021)."""
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


class ImageBackbone(nn.Module):
    """A timm model without its classifier, applied to raw pixels.

    It always runs in evaluation mode, so batch normalisation uses its running statistics in both stages (a stable
    stand-in for what VSE++'s published code does), although its weights are trained in `finetune`. Only stochastic
    depth, where it is used, follows training mode.

    Args:
        drops: whether blocks are skipped in training mode.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, net: nn.Module, *, mean: Sequence[float], std: Sequence[float], cells: bool = False, drops: bool = False
    ) -> None:
        super().__init__()
        self.net, self.cells, self._drops = net, cells, drops
        self.fit: Fit | None = None
        """How its own processor fits pictures, where it has one."""
        self._layout: torch.memory_format = torch.contiguous_format
        self._program: tuple[int, Callable[..., Tensor]] | None = None
        """For batches of how many images it is, and the program."""
        self._run_texts: Any = getattr(net, "texts", None)
        pooled = net.num_features if cells else getattr(net, "head_hidden_size", net.num_features)  # VGG, MobileNetV3
        self.num_features = int(pooled)  # type: ignore[arg-type]  # timm models all carry it
        self.register_buffer("mean", torch.as_tensor(mean).flatten().expand(3).view(1, 3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.as_tensor(std).flatten().expand(3).view(1, 3, 1, 1) * 255, persistent=False)
        self.eval()

    @property
    def texts(self) -> Any:
        """Maps padded captions and their lengths to features (B, F), where a text tower belongs to it; else None."""
        return None if self._run_texts is None else self._texts

    def _texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        with computing(self, tokens_BL.device):
            features: Tensor = self._run_texts(tokens_BL, send(lengths_B, tokens_BL.device))
        return features.float()

    @property
    def own(self) -> dict[str, Tensor]:
        """What two towers bring for a contrastive loss, by the name of its parameter; see :class:`Towers`."""
        own: dict[str, Tensor] = getattr(self.net, "own", {})
        return own

    def train(self, mode: bool = True) -> ImageBackbone:
        """Stay in evaluation mode, except for stochastic depth."""
        super().train(False)
        if mode and self._drops:
            for module in self.net.modules():
                if type(module).__name__ == "DropPath":  # importing timm for the class takes two seconds
                    module.train()
        return self

    def use_batch_statistics(self, on: bool) -> None:
        """Let batch normalisation use, and record, each batch's statistics; or return to the running ones."""
        self.net.train(on)

    def placed(
        self, device: torch.device, *, precision: str = "fp32", batch: int = 0, graph: bool = True
    ) -> ImageBackbone:
        """Move it to a device, where it computes in a precision.

        On a GPU, and where it is compiled, channels come last, as fast convolutions have them.

        Args:
            batch: so many images are computed by a compiled program, others not: each size would be compiled anew.
            graph: launch that program as one CUDA graph, where there is a GPU.
        """
        set_arithmetic_of(self, precision)
        if device.type == "cuda" or batch:
            self._layout = torch.channels_last
            self.to(memory_format=torch.channels_last)
        graph = graph and device.type == "cuda"
        self._program = (batch, compiled(self._features, "image backbone", graph=graph)) if batch else None
        texts: Any = getattr(self.net, "texts", None)
        self._run_texts = compiled(texts, "text tower") if batch and texts is not None else texts
        return self.to(device)

    def forward(self, images_B3SS: Tensor) -> Tensor:
        """Features (B, F) float32, or of L cells (B, L, F), not normalised, of RGB pixels (B, 3, S, S) uint8."""
        run: Callable[..., Tensor] = self._features
        if self._program is not None and len(images_B3SS) == self._program[0]:
            run = self._program[1]
        with computing(self, images_B3SS.device):
            return run(images_B3SS).float()

    def _features(self, images_B3SS: Tensor) -> Tensor:
        pixels = ((images_B3SS.float() - self.mean) / self.std).contiguous(memory_format=self._layout)
        features: Tensor = grid_features(self.net, pixels) if self.cells else self.net(pixels)
        return features


def grid_features(net: nn.Module, images_B3SS: Tensor) -> Tensor:
    """The cells (B, L, C), row by row, of the last feature map of normalised pixels (B, 3, S, S).

    Args:
        net: timm model: convolutional (channels first), Swin-like (channels last) or a ViT, whose class and register
            tokens are left out.
    """
    features: Tensor = net.forward_features(images_B3SS)  # type: ignore[operator]  # timm models all have it
    width = int(net.num_features)  # type: ignore[arg-type]  # timm models all carry it
    if features.ndim == 3 and features.shape[2] == width:
        return features[:, getattr(net, "num_prefix_tokens", 0) :]
    if features.ndim == 4 and features.shape[1] == width:
        return features.flatten(2).transpose(1, 2)
    if features.ndim == 4 and features.shape[3] == width:
        return features.flatten(1, 2)
    shape = tuple(features.shape)
    raise WeightsError(f"the backbone has no feature map of width {width}: its features have shape {shape}")


def build_backbone(
    config: BackboneConfig,
    *,
    image_size: int,
    seed: int,
    cells: bool = False,
    drop_path: float = 0.0,
    clip_pixels: bool = False,
) -> ImageBackbone:
    """Build a backbone with its initial weights; a `WeightsError` says what is missing or does not fit.

    Args:
        cells: return the cells of the last feature map instead of one pooled vector.
        drop_path: probability of skipping the last block in training mode, falling to 0 at the first.
        clip_pixels: normalise pixels with CLIP's mean and standard deviation instead of the architecture's own.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "backbone"))
        net: Any
        if config.name in weights.image_backbones:
            net = own_module(weights.image_backbones[config.name], image_size=image_size)
            net.pretrained_cfg = {name: getattr(net, name, value) for name, value in _IMAGENET.items()}
        elif config.name.startswith(weights.TORCHVISION):
            net = _torchvision_network(config, image_size, cells)
        else:
            net = _timm_network(config, image_size, drop_path)
    if config.weights not in weights.NAMED_WEIGHTS:
        _load_weights(net, Path(config.weights), config.name)
    cfg = net.pretrained_cfg
    mean, std = (CLIP_MEAN, CLIP_STD) if clip_pixels else (cfg["mean"], cfg["std"])
    backbone = ImageBackbone(net, mean=mean, std=std, cells=cells, drops=drop_path > 0)
    with torch.no_grad():
        shape = tuple(backbone(torch.zeros(1, 3, image_size, image_size, dtype=torch.uint8)).shape)
    if not cells and shape != (1, backbone.num_features):
        raise WeightsError(f"backbone {config.name!r} does not pool an image to one vector: it returned shape {shape}")
    return backbone


def _timm_network(config: BackboneConfig, image_size: int, drop_path: float) -> Any:
    """Timm's model without classifier; arguments and errors as for :func:`build_backbone`."""
    timm = weights.timm_library()
    weights.check_architecture(config.name)
    options: dict[str, Any] = {"num_classes": 0}
    if drop_path:
        options["drop_path_rate"] = drop_path
    if weights.pretrained_cfg(config.name).get("fixed_input_size"):
        options["img_size"] = image_size
    try:
        return timm.create_model(config.name, pretrained=config.weights == "timm", **options)
    except Exception as error:
        why = f"timm cannot build {config.name!r} for {image_size} px: {first_line(error)}"
        if config.weights == "timm":
            why = f"timm could not provide the pretrained weights of {config.name!r} ({first_line(error)}); "
            why += "set `weights` to a file's path, or connect to the network once so that timm can cache them"
            with about(f"model.backbones.{config.name}.weights"):
                raise WeightsError(why) from error
        raise WeightsError(why) from error


def _torchvision_network(config: BackboneConfig, image_size: int, cells: bool) -> Any:
    """Torchvision's model with its last linear layer, the classifier, left out; see :func:`build_backbone`."""
    from torchvision import models

    name, sizes = config.name.removeprefix(weights.TORCHVISION), {}
    pooling = models.list_models(module=models, exclude="squeezenet*")  # before they classify
    if config.name not in (known := [f"{weights.TORCHVISION}{one}" for one in pooling]):
        listed = "`torchvision.models.list_models()` lists all"
        raise WeightsError(f"unknown backbone {config.name!r}{nearest(config.name, known)}; {listed}")
    if cells:
        raise WeightsError(f"backbone {config.name!r} gives a vector of an image, and no cells; take one of timm")
    if name.startswith("vit"):
        sizes["image_size"] = image_size
    try:
        net: Any = models.get_model(name, weights=None, **sizes)
        head, linear = [(key, part) for key, part in net.named_modules() if isinstance(part, nn.Linear)][-1]
    except Exception as error:
        raise WeightsError(f"torchvision cannot build {name!r} for {image_size} px: {first_line(error)}") from error
    net.set_submodule(head, nn.Identity())
    net.num_features, net.pretrained_cfg = linear.in_features, {**_IMAGENET, "classifier": head}
    return net


def own_module(entry: Entry[Callable[..., nn.Module]], **sizes: int) -> nn.Module:
    """Build a network of one's own; a `WeightsError` where it fails or does not keep its contract."""
    try:
        net = entry.function(**sizes)
        width = int(net.num_features)  # type: ignore[arg-type]  # which its contract asks for
        if not isinstance(net, nn.Module) or width < 1:
            raise TypeError(f"gives {type(net).__name__} with num_features {width}")
    except (Exception, SystemExit) as error:
        raise WeightsError(f"plugin {entry.plugin}: {entry.name}: {first_line(error)}") from error
    return net


_INSIDE = ("state_dict", "model_state_dict", "model")
"""Where training programs keep the weights in a file with more."""
_MEANS = {"ema", "swa"}
"""Words in the name of a mean of the weights over their training, such as `state_dict_ema`."""
_WRAPPERS = ("module.", "_orig_mod.", "model.", "net.", "backbone.", "encoder.")
"""What wrappers of a model put before the names of its tensors."""


def _read_state(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            stored: dict[str, Tensor] = load_file(path)
            return stored
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if what := seems(path):
            raise WeightsError(f"{path}{what}") from error
        if isinstance(error, UnpicklingError):  # a file with code in it
            raise WeightsError(f"{path} is not a weights-only file; convert it to safetensors first") from error
        raise WeightsError(f"cannot read weights from {path}: {first_line(error)}") from error
    inside = {str(key): own for key, own in state.items() if isinstance(own, dict)} if isinstance(state, dict) else {}
    if taken := next((name for name in _INSIDE if name in inside), ""):
        state = inside.pop(taken)
        if others := [name for name in inside if name in _INSIDE or _MEANS & {*name.lower().split("_")}]:
            warn(f"weights {path}: {taken!r} is taken, not {', '.join(map(repr, others))}; save that alone to take it")
    held = [name for name, own in inside.items() if any(isinstance(one, Tensor) for one in own.values())]
    if held and not taken:
        raise WeightsError(f"{path} holds weights in {', '.join(map(repr, held))}; save the one to take by itself")
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        what = " ".join(repr(state).split())
        raise WeightsError(f"{path} holds no weights, a mapping from names to tensors, but {what:.60}")
    return state


def _load_weights(net: nn.Module, path: Path, name: str) -> None:
    """Load a file into a model without classifier; it may also contain a classifier, and must contain all else.

    What wrappers put before every name is taken off, with a word.
    """
    given, own = _read_state(weights.existing(path)), net.state_dict()
    taken = ""
    while prefix := next((one for one in _WRAPPERS if given and all(name.startswith(one) for name in given)), ""):
        if not own.keys().isdisjoint(given):
            break
        given, taken = {name.removeprefix(prefix): tensor for name, tensor in given.items()}, taken + prefix
    if taken:
        warn(f"weights {path}: all names begin with {taken!r}, which is left out")
    named = {one.partition(".")[0] for one in (name, path.name)}
    if len(named) == 2 and all(map(weights.timm_library().is_model, named)):  # as of efficientnet_b0 and its tf_
        warn(f"weights {path} have the name of another backbone than {name!r}, which may see pictures in another way")
    head = net.pretrained_cfg.get("classifier") or ()  # type: ignore[union-attr, operator]  # of timm
    heads = tuple(f"{part}." for part in ((head,) if isinstance(head, str) else head))
    if problems := weights.misfits(own, given, spare=lambda key: key.startswith(heads)):
        raise WeightsError(f"weights {path} do not fit backbone {name!r}; tensors {problems}")
    kept = {key: given[key] for key in own if key in given}
    weights.check_finite_weights(kept.items(), path)
    net.load_state_dict(kept, strict=False)
