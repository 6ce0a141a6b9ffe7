"""What identifies the published weights that a model starts from. Reading it needs no torch, except for timm's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from goal_sweep.goal_core.basics.errors import WeightsError, nearest
from goal_sweep.goal_core.basics.registry import Registry
from goal_sweep.goal_core.models.config import BackboneConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

NAMED_WEIGHTS = ("timm", "random", "precomputed")
OPEN_CLIP = "open_clip:"
"""Begins the name of towers of open_clip, such as `open_clip:ViT-B-32`."""
TORCHVISION = "torchvision:"
"""Begins the name of a backbone of torchvision, such as `torchvision:resnet50`."""
image_backbones: Registry[Callable[..., nn.Module]] = Registry("image backbone")
"""Networks of one's own. Each is called with `image_size`, the pixels per side, and gives a module that maps images
(B, 3, S, S), normalised by its `mean` and `std` or else ImageNet's, to features (B, `num_features`). A framework that
takes the cells of an image calls its `forward_features`, which gives (B, C, H, W) or (B, L, C)."""
text_encoders: Registry[Callable[..., nn.Module]] = Registry("text encoder")
"""Text encoders of one's own. Each is called with `vocab_size`, and gives a module that maps padded ids (B, L) and
whether each is one (B, L) bool to states of words (B, L, `num_features`). They are words of the captions, or what the
tokenizer of a model of the hub makes of them, if the class names one as its `tokenizer`."""
_NAMED = 3
"""How many names of each kind a message shows."""


def check_architecture(name: str) -> None:
    """Check that timm knows an architecture; a `WeightsError` suggests the closest."""
    timm = timm_library()
    if not timm.is_model(name.split(".")[0]):
        known = timm.list_models()
        own = "One of your own needs its plugin: `plugins` in a sweep, --plugin where a model is used"
        listed = f"`timm.list_models()` lists all {len(known)}. {own}"
        raise WeightsError(f"unknown timm backbone {name!r}{nearest(name.partition('.')[0], known)}; {listed}")


def weights_id(config: BackboneConfig) -> str:
    """The weights' identifier in the cell id: `random`, `timm:NAME.TAG`, or `sha256:` and 16 digits of a file.

    A backbone of one's own adds the hash of its plugin.
    """
    own = f" plugin:{image_backbones[config.name].code}" if config.name in image_backbones else ""
    if (own or config.name.startswith(TORCHVISION)) and config.weights == "timm":
        raise WeightsError(f"backbone {config.name!r} is not timm's; set its `weights` to `random` or to a file")
    if config.weights == "random":
        return f"random{own}"
    if config.weights == "timm":
        check_architecture(config.name)
        return f"timm:{config.name.split('.')[0]}.{pretrained_cfg(config.name).get('tag') or 'default'}"
    return f"sha256:{file_sha256(existing(Path(config.weights)))[:16]}{own}"


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, 64 hex digits; read again only when the file has changed.

    Size and time of writing may be those of the file that it replaces. The time of the last change of any kind, which
    the system alone sets, is not.
    """
    stat = path.stat()
    return _sha256(path, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def misfits(own: Mapping[str, Tensor], given: Mapping[str, Tensor], spare: Callable[[str], object]) -> str:
    """How tensors differ from those of a model, in words; empty where they fit.

    Args:
        own: the model's by name, of which only shapes and kinds of numbers are used. Counters of batches that a
            normalisation has seen may be missing: nothing reads them, and old files lack them.
        spare: tells of a name that the model does not have whether it may be there.
    """
    missing = sorted(name for name in own.keys() - given.keys() if not name.endswith("num_batches_tracked"))
    unexpected = sorted(name for name in given.keys() - own.keys() if not spare(name))
    other = [name for name, tensor in own.items() if name in given and given[name].shape != tensor.shape]
    misshapen = [f"{name} is {tuple(given[name].shape)}, not {tuple(own[name].shape)}" for name in other]
    floating = [name for name, tensor in own.items() if name in given and tensor.is_floating_point()]
    packed = [name for name in floating if not given[name].is_floating_point() or given[name].itemsize < 2]
    coarse = [f"{name} is {given[name].dtype}" for name in packed]
    kinds = {
        "missing": missing,
        "with the wrong shape": misshapen,
        "unexpected": unexpected,
        "of an unsuitable number type": coarse,
    }
    few = {what: ", ".join(names[:_NAMED] + ["..."] * (len(names) > _NAMED)) for what, names in kinds.items()}
    return "; ".join(f"{len(names)} {what} ({few[what]})" for what, names in kinds.items() if names)


def check_finite_weights(tensors: Iterable[tuple[str, Tensor]], source: object) -> None:
    """Check that weights have no NaN, infinity or negative variance, and are not all 0; a `WeightsError` says where."""
    matrices = []
    for name, tensor in tensors:
        matrices += [bool(tensor.any())] if tensor.ndim > 1 else []
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise WeightsError(f"weights {source} contain NaN or infinity, in {name}")
        if name.endswith("running_var") and bool((tensor < 0).any()):
            raise WeightsError(f"weights {source} contain a negative variance, in {name}")
    if matrices and not any(matrices):
        raise WeightsError(f"weights {source} are all 0, as of a file that was never filled; get it anew")


def tokenizer_named(encoder: str) -> str:
    """The model of the library whose tokenizer a text encoder has; empty where it reads the words of the captions."""
    if encoder in text_encoders:
        return str(getattr(text_encoders[encoder].function, "tokenizer", ""))
    return "" if encoder == "random" else encoder


def hub_id(weights: str) -> str:
    """The identifier of a model of the transformers library in the cell id: `random`, `hub:NAME`, or `sha256:...`.

    The last is of the content of a folder. A text encoder of one's own has its name and the hash of its plugin.
    """
    if weights in text_encoders:
        return f"{weights} plugin:{text_encoders[weights].code}"
    folder = Path(weights).expanduser()
    if not folder.is_dir():
        return weights if weights == "random" else f"hub:{weights}"
    content = {path.name: path for path in sorted(folder.iterdir()) if path.suffix in (".safetensors", ".txt", ".json")}
    for needed in (["config.json"], ["*.safetensors"], ["vocab.txt", "tokenizer.json"]):
        if not any(fnmatch(name, pattern) for name in content for pattern in needed):
            mend = "; its AutoTokenizer's save_pretrained writes one" * ("tokenizer.json" in needed)
            raise WeightsError(f"the folder {folder} of a model has no {' or '.join(needed)}{mend}")
    digest = hashlib.sha256("".join(f"{name} {file_sha256(path)}" for name, path in content.items()).encode())
    return "sha256:" + digest.hexdigest()[:16]


def timm_library() -> ModuleType:
    """The library, with goal-sweep's own small model registered in it."""
    import timm  # two seconds of import, with torch

    import goal_sweep.goal_core.models.small_swin  # noqa: F401  # registers itself

    library: ModuleType = timm
    return library


def pretrained_cfg(name: str) -> Mapping[str, Any]:
    """What timm states of an architecture's default weights; empty where it has none."""
    cfg = timm_library().get_pretrained_cfg(name)
    return cfg.to_dict() if cfg is not None else {}


@lru_cache(maxsize=32)
def _sha256(path: Path, *stat: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def existing(path: Path) -> Path:
    """The path of a weights file; a `WeightsError` where there is none."""
    if not path.is_file():
        raise WeightsError(f"no weights file at {path}")
    return path
