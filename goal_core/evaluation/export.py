"""A trained model's two towers as files for programs without goal-sweep: in ONNX, or as programs of `torch.export`.

A tower is run and traced without the weights that this does not read, such as all of the other tower. Beside the towers lie what their inputs are made with, and an example. What was written is run before it takes its name.
"""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import tokenizers
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import is_concrete_int
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from goal_sweep.goal_core.basics.atomic import make_folder, storage_errors
from goal_sweep.goal_core.basics.errors import ConfigError, GoalError, first_line
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.goal_core.checkpoints.file import ModelDescription
from goal_sweep.goal_core.data.text import TextVectors
from goal_sweep.goal_core.data.transforms import transform_of
from goal_sweep.goal_core.models.heads import Encoder
from goal_sweep.goal_core.models.systems.vse_infty import GeneralizedPooling

Kind = Literal["onnx", "torch"]
LONGEST: Final = 77
"""Ids of the longest sentence, as CLIP has it."""
TOLERANCE: Final = 1e-4
"""The largest difference from the model that a number of an embedding may have."""
_ENDS = {"onnx": "onnx", "torch": "pt2"}
_REGIONS = 100
"""Of the image with the most regions."""
_LARGE = 1_500_000_000
"""Bytes of weights above which ONNX keeps them in a file of their own; its format ends at 2 GB."""
_SENTENCES = (
    "A red circle, 1,000 dogs can't see the man's black-and-white ball",
    "a",
    "the small one and the large one",
)


def file_names(kind: Kind) -> list[str]:
    """The files that :func:`export_towers` writes."""
    return [f"images.{_ENDS[kind]}", f"texts.{_ENDS[kind]}", "preprocessing.json", "tokenizer.json", "README.txt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tower:
    """One side of a model."""

    encode: Callable[..., Tensor]
    inputs: dict[str, Tensor]
    """By name: what it is traced with."""
    axes: tuple[dict[int, Any], ...]
    """The axes of each input that may have any length."""
    largest: int
    """Elements of the largest set that it pools."""


class _Part(nn.Module):
    def __init__(self, encoder: Encoder, encode: Callable[..., Tensor]) -> None:
        super().__init__()
        self.backbone, self.heads, self._encode = encoder.backbone, encoder.heads, encode

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._encode(*inputs)


def export_towers(
    trained: Encoder, description: ModelDescription, folder: Path, kind: Kind, *, longest: int = LONGEST
) -> dict[str, float | None]:
    """Write both towers, which compute in float32, and what programs need to use them.

    Args:
        longest: ids of the longest sentence.

    Returns:
        For each tower's file the largest difference of its embeddings from the model's; None: onnxruntime is missing.

    Raises:
        ConfigError: a tower cannot be exported.
        GoalError: what was written gives other embeddings than the model; nothing is in the folder then.
    """
    if kind not in _ENDS or longest < 4:
        raise ConfigError(f"export as onnx or torch with longest at least 4, got {kind!r} and {longest}")
    if kind == "onnx":
        _check_libraries()
    heads, backbone = deepcopy((trained.heads, trained.backbone))
    cpu = torch.device("cpu")
    backbone = None if backbone is None else backbone.placed(cpu)
    encoder = Encoder(heads=heads.to(cpu), backbone=backbone, precision="fp32", device=cpu)
    encoder.train(False)
    words = None if isinstance(description.vocabulary, TextVectors) else _tokenizer(description, longest)
    towers = {"images": _images(encoder, description), "texts": _texts(encoder, description, words)}
    make_folder(folder)
    found, axes = dict[str, float | None](), dict[str, Any]()
    with storage_errors(folder, "write to"), tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as inside:
        for name, tower in towers.items():
            path = Path(inside, f"{name}.{_ENDS[kind]}")
            try:
                program = _traced(encoder, tower)
                axes[name] = _axes(program, tower)
                _write(program, tower, axes[name], path)
            except Exception as error:  # torch raises errors of many kinds
                raise ConfigError(f"the tower of {name} cannot be exported: {first_line(error)}") from error
            if name == "texts" and words is not None:
                length = axes[name][0][1]
                pad = length if isinstance(length, int) else None
                words.enable_padding(pad_id=0, pad_token=words.id_to_token(0), length=pad)
                tower.inputs.update(_encoded(words, _SENTENCES))
            found[path.name] = _difference(path, tower)
        about = json_bytes(_preprocessing(encoder, description), seal=False)
        Path(inside, "preprocessing.json").write_bytes(about)
        if words is not None:
            words.save(str(Path(inside, "tokenizer.json")))
        Path(inside, "README.txt").write_text(_readme(description, encoder, kind, towers, axes))
        for file in os.listdir(inside):
            os.replace(Path(inside, file), folder / file)
    return found


def _images(encoder: Encoder, description: ModelDescription) -> _Tower:
    config, batch, draw = description.data.image, Dim("batch"), torch.Generator().manual_seed(0)
    if config is not None:
        pixels = torch.randint(256, (3, 3, config.size, config.size), dtype=torch.uint8, generator=draw)
        with torch.no_grad():
            largest = encoder.features(pixels[:1]).shape[1]
        return _Tower(encode=encoder.images, inputs={"pixels": pixels}, axes=({0: batch},), largest=largest)
    sets = (36,) if description.data.format == "regions" else ()
    features = torch.randn(3, *sets, description.num_features, generator=draw)
    axes = {0: batch, **({1: Dim("regions", min=2, max=_REGIONS)} if sets else {})}
    return _Tower(encode=encoder.images, inputs={"features": features}, axes=(axes,), largest=_REGIONS)


def _texts(encoder: Encoder, description: ModelDescription, words: tokenizers.Tokenizer | None) -> _Tower:
    batch = Dim("batch")
    if words is None:
        vectors = torch.randn(3, len(description.vocabulary), generator=torch.Generator().manual_seed(1))
        return _Tower(
            encode=lambda given: encoder.texts(given, torch.ones(len(given))),
            inputs={"vectors": vectors},
            axes=({0: batch},),
            largest=1,
        )
    inputs = _encoded(words, _SENTENCES)
    longest = inputs["tokens"].shape[1]
    return _Tower(
        encode=encoder.texts,
        inputs=inputs,
        axes=({0: batch, 1: Dim.AUTO(min=2, max=longest)}, {0: batch}),
        largest=longest,
    )


def _tokenizer(description: ModelDescription, longest: int) -> tokenizers.Tokenizer:
    """The tokenizer, which pads and cuts sentences to one length."""
    words, _ = description.vocabulary.portable()
    longest = min(longest, words.truncation["max_length"] if words.truncation else longest)
    words.enable_truncation(longest)
    words.enable_padding(pad_id=0, pad_token=words.id_to_token(0), length=longest)
    for sentence, own in zip(_SENTENCES, words.encode_batch(list(_SENTENCES)), strict=True):
        ids = description.vocabulary.encode(sentence)
        if len(ids) <= longest and own.ids[: len(ids)] != ids:
            raise GoalError(f"the exported tokenizer reads {sentence!r} as {own.ids}, the model as {ids}")
    return words


def _encoded(words: tokenizers.Tokenizer, sentences: Sequence[str]) -> dict[str, Tensor]:
    rows = words.encode_batch(list(sentences))
    lengths = torch.tensor([sum(row.attention_mask) for row in rows])
    return {"tokens": torch.tensor([row.ids for row in rows]), "lengths": lengths}


def _traced(encoder: Encoder, tower: _Tower) -> ExportedProgram:
    """A tower's program, which has the weights that it reads and no others."""
    part, inputs = _Part(encoder, tower.encode).eval(), tuple(tower.inputs.values())
    pools = [pool for pool in encoder.heads.modules() if isinstance(pool, GeneralizedPooling)]
    with torch.no_grad(), _Reads() as reads:
        part(*inputs)
    unread = []
    for name, tensor in [*part.named_parameters(), *part.named_buffers()]:
        if id(tensor) not in reads.tensors:
            owner, _, leaf = name.rpartition(".")
            unread.append((part.get_submodule(owner), leaf, tensor))
    try:
        for owner, leaf, _ in unread:
            setattr(owner, leaf, None)
        for pool in pools:
            pool.tabulate(tower.largest)
        with torch.no_grad(), _third_party():
            return torch.export.export(part, inputs, dynamic_shapes=(tower.axes,))
    finally:
        for pool in pools:
            pool.tabulate(0)
        for owner, leaf, tensor in unread:
            setattr(owner, leaf, tensor)


class _Reads(TorchDispatchMode):
    """Notes which tensors are read."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors = set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.tensors.update(id(one) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor))
        return func(*args, **(kwargs or {}))


def _axes(program: ExportedProgram, tower: _Tower) -> tuple[dict[int, Any], ...]:
    """A tower's axes by name, and numbers where tracing has fixed a length, as that of a recurrent network."""
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    shapes = [nodes[name].meta["val"].shape for name in program.graph_signature.user_inputs]
    words = Dim("words", min=2, max=tower.largest)
    return tuple(
        {
            axis: int(shape[axis]) if is_concrete_int(shape[axis]) else dim if isinstance(dim, Dim) else words
            for axis, dim in axes.items()
        }
        for shape, axes in zip(shapes, tower.axes, strict=True)
    )


@contextmanager
def _third_party() -> Iterator[None]:
    """Without what torch's exporter says of itself."""
    log = getLogger("onnxscript")
    level = log.level
    log.setLevel(ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "# The axis name", UserWarning)
        try:
            yield
        finally:
            log.setLevel(level)


def _write(program: ExportedProgram, tower: _Tower, axes: Any, path: Path) -> None:
    if path.suffix == ".pt2":
        torch.export.save(program, path)
        return
    with _third_party():
        model = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            input_names=list(tower.inputs),
            output_names=["embeddings"],
            dynamic_shapes=axes,
        )
    assert model is not None
    num_bytes = sum(tensor.nbytes for tensor in program.state_dict.values())
    model.save(path, external_data=num_bytes > _LARGE)


def _difference(path: Path, tower: _Tower) -> float | None:
    """The largest difference of a file's embeddings from the model's; a `GoalError` where that is too large."""
    inputs = list(tower.inputs.values())
    run: Callable[[list[Tensor]], Any]
    if path.suffix == ".pt2":
        program = torch.export.load(path).module()
        run = lambda given: program(*given).detach().numpy()  # noqa: E731
    else:
        try:
            import onnxruntime
        except ImportError:
            return None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        run = lambda given: session.run(None, dict(zip(tower.inputs, map(np.asarray, given), strict=True)))[0]  # noqa: E731
    largest = 0.0
    for count in (3, 1):
        given = [tensor[:count] for tensor in inputs]
        with torch.no_grad():
            expected = tower.encode(*given).numpy()
        largest = max(largest, float(np.abs(run(given) - expected).max(initial=0)))
    if not largest <= TOLERANCE:
        raise GoalError(f"{path.name} gives embeddings that differ by {largest:.1g} from the model's; it is not kept")
    return largest


def _check_libraries() -> None:
    try:
        import onnx
        import onnxscript
    except ImportError:
        raise ConfigError("ONNX files need packages that are missing: pip install 'goal-sweep[onnx]'") from None
    assert onnx
    assert onnxscript


def _preprocessing(encoder: Encoder, description: ModelDescription) -> dict[str, Any]:
    """How an image becomes the input of its tower."""
    config, backbone = description.data.image, encoder.backbone
    if config is None or backbone is None:
        return {"input": "features", "features": description.num_features, "format": description.data.format}
    transform = transform_of(config)
    return {
        "input": "pixels",
        "type": "uint8, RGB, (batch, 3, size, size)",
        "size": config.size,
        "fit": "stretch" if transform.stretches else "centre crop",
        "resize": None if transform.stretches else config.resize,
        "interpolation": transform.resampling.name.lower(),
        "resized_by": "Pillow, which smooths when it shrinks",
        "shrunk_first_to": config.shrink or None,
        "mean": [round(one / 255, 8) for one in backbone.mean.flatten().tolist()],
        "std": [round(one / 255, 8) for one in backbone.std.flatten().tolist()],
        "normalised_by": "the tower, by this mean and std of pixels from 0 to 1",
        "transparency": "on white",
        "exif_orientation": "not applied",
    }


_RUN = {
    "onnx": """import onnxruntime
images, texts = (onnxruntime.InferenceSession(f"{name}.onnx") for name in ("images", "texts"))
run = lambda tower, *given: tower.run(None, dict(zip([one.name for one in tower.get_inputs()], given)))[0]""",
    "torch": """import torch
images, texts = (torch.export.load(f"{name}.pt2").module() for name in ("images", "texts"))
run = lambda tower, *given: tower(*map(torch.tensor, given)).detach().numpy()""",
}
_STRETCH = "image = image.resize(({size}, {size}), Image.Resampling.{by})"
_CROP = """(width, height), side = image.size, {resize}
wide, high = (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
left, top = round((wide - {size}) / 2), round((high - {size}) / 2)
image = image.resize((wide, high), Image.Resampling.{by}).crop((left, top, left + {size}, top + {size}))"""
_PIXELS = """from PIL import Image
image = Image.open("picture.png").convert("RGB")
{fit}
image_rows = run(images, np.asarray(image).transpose(2, 0, 1)[None])"""
_WORDS = """from tokenizers import Tokenizer
rows = Tokenizer.from_file("tokenizer.json").encode_batch(["a red flag", "a dog"])
text_rows = run(texts, np.array([row.ids for row in rows]), np.array([sum(row.attention_mask) for row in rows]))"""


def _readme(
    description: ModelDescription, encoder: Encoder, kind: Kind, towers: Mapping[str, _Tower], axes: Mapping[str, Any]
) -> str:
    """What the files take and give, and a program that uses them."""
    model, config, words = description.model, description.data.image, towers["texts"].largest
    code = ["import numpy as np", _RUN[kind]]
    lines = [f"The two towers of a {model.framework} model ({model.backbone.name}), written by goal-sweep.", ""]
    for name, tower in towers.items():
        takes = []
        for (key, one), free in zip(tower.inputs.items(), axes[name], strict=True):
            sides = [getattr(free.get(axis, side), "__name__", side) for axis, side in enumerate(one.shape)]
            takes.append(f"{key} {str(one.dtype).removeprefix('torch.')} ({', '.join(map(str, sides))})")
        lines.append(f"{name}.{_ENDS[kind]}: {', '.join(takes)} -> embeddings float32 (batch, numbers), of length 1")
    lines.append("The similarity of an image and a text is the product of their embeddings. All compute in float32.")
    if encoder.heads.rerank_top:
        lines.append("Not here: the cross encoder, by which goal-sweep ranks the nearest once more for better recalls.")
    if config is not None:
        transform, sides = transform_of(config), {"size": config.size, "resize": config.resize}
        fit = (_STRETCH if transform.stretches else _CROP).format(by=transform.resampling.name, **sides)
        code.append(_PIXELS.format(fit=fit))
    if "tokens" in towers["texts"].inputs:
        _, differs = description.vocabulary.portable()
        lines.append(f"tokenizer.json pads with 0, which `lengths` do not count, and cuts captions to {words} ids.")
        lines.append(f"Else it reads them as goal-sweep does{f', except: {differs}' if differs else ''}.")
        code.append(_WORDS)
    return "\n".join([*lines, "", *code, ""])
