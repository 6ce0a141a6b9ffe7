"""The commands on checkpoints and embeddings: `evaluate`, `embed`, `search`, `export`, `recall`, and `convert`."""

import html
import json
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.atomic import replace_bytes, replace_with
from goal_sweep.goal_core.basics.errors import GoalError, listening, printable, warn
from goal_sweep.goal_core.basics.files import new_file
from goal_sweep.goal_core.basics.registry import run_plugins
from goal_sweep.goal_core.data import SPLIT_NAMES, index_parts
from goal_sweep.goal_core.data.formats.features import read_region_header
from goal_sweep.goal_core.data.formats.index import own_indexes
from goal_sweep.goal_core.data.formats.layout import PICTURES, captions_in, tree
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.formats.tables import LINES, TABLES
from goal_sweep.goal_core.data.formats.text_files import read_lines
from goal_sweep.runners.cli.models import Model, ModelAndText, Models, model_of, models_of
from goal_sweep.runners.cli.options import AsJson, Device, Set, StoreDir, SweepArguments, Trust
from goal_sweep.runners.cli.output import Force, Output, console
from goal_sweep.sweeps import load_sweep
from goal_sweep.sweeps.reading.load import is_named_sweep, load_data

if TYPE_CHECKING:
    from goal_sweep.goal_core.evaluation.trained_model import RetrievalModel

checkpoints = typer.Typer()
Weights = Annotated[str | None, typer.Option(help="File of the backbone's weights, if it has moved.")]
Plugins = Annotated[
    list[str] | None, typer.Option("--plugin", help="A plugin with parts of the model, which it runs. Repeatable.")
]
_SHOWN = 5
_AT_ONCE = 256
"""Images that are in memory together."""
_RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
_HEADINGS = ("i2t R@1", "R@5", "R@10", "t2i R@1", "R@5", "R@10", "rsum")


@checkpoints.command()
def evaluate(
    model: Models,
    split: Annotated[Literal["train", "val", "test"], typer.Option(help="The split to evaluate.")] = "test",
    root: Annotated[str | None, typer.Option(help="Folder of the data, if it has moved.")] = None,
    weights: Weights = None,
    data: Annotated[
        str | None, typer.Option(help="Evaluate on the `data` of this sweep file; other keys are not needed.")
    ] = None,
    ensemble: Annotated[
        int | None, typer.Option(min=2, help="Of a sweep, the average of so many seeds: those that are best on val.")
    ] = None,
    set_: Set = None,
    store: StoreDir = None,
    trust_plugins: Trust = False,
    plugin: Plugins = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Compute the recall of one trained cell, or of several with averaged similarities.

    A split of 2,000, 3,000 ... images is evaluated as a whole and as the mean of folds of 1,000 (COCO's 5K and 1K).

    Example: goal-sweep evaluate quickstart con/nca --ensemble 2

    Example: goal-sweep evaluate STORE/cells/A/frozen-KEY STORE/cells/B/frozen-KEY
    """
    from goal_sweep.goal_core.evaluation.evaluate import OpenedCheckpoint, evaluate_ensemble, open_checkpoint

    run_plugins(plugin or ())
    if data is not None and root is not None:
        raise GoalError("give --data or --root: the folder of other data stands in their sweep")
    if data is not None and not is_named_sweep(data):
        raise GoalError(f"--data takes a sweep file (.yaml), whose data are used; got {data}")
    files, said = models_of(model, set_, store, trusted=trust_plugins, seeds=ensemble or 1), list[str]()
    if len(files) > 1 and weights is not None:
        raise GoalError(f"--weights needs a single checkpoint, got {len(files)}; evaluate them one by one")
    other, notes = None if data is None else load_data(data), dict[str, None]()

    def opened() -> Iterator[OpenedCheckpoint]:
        needed = SPLIT_NAMES if other is None else (split,)
        for path, own in files:
            one = open_checkpoint(path, root=root or own, weights=weights, device=device, data=other, splits=needed)
            notes.update(dict.fromkeys(() if other is None else one.dataset.notes))
            yield one

    with listening(said.append) if as_json else nullcontext():
        result = next(opened()).evaluate(split) if len(files) == 1 else evaluate_ensemble(opened(), split)
    if as_json:
        print(json.dumps({**result, "warnings": [*said, *notes]}, indent=2))
        return
    members = result.get("members", [result])
    trained_on = ", ".join(dict.fromkeys(one["trained_on"] for one in members))
    of = "" if data is None else f" of {members[0]['data']}; trained on {trained_on}"
    of += f"; chance R@1 {100 / result['images']:.3g} %" + ", in 1K 0.1 %" * (f"{split}_1k/rsum" in result["metrics"])
    console.print(f"{split}: {result['images']} images, {result['captions']} captions{of}")
    for note in notes:
        console.print(f"data: {note}")
    console.print(" " * 17 + "".join(f"{name:>9s}" for name in _HEADINGS))
    models = [(f"{one['objective']} seed {one['seed']} {one['stage']}, epoch {one['epoch']}", one) for one in members]
    models += [(f"ensemble of {len(members)}", result)] if len(members) > 1 else []
    for label, one in models:
        console.print(label)
        folds = f"1K, {one['images'] // 1000} folds"
        for prefix, protocol in ((split, "all"), (f"{split}_1k", folds), (f"{split}_embed", "not re-ranked")):
            values = [one["metrics"].get(f"{prefix}/{name}") for name in _RECALLS]
            if values[0] is not None:
                console.print(f"  {protocol:15s}" + "".join(f"{value:9.2f}" for value in values))


_OF_TABLE = re.compile(
    rf"""(?:["']?(?:(?:caption|comment|id|index|name|sentence|split|text)s? | (?:file|image)(?:name|path|id)? | \w+_\w+)
          | \S+(?:{"|".join(map(re.escape, PICTURES))}))["']?(?:[,;](?!\s) | [|\t])  # names of columns, or a row
      | [\[{{]\s*\Z  # JSON on several lines""",
    re.IGNORECASE | re.VERBOSE,
)


@checkpoints.command()
def embed(
    model: Model,
    out: Annotated[Path, Output(help="The .npy file to write: a float32 row for each item.")],
    images: Annotated[Path | None, typer.Option(help="A folder of pictures, or one picture.")] = None,
    texts: Annotated[Path | None, typer.Option(help="A text file with a sentence of known words on each line.")] = None,
    set_: Set = None,
    store: StoreDir = None,
    trust_plugins: Trust = False,
    weights: Weights = None,
    plugin: Plugins = None,
    device: Device = "cpu",
    force: Force = False,
) -> None:
    """Embed pictures or sentences with a trained cell, and list beside them (.npy.txt) what each row is.

    Example: goal-sweep embed photos.yaml --images holidays --out holidays.npy

    Example: goal-sweep embed STORE/cells/CELL/finetune-KEY --texts lines.txt --out lines.npy
    """
    from goal_sweep.goal_core.evaluation.trained_model import load_model

    if (images is None) == (texts is None):
        raise GoalError("give --images or --texts")
    out = new_file(out if out.suffix == ".npy" else Path(f"{out}.npy"), force=force)
    listed = new_file(Path(f"{out}.txt"), force=force, read=[texts] if texts else ())
    checkpoint = model_of(model, set_, store, trusted=trust_plugins).path
    trained = load_model(checkpoint, weights=weights, device=device, plugins=plugin or ())
    if texts is None:
        names = [str(path) for path in _pictures(images or Path())]
        if broken := next(filter(LINES.search, names), ""):
            raise GoalError(f"{broken!r} has a line break in its name, which a list of names cannot hold; rename it")
        rows = trained.encode_images(names)
    else:
        if texts.suffix.lower() in (".json", ".jsonl", *TABLES):
            raise GoalError(f"{texts}: --texts takes a text file with a sentence on each line")
        names = read_lines(texts, LINES)
        if _OF_TABLE.match(names[0]):
            raise GoalError(f"{texts} begins as a table: {names[0]!r:.80}; write its captions alone, one on a line")
        for number, line in enumerate(names, start=1):
            if captions_in(line, f"{texts}:{number}") != [line]:
                raise GoalError(f"{texts}:{number} is a list or an object; write one sentence on a line: {line!r:.80}")
            trained.unknown_words(line, f"{texts}:{number}: ")
        rows = trained.encode_texts(names)
    np.save(content := BytesIO(), rows)
    lines = "".join(f"{name}\n" for name in names).encode(errors="surrogateescape")
    replace_with(out, lambda path: path.write_bytes(content.getbuffer()), guard=lambda: replace_bytes(listed, lines))
    console.print(f"{out}: {len(rows)} rows of {rows.shape[1]} numbers, of unit length; {listed.name} names them")


@checkpoints.command()
def search(
    words: ModelAndText,
    images: Annotated[
        Path | None, typer.Option(help="The folder of pictures to search; default: the test images of its data.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many pictures to show.")] = 5,
    page: Annotated[Path | None, Output(help="Also write an HTML page of them.")] = None,
    set_: Set = None,
    store: StoreDir = None,
    trust_plugins: Trust = False,
    weights: Weights = None,
    plugin: Plugins = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Find the pictures that a trained cell takes for the nearest to a sentence.

    Example: goal-sweep search photos.yaml con/nca "a red flag"

    Example: goal-sweep search STORE/cells/CELL/finetune-KEY "a red flag" --images flags --page found.html
    """
    from goal_sweep.goal_core.evaluation.trained_model import load_model

    *model, text = words
    if not model or not text.strip():
        raise GoalError("give a sentence to look for, in quotes, after the model")
    names = [] if images is None else [str(path) for path in _pictures(images)]
    checkpoint, root = model_of(model, set_, store, trusted=trust_plugins)
    page = page and new_file(page, force=force, read=[checkpoint, *map(Path, names)])
    if page and page.suffix.lower() not in (".html", ".htm"):
        raise GoalError(f"{page}: a page is HTML; give it a name that ends in .html")
    trained = load_model(checkpoint, weights=weights, device=device, plugins=plugin or ())
    captions = [""] * len(names)
    if images is None:
        names, captions, rows = _test_images(trained, root)
    else:
        rows = trained.encode_images(names)
    found = [(names[index], captions[index], near) for index, near in trained.search(text, rows, top)]
    if page is not None:  # first, as whoever reads the lines may stop
        page.write_text(_page(text, found))
    if as_json:
        print(json.dumps([dict(zip(("image", "caption", "similarity"), one, strict=True)) for one in found], indent=2))
        return
    for name, caption, similarity in found:
        console.print(f"{similarity:6.3f}  {f'{caption}  {name}'.strip()}")


@checkpoints.command()
def export(
    model: Model,
    onnx: Annotated[Path | None, Output(help="The folder to write ONNX files to.")] = None,
    torch: Annotated[Path | None, Output(help="The folder to write programs of torch.export to.")] = None,
    safetensors: Annotated[Path | None, Output(help="The file to write the whole model to, for goal-sweep.")] = None,
    longest: Annotated[int, typer.Option(min=4, help="Ids of the longest caption; a GRU pads to it.")] = 77,
    set_: Set = None,
    store: StoreDir = None,
    trust_plugins: Trust = False,
    weights: Weights = None,
    plugin: Plugins = None,
    force: Force = False,
) -> None:
    """Write a trained model for use elsewhere: image tower and text tower apart, with tokenizer and preprocessing.

    ONNX needs the extra `goal-sweep[onnx]`. What was written is compared with the model.

    Example: goal-sweep export quickstart.yaml con/nca --torch towers
    """
    from goal_sweep.goal_core.evaluation.export import Kind, file_names
    from goal_sweep.goal_core.evaluation.trained_model import load_model

    if [onnx, torch, safetensors].count(None) != 2:
        raise GoalError("give one of --onnx, --torch and --safetensors")
    kind: Kind = "torch" if onnx is None else "onnx"
    checkpoint = model_of(model, set_, store, trusted=trust_plugins).path
    folder = onnx or torch or Path()
    for file in [safetensors] if safetensors else [folder / name for name in file_names(kind)]:
        new_file(file, force=force, read=[*checkpoint.glob("*"), checkpoint])
    trained = load_model(checkpoint, weights=weights, plugins=plugin or ())
    if safetensors:
        trained.save(safetensors, force=True)
        console.print(str(safetensors))
        return
    for name, off in trained.export(folder, kind, longest=longest, force=True).items():
        said = "not compared: onnxruntime is missing" if off is None else f"at most {off:.0e} from the model"
        console.print(f"{folder / name}: {said}")
    console.print(f"{folder / 'README.txt'}: how to use them")


@checkpoints.command()
def recall(
    images: Annotated[Path, typer.Argument(help="A .npy of image embeddings, a row for each image.")],
    texts: Annotated[Path, typer.Argument(help="A .npy of text embeddings, a row for each text.")],
    owners: Annotated[
        Path | None, typer.Option(help="A .npy with the number of each text's image, from 0. Else texts are in order.")
    ] = None,
    folds: Annotated[int, typer.Option(min=1, help="Cut the images into so many parts and take the mean.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Compute the recall of embeddings that any model has written.

    Example: goal-sweep recall images.npy texts.npy --owners owners.npy
    """
    from goal_sweep.goal_core.evaluation.retrieval import recall as recall_of

    loaded = [_array(path, ("rows", "numbers")) for path in (images, texts)]
    loaded += [_array(owners, ("texts",), "iu")] if owners else []
    with warnings.catch_warnings(record=True, action="always") as caught:
        found = recall_of(*loaded, folds=folds)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    console.print(f"{len(loaded[0])} rows of images, {len(loaded[1])} of texts")
    console.print("  ".join(f"{name} {found[name]:.2f}" for name in _RECALLS))


def _array(path: Path, axes: tuple[str, ...], kinds: str = "f") -> Any:
    """The array of a .npy, mapped."""
    read_region_header(path, axes, kinds)
    return np.lib.format.open_memmap(path, mode="c")


def _pictures(folder: Path) -> list[Path]:
    """The pictures in a folder and below, in the order of their names; or the one picture."""
    if folder.is_file():
        return [folder]
    inside = tree(folder) if folder.is_dir() else []
    found = [one for one in inside if one.suffix.lower() in PICTURES]
    if left := [one for one in inside if one.is_file() and one.suffix.lower() not in (*PICTURES, ".txt")]:
        warn(f"{len(left):,} files left out, of another format, such as {left[0]}")
    if not found:
        raise GoalError(f"{folder}: no pictures there")
    return found


def _test_images(model: "RetrievalModel", root: str | None) -> tuple[list[str], list[str], NDArray[np.float32]]:
    """The names of the test images of the data that a model was trained on, their first captions and embeddings."""
    from goal_sweep.goal_core.evaluation.evaluate import check_same_data

    description = model.description.moved(root=root, weights=None)
    dataset = open_dataset(description.data, own_indexes(), needed=("test",))
    check_same_data(dataset, description)
    split = dataset.splits["test"]
    rows = []
    for part in index_parts(split.num_images, _AT_ONCE):
        if model.description.data.image is None:
            rows.append(model.encode_features(split.load_regions(part)))
        else:
            rows.append(model.encode_images([split.load_image(index) for index in part]))
    firsts = np.searchsorted(split.caption_image, np.arange(split.num_images))
    names = [split.reader.label(index) for index in range(split.num_images)]
    return names, [split.captions[first] for first in firsts], np.concatenate(rows)


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body {{font: 15px system-ui, sans-serif; margin: 1.5em}} h1 {{font-size: 1.4em}}
main {{display: flex; flex-wrap: wrap; gap: 1em}} figure {{margin: 0; width: 220px}}
img {{max-width: 100%; background: white}} figcaption {{overflow-wrap: anywhere}}</style>
<h1>{title}</h1><main>{items}</main></html>
"""


def _page(text: str, found: Sequence[tuple[str, str, float]]) -> str:
    title = html.escape(printable(text))
    items = []
    for name, caption, similarity in found:
        path = Path(name)
        picture = f'<img src="{html.escape(path.resolve().as_uri())}" width="220"> ' if path.is_file() else ""
        said = html.escape(printable(f"{caption} {path.name if picture else name}".strip()))
        items.append(f"<figure>{picture}<figcaption>{similarity:.3f} {said}</figcaption></figure>")
    return _PAGE.format(title=title, items="".join(items))


@checkpoints.command()
def convert(
    checkpoint: Annotated[
        Path, typer.Argument(help="The published checkpoint: VSE++'s .pth.tar, VSE-infinity's .pth or X-VLM's .th.")
    ],
    out: Annotated[Path, Output(help="The .safetensors file to write.")],
    vocabulary: Annotated[
        Path, typer.Option(help="The vocabulary of its training: VSE++'s coco_vocab.pkl or .json, or BERT's vocab.txt.")
    ],
    sweep: Annotated[str, typer.Option(help="A sweep of the same framework, whose `data` it will be evaluated on.")],
    set_: Set = None,
    force: Force = False,
) -> None:
    """Convert a published checkpoint of VSE++, VSE-infinity or X-VLM, without running code from its pickle.

    Example: goal-sweep convert model_best.pth.tar --vocabulary coco_vocab.pkl --sweep coco_vsepp --out coco.safetensors
    """
    from goal_sweep.goal_core.official import read_published

    new_file(out, force=force, read=(checkpoint, vocabulary))
    config = load_sweep(sweep, set_ or ())
    with SweepArguments(sweep, set_).placed():
        fingerprint = open_dataset(config.data, own_indexes()).fingerprint
    official = read_published(
        config.model.framework, checkpoint, vocabulary, data=config.data, data_fingerprint=fingerprint
    )
    official.write(out)
    model, words = official.description.model, official.description.vocabulary
    console.print(
        f"{out}: {model.framework} {model.backbone.name}, {len(official.tensors)} tensors, all used; "
        f"{len(words)} words, epoch {official.epoch}{'' if official.leftovers else '; nothing left over'}"
    )
    for reason, names in official.leftovers.items():
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        console.print(f"left over, {reason}: {len(names)} ({shown})")
