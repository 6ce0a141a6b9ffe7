"""Convert a published checkpoint into a goal-sweep checkpoint, which is evaluated like any trained cell.

Its tensors get our names and our sizes, with every one accounted for. It is read without running its code: a pickle is
a program, which can name any function of any module and call it. The readers here allow a short list of names that
published checkpoints contain, and stop at the first other name, before it is looked up.
"""

import json
import math
import pickle
import re
import warnings
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goal_sweep.goal_core.basics.atomic import make_folder, replace_with
from goal_sweep.goal_core.basics.errors import DataError, WeightsError, first_line
from goal_sweep.goal_core.basics.files import seems
from goal_sweep.goal_core.checkpoints.file import ModelDescription, flat, write_model
from goal_sweep.goal_core.data import DataConfig
from goal_sweep.goal_core.data.text import SPECIAL_WORDS, Tokenizer, Vocabulary, Wordpieces
from goal_sweep.goal_core.models import ModelConfig, file_sha256
from goal_sweep.goal_core.models.backbones import build_backbone
from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.models.weights import check_finite_weights, misfits
from goal_sweep.goal_core.objectives import ObjectiveConfig
from goal_sweep.goal_core.official.layouts import LAYOUTS, Layout

_SAFE: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    Namespace,  # the training options, saved with the weights
    # Recalls computed with numpy are saved as its scalars; by its old and its new module name.
    (np._core.multiarray.scalar, "numpy.core.multiarray.scalar"),  # type: ignore[attr-defined]  # numpy's own pickles
    (np._core.multiarray.scalar, "numpy._core.multiarray.scalar"),  # type: ignore[attr-defined]  # name it
    np.dtype,
    np.dtypes.Float64DType,
    np.dtypes.Float32DType,
    np.dtypes.Int64DType,
]
"""What is allowed beyond the tensors, storages and containers of torch's own weights-only list."""


def read_torch_file(path: Path) -> dict[str, Any]:
    """Read a ``.pth.tar``, ``.pth`` or ``.th`` file: torch's zip format, the older one, or a pickle of Python 2."""
    if not path.is_file():
        raise WeightsError(f"no checkpoint at {path}")
    try:
        with torch.serialization.safe_globals(_SAFE), warnings.catch_warnings():
            # Torch warns that the encoding has no effect here, although it has one.
            warnings.filterwarnings("ignore", message="pickle_load_args")
            stored = torch.load(path, map_location="cpu", weights_only=True, encoding="latin1")
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))  # of many lines, which end in bad advice
        asks = f"its pickle asks for {asked[1]}, which no such checkpoint needs" if asked else ""
        why = asks or "it holds more than tensors"
        raise WeightsError(f"{path} is refused: {why}; nothing in it was run") from error
    except Exception as error:  # a damaged file can fail in any way inside the reader
        what = seems(path)
        raise WeightsError(f"{path}{what}" if what else f"cannot read {path}: {first_line(error)}") from error
    if not isinstance(stored, dict):
        raise WeightsError(f"{path} contains a {type(stored).__name__}, not a mapping as in published checkpoints")
    return stored


def tensors_of(stored: object, where: str) -> dict[str, Tensor]:
    """Check that an object is a state dict, and return it."""
    if not isinstance(stored, dict) or not stored:
        raise WeightsError(f"{where} is not a state dict")
    if strange := [name for name, value in stored.items() if not (isinstance(name, str) and isinstance(value, Tensor))]:
        raise WeightsError(f"{where} contains {str(strange[0])!r}, which is not a tensor")
    return dict(stored)


def read_vocabulary(path: Path) -> Vocabulary:
    """Read VSE++'s pickled vocabulary (Python 2 or 3), or its JSON form (``word2idx``).

    The order of its words is the order of the rows of a checkpoint's word embedding, and is recorded nowhere else.
    """
    if not path.is_file():
        raise DataError(f"no vocabulary at {path}")
    content = path.read_bytes()
    is_pickle = content[:1] in (b"\x80", b"(", b"c")
    try:
        stored = _VocabularyUnpickler(BytesIO(content), encoding="latin1").load() if is_pickle else json.loads(content)
    except Exception as error:  # a damaged pickle can fail in any way
        why = f"{type(error).__name__}: {error}" if is_pickle or content[:1] == b"{" else "it seems to be text"
        raise DataError(f"cannot read the vocabulary {path}{seems(content) or f': {why}'}") from error
    ids = (stored if isinstance(stored, dict) else getattr(stored, "__dict__", {})).get("word2idx")
    if not isinstance(ids, dict) or not all(isinstance(w, str) and isinstance(i, int) for w, i in ids.items()):
        raise DataError(f"{path} does not contain a vocabulary: it has no mapping word2idx from words to numbers")
    words = sorted(ids, key=ids.__getitem__)
    if [ids[word] for word in words] != list(range(len(words))) or tuple(words[:4]) != SPECIAL_WORDS:
        raise DataError(f"{path}: ids must be 0, 1, 2, ... and begin with {' '.join(SPECIAL_WORDS)}")
    return Vocabulary(tuple(words[4:]))


class _StoredVocabulary:
    """Stands in for the class ``Vocabulary`` of the published code; has its attributes."""


class _VocabularyUnpickler(pickle.Unpickler):
    """Allows one class and no function."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "Vocabulary" and module in ("vocab", "__main__", "data.vocab", "lib.vocab"):
            return _StoredVocabulary
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no vocabulary needs; nothing in it was run")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCheckpoint:
    """The model in a published checkpoint, its tensors renamed to ours."""

    description: ModelDescription
    """With the data that it is to be evaluated on."""
    tensors: dict[str, Tensor]
    """`heads.*` and `backbone.net.*`."""
    leftovers: dict[str, list[str]]
    """The names of the tensors in the file that the model does not use, by the reason."""
    epoch: int
    """The epoch of its training after which the file was written."""

    def write(self, path: Path) -> None:
        """Write it as a goal-sweep checkpoint, which appears whole or not at all."""
        make_folder(path.parent)
        replace_with(path, lambda temporary: write_model(temporary, self.tensors, self.description, epoch=self.epoch))


def read_published(
    framework: str, path: Path, vocabulary: Tokenizer | Path, *, data: DataConfig, data_fingerprint: str
) -> PublishedCheckpoint:
    """Read a published checkpoint of a framework.

    Args:
        path: VSE++'s ``model_best.pth.tar`` with a ResNet; VSE-infinity's ``model_best.pth`` of precomputed regions, or
            of the cells of a ResNeXt; X-VLM's ``.th`` with a Swin, pre-trained or fine-tuned for retrieval.
        vocabulary: that of its training, or the file of it: VSE++'s pickle or JSON, or the `vocab.txt` of
            `bert-base-uncased`. The order of its words is that of the word embedding's rows.
        data: what it is to be evaluated on; X-VLM's biases of relative positions are resized for its images.
    """
    if framework not in LAYOUTS:
        raise WeightsError(f"framework {framework} has no published checkpoints; give a sweep of {', '.join(LAYOUTS)}")
    if isinstance(vocabulary, Path):
        vocabulary = (read_vocabulary if framework == "vsepp" else Wordpieces.from_file)(vocabulary)
    layout, stored = LAYOUTS[framework], read_torch_file(path)
    given, options = _tensors_and_options(stored, layout, path)
    layout.check(options, given, str(path))
    model = layout.model(options, given, str(path))
    framework_of(model).check(model, data)
    if len(vocabulary) != (rows := len(given[layout.words])):
        words = f"{len(vocabulary)} {'word pieces' if isinstance(vocabulary, Wordpieces) else 'words'}"
        raise WeightsError(f"the word embedding of {path} has {rows} rows, but the vocabulary has {words}")
    if framework == "xvlm" and isinstance(vocabulary, Wordpieces):
        vocabulary = replace(vocabulary, cleans=True)
    width = given["image.fc.weight"].shape[1] if model.backbone.weights == "precomputed" else 0
    shapes = _shapes(model, vocabulary, image_size=data.image.size if data.image else 0, region_width=width)
    name_of = partial(layout.published_name, model)
    given = resized_tables(given, {name_of(name): tensor for name, tensor in shapes.items()})
    tensors, leftovers = rename_tensors(shapes, given, name_of, known_leftovers=layout.leftovers, source=str(path))
    if not isinstance(epoch := stored.get("epoch", 0), int):
        raise WeightsError(f"{path}: `epoch` must be a whole number, got {epoch!r}")
    description = ModelDescription(
        cell="published",
        stage="published",
        objective=ObjectiveConfig(pair="con", triplet="con").resolved(),
        seed=0,
        precision="fp32",
        data=data,
        data_fingerprint=data_fingerprint,
        model=model,
        weights=f"sha256:{file_sha256(path)[:16]}",
        vocabulary=vocabulary,
        num_features=width,
    )
    return PublishedCheckpoint(description=description, tensors=tensors, leftovers=leftovers, epoch=epoch)


def _tensors_and_options(stored: dict[str, Any], layout: Layout, path: Path) -> tuple[dict[str, Tensor], Namespace]:
    """The tensors of both encoders under the names of the published code, and the options of their training."""
    if layout.encoders:
        encoders, options = stored.get("model"), stored.get("opt")
        if not isinstance(encoders, list) or len(encoders) != 2 or not isinstance(options, Namespace):
            raise WeightsError(f"{path} is not {layout.system}'s: it must contain `opt` and `model`, two state dicts")
        encoders = [tensors_of(encoder, f"{path}: model[{index}]") for index, encoder in enumerate(encoders)]
    else:
        encoders, options = [tensors_of(stored.get("model"), f"{path}: model")], Namespace()
    named = {
        re.sub(*layout.wrapper, encoder + name.removeprefix(layout.prefix)): tensor
        for encoder, tensors in zip(layout.encoders or ("",), encoders, strict=True)
        for name, tensor in tensors.items()
    }
    return named, options


def _shapes(model: ModelConfig, tokenizer: Tokenizer, *, image_size: int, region_width: int = 0) -> dict[str, Tensor]:
    """Our model's state dict on the meta device: names and shapes without memory."""
    parts: dict[str, Mapping[str, Tensor]] = {}
    with torch.device("meta"):
        if not region_width:
            # Pooling the cells or not changes no tensor of the backbone.
            backbone = build_backbone(model.backbone, image_size=image_size, seed=0, cells=True)
            parts["backbone"] = backbone.state_dict()
        width = region_width or backbone.num_features
        heads = framework_of(model).heads(model, num_features=width, tokenizer=tokenizer, seed=0)
    return flat({**parts, "heads": heads.state_dict()})


def rename_tensors(
    own: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    published_name: Callable[[str], str],
    *,
    known_leftovers: Mapping[str, str],
    source: str,
) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
    """The tensors of our model in a published checkpoint, by our names; and by reason, those that it does not use.

    Of our own state dict only names, shapes and dtypes are used. Leftovers are known by regular expressions.
    """
    wanted = {name: published_name(name) for name in own}
    reasons = {
        name: next((why for rule, why in known_leftovers.items() if re.match(rule, name)), "")
        for name in sorted(given.keys() - set(wanted.values()))
    }
    if problems := misfits({wanted[name]: tensor for name, tensor in own.items()}, given, spare=reasons.get):
        raise WeightsError(f"{source} does not have the expected layout; tensors {problems}")
    tensors = {
        name: given.get(other, torch.zeros(())).to(own[name].dtype)  # old files lack counters, which nothing reads
        for name, other in wanted.items()
    }
    check_finite_weights(((wanted[name], tensor) for name, tensor in tensors.items()), source)
    return tensors, {why: [name for name in reasons if reasons[name] == why] for why in dict.fromkeys(reasons.values())}


def resized_tables(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with a Swin's tables of relative-position biases resized for windows of another size.

    A table is ((2 w - 1)^2, heads) for windows of w x w. Of the ``wanted`` tensors only shapes are used.

    Source: X-VLM's published code, after BEiT: cubic splines on a grid that widens geometrically from the centre.
    """
    tables = [name for name in given.keys() & wanted.keys() if name.endswith("relative_position_bias_table")]
    other = [name for name in tables if len(wanted[name]) != len(given[name])]
    return {**given, **{name: _resized(given[name], len(wanted[name])) for name in other}}


def _resized(table: Tensor, rows: int) -> Tensor:
    from scipy.interpolate import RectBivariateSpline  # needed for conversion only; training does without scipy

    old, new = math.isqrt(len(table)), math.isqrt(rows)
    known, sought = _widening(old, new), np.arange(-(new // 2), new // 2 + 1)
    grids = [bias.reshape(old, old).double().numpy() for bias in table.T]
    resized = [RectBivariateSpline(known, known, grid, s=0)(sought, sought) for grid in grids]
    return torch.from_numpy(np.stack(resized)).flatten(1).T.to(table.dtype).contiguous()


def _widening(old: int, new: int) -> np.ndarray:
    """Positions of ``old`` known values: 0, then steps of 1, q, q^2, ... up to the ends of the ``new`` grid."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        ratio = (low + high) / 2
        low, high = (low, ratio) if (1 - ratio ** (old // 2)) / (1 - ratio) > new // 2 else (ratio, high)
    side = np.cumsum(ratio ** np.arange(old // 2))
    return np.concatenate([-side[::-1], [0.0], side])
