"""A trained model's two towers as files for programs without goal-sweep: in ONNX, or as programs of `torch.export`.

A tower is traced without the weights that it does not read, such as all of the other tower. Beside both lie what their
inputs are made with, and an example. What was written is run before it takes its name.
"""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib.util import find_spec
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
from goal_sweep.goal_core.basics.files import json_bytes, new_file
from goal_sweep.goal_core.checkpoints.file import ModelDescription
from goal_sweep.goal_core.data.transforms import transform_of
from goal_sweep.goal_core.models.heads import Encoder
from goal_sweep.goal_core.models.systems.vse_infty import GeneralizedPooling

Kind = Literal["onnx", "torch"]
TOLERANCE: Final = 1e-4
"""The largest difference from the model that a number of an embedding may have."""
_ENDS = {"onnx": "onnx", "torch": "pt2"}
_REGIONS = 100  # of the image with the most
_CAPTIONS = ("A red circle: 1,000 dogs can't see the man's black-and-white ball", "a", "the small and the large one")


def file_names(kind: Kind) -> list[str]:
    """The files that :func:`export_towers` writes."""
    return [f"images.{_ENDS[kind]}", f"texts.{_ENDS[kind]}", "preprocessing.json", "tokenizer.json", "README.txt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tower:
    """One side of a model."""

    encode: Callable[..., Tensor]
    inputs: dict[str, Tensor]
    """What it is traced with, by name."""
    axes: tuple[dict[int, Any], ...]
    """The axes of each input that may have other lengths."""
    largest: int = 1
    """Elements of the largest set that it pools."""


class _Part(nn.Module):
    def __init__(self, encoder: Encoder, encode: Callable[..., Tensor]) -> None:
        super().__init__()
        self.backbone, self.heads, self._encode = encoder.backbone, encoder.heads, encode

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._encode(*inputs)


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Notes which tensors are read."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self.tensors = set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.tensors.update(id(one) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor))
        return func(*args, **(kwargs or {}))


def export_towers(
    trained: Encoder, description: ModelDescription, folder: Path, kind: Kind, *, longest: int = 77, force: bool = False
) -> dict[str, float | None]:
    """Write both towers, which compute in float32 on any number of images or captions; see `RetrievalModel.export`.

    Raises:
        ConfigError, DataError: a tower cannot be exported, or texts are vectors.
        GoalError: what was written gives other embeddings than the model; nothing of it is kept.
    """
    if kind not in _ENDS or longest < 4:
        raise ConfigError(f"export as onnx or torch with longest at least 4, got {kind!r} and {longest}")
    for name in file_names(kind):
        new_file(folder / name, force=force)
    if kind == "onnx" and not (find_spec("onnx") and find_spec("onnxscript")):
        raise ConfigError("ONNX files need packages that are missing: pip install 'goal-sweep[onnx]'")
    words, _ = description.vocabulary.portable()
    longest = min(longest, words.truncation["max_length"] if words.truncation else longest)
    longest = min(longest, getattr(description.vocabulary, "positions", longest))  # of a BERT
    words.enable_truncation(longest)
    words.enable_padding(pad_token=words.id_to_token(0), length=longest)
    heads, backbone = deepcopy((trained.heads, trained.backbone))
    backbone, cpu = backbone and backbone.placed(torch.device("cpu")), torch.device("cpu")
    encoder = Encoder(heads=heads.to(cpu).eval(), backbone=backbone, precision="fp32", device=cpu)
    towers = {"images": _images(encoder, description), "texts": _texts(encoder, words)}
    found, axes = dict[str, float | None](), dict[str, Any]()
    make_folder(folder)
    with storage_errors(folder, "write to"), tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as inside:
        for name, tower in towers.items():
            path = Path(inside, f"{name}.{_ENDS[kind]}")
            try:
                program = _traced(encoder, tower)
                axes[name] = _axes(program, tower)
                _write(program, tower, axes[name], path)
            except Exception as error:  # torch raises errors of many kinds
                raise ConfigError(f"the tower of {name} cannot be exported: {first_line(error)}") from error
            if name == "texts":
                if not isinstance(axes[name][0][1], int):
                    words.enable_padding(pad_token=words.id_to_token(0))  # to the longest of a batch
                tower.inputs.update(_encoded(words))
            found[path.name] = _difference(path, tower)
        words.save(f"{inside}/tokenizer.json")
        Path(inside, "preprocessing.json").write_bytes(json_bytes(_preprocessing(encoder, description), seal=False))
        Path(inside, "README.txt").write_text(_readme(description, encoder, kind, towers, axes))
        for file in os.listdir(inside):
            os.replace(Path(inside, file), folder / file)
    return found


def _images(encoder: Encoder, description: ModelDescription) -> _Tower:
    config, batch, draw = description.data.image, Dim("batch"), torch.Generator().manual_seed(0)
    if config is None:
        sets = (36,) if description.data.format == "regions" else ()
        features = torch.randn(3, *sets, description.num_features, generator=draw)
        axes = {0: batch, **({1: Dim("regions", min=2, max=_REGIONS)} if sets else {})}
        return _Tower(encode=encoder.images, inputs={"features": features}, axes=(axes,), largest=_REGIONS)
    pixels = torch.randint(256, (3, 3, config.size, config.size), dtype=torch.uint8, generator=draw)
    with torch.no_grad():
        cells = encoder.features(pixels[:1]).shape[1]
    return _Tower(encode=encoder.images, inputs={"pixels": pixels}, axes=({0: batch},), largest=cells)


def _texts(encoder: Encoder, words: tokenizers.Tokenizer) -> _Tower:
    inputs = _encoded(words)
    longest = inputs["tokens"].shape[1]
    axes = {0: Dim("batch"), 1: Dim.AUTO(min=2, max=longest)}, {0: Dim("batch")}
    return _Tower(encode=encoder.texts, inputs=inputs, axes=axes, largest=longest)


def _encoded(words: tokenizers.Tokenizer) -> dict[str, Tensor]:
    rows = words.encode_batch(list(_CAPTIONS))
    lengths = torch.tensor([sum(row.attention_mask) for row in rows])
    return {"tokens": torch.tensor([row.ids for row in rows]), "lengths": lengths}


def _traced(encoder: Encoder, tower: _Tower) -> ExportedProgram:
    """A tower's program, which has the weights that it reads and no others."""
    part, inputs = _Part(encoder, tower.encode).eval(), tuple(tower.inputs.values())
    pools = [pool for pool in encoder.heads.modules() if isinstance(pool, GeneralizedPooling)]
    unread = []
    try:
        for pool in pools:
            pool.tabulate(tower.largest)
        with torch.no_grad(), _Reads() as reads:
            part(*inputs)
        for name, tensor in [*part.named_parameters(), *part.named_buffers()]:
            if id(tensor) not in reads.tensors:
                owner, _, leaf = name.rpartition(".")
                unread.append((part.get_submodule(owner), leaf, tensor))
                setattr(part.get_submodule(owner), leaf, None)
        with torch.no_grad(), _third_party():
            return torch.export.export(part, inputs, dynamic_shapes=(tower.axes,))
    finally:
        for module, leaf, tensor in unread:
            setattr(module, leaf, tensor)
        for pool in pools:
            pool.tabulate(0)


def _axes(program: ExportedProgram, tower: _Tower) -> tuple[dict[int, Any], ...]:
    """A tower's axes by name, and numbers where tracing has fixed a length, as that of a recurrent network."""
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    words, named = Dim("words", min=2, max=tower.largest), []
    for name, axes in zip(program.graph_signature.user_inputs, tower.axes, strict=True):
        shape = nodes[name].meta["val"].shape
        free = {axis: dim if isinstance(dim, Dim) else words for axis, dim in axes.items()}
        named.append({axis: int(shape[axis]) if is_concrete_int(shape[axis]) else free[axis] for axis in axes})
    return tuple(named)


@contextmanager
def _third_party() -> Iterator[None]:
    """Without what torch's exporter says of itself."""
    log = getLogger("onnxscript")
    before = log.level
    log.setLevel(ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


def _write(program: ExportedProgram, tower: _Tower, axes: Any, path: Path) -> None:
    if path.suffix == ".pt2":
        return torch.export.save(program, path)
    names = {"input_names": list(tower.inputs), "output_names": ["embeddings"], "dynamic_shapes": axes}
    with _third_party():
        model: Any = torch.onnx.export(program, dynamo=True, verbose=False, **names)
    model.save(path)


def _difference(path: Path, tower: _Tower) -> float | None:
    """The largest difference of a file's embeddings from the model's; a `GoalError` where that is too large."""
    if path.suffix == ".onnx" and not find_spec("onnxruntime"):
        return None
    run, largest = _runner(path, list(tower.inputs)), 0.0
    with torch.no_grad():
        for count in (3, 1):
            given = [tensor[:count] for tensor in tower.inputs.values()]
            largest = max(largest, float(np.abs(run(given) - tower.encode(*given).numpy()).max()))
    if not largest <= TOLERANCE:
        raise GoalError(f"{path.name} gives embeddings that differ by {largest:.1g} from the model's; it is not kept")
    return largest


def _runner(path: Path, names: Sequence[str]) -> Callable[[list[Tensor]], Any]:
    if path.suffix == ".pt2":
        program = torch.export.load(path).module()
        return lambda given: np.asarray(program(*given))
    from onnxruntime import InferenceSession, SessionOptions

    (options := SessionOptions()).intra_op_num_threads = torch.get_num_threads()
    session = InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, dict(zip(names, map(np.asarray, given), strict=True)))[0]


def _preprocessing(encoder: Encoder, description: ModelDescription) -> dict[str, Any]:
    """How an image becomes the input of its tower."""
    config, backbone = description.data.image, encoder.backbone
    if config is None or backbone is None:
        return {"input": "features", "features": description.num_features, "format": description.data.format}
    transform = transform_of(config)
    return {
        "input": "pixels, uint8, RGB, (batch, 3, size, size)",
        "size": config.size,
        "fit": "stretch" if transform.stretches else "centre crop",
        "resize": None if transform.stretches else config.resize,
        "interpolation": transform.resampling.name.lower(),
        "shrunk_first_to": config.shrink or None,
        "mean": [round(one / 255, 8) for one in backbone.mean.flatten().tolist()],
        "std": [round(one / 255, 8) for one in backbone.std.flatten().tolist()],
        "notes": "Resized by Pillow, which smooths when it shrinks. Transparency is on white, an EXIF orientation not "
        "applied. The tower itself normalises, by mean and std of pixels from 0 to 1.",
    }


_RUN = {
    "onnx": """import onnxruntime
images, texts = (onnxruntime.InferenceSession(f"{name}.onnx") for name in ("images", "texts"))
run = lambda tower, *given: tower.run(None, dict(zip([one.name for one in tower.get_inputs()], given)))[0]""",
    "torch": """import torch
images, texts = (torch.export.load(f"{name}.pt2").module() for name in ("images", "texts"))
run = lambda tower, *given: tower(*map(torch.tensor, given)).detach().numpy()""",
}
_PIXELS = """import io
from pathlib import Path
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, PILToTensor, Resize
fit = Compose([Resize({resize}, InterpolationMode.{by}), CenterCrop({size}), PILToTensor()])
picture = Image.open(io.BytesIO(Path("picture.png").read_bytes()))
picture.getexif().pop(274, None)  # the orientation, by which Pillow turns TIFF alone
picture = picture.convert("RGBA")
picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
image_rows = run(images, fit(picture).numpy()[None])"""
_WORDS = """from tokenizers import Tokenizer
rows = Tokenizer.from_file("tokenizer.json").encode_batch(["a red flag", "a dog"])
text_rows = run(texts, np.array([row.ids for row in rows]), np.array([sum(row.attention_mask) for row in rows]))"""


def _readme(
    description: ModelDescription, encoder: Encoder, kind: Kind, towers: Mapping[str, _Tower], axes: Mapping[str, Any]
) -> str:
    """What the files take and give, and a program that uses them."""
    model, config, code = description.model, description.data.image, ["import numpy as np", _RUN[kind]]
    lines = [f"The two towers of a {model.framework} model ({model.backbone.name}), written by goal-sweep.", ""]
    for name, tower in towers.items():
        takes = []
        for (key, one), free in zip(tower.inputs.items(), axes[name], strict=True):
            sides = [getattr(free.get(axis, side), "__name__", side) for axis, side in enumerate(one.shape)]
            takes.append(f"{key} {str(one.dtype).removeprefix('torch.')} ({', '.join(map(str, sides))})")
        lines.append(f"{name}.{_ENDS[kind]}: {', '.join(takes)} -> float32 (batch, {model.embed_dim}), of length 1")
    lines.append("The similarity of an image and a text is the product of their embeddings. All compute in float32.")
    if encoder.heads.rerank_top:
        lines.append("Not here: the cross encoder, by which goal-sweep ranks the nearest once more for better recalls.")
    if config is not None:
        transform = transform_of(config)
        resize = (config.size, config.size) if transform.stretches else config.resize
        lines.append("The program reads pictures of 8 bits; goal-sweep also scales others, as docs/data.md says.")
        code.append(_PIXELS.format(resize=resize, size=config.size, by=transform.resampling.name))
    words, (_, differs) = towers["texts"].largest, description.vocabulary.portable()
    lines.append(f"tokenizer.json pads with 0, which `lengths` do not count, and cuts captions to {words} ids.")
    lines.append(f"Else it reads them as goal-sweep does{f', except: {differs}' if differs else ''}.")
    return "\n".join([*lines, "", *code, _WORDS, ""])
