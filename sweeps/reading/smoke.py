"""Any sweep, small enough to try it on a CPU within a minute: `SWEEP+smoke` in the place of `SWEEP`."""

from __future__ import annotations

from typing import Any, Final

from goal_sweep.sweeps.reading.document import Document, Problem

SUFFIX: Final = "+smoke"
"""What follows a sweep's name or path to make it small."""
_DATA: Final = {"format": "scenes", "num_train": 64, "num_val": 16, "num_test": 16, "min_word_count": 1}
_BERT: Final = {"weights": "random", "layers": 2, "width": 64, "heads": 2}
_PARTS: Final[dict[str, dict[str, Any]]] = {
    "vsepp": {"text": {"word_dim": 32}},
    "vse_infty": {"bert": _BERT},
    "xvlm": {"bert": _BERT, "xvlm": {"fusion_layer": 1, "rerank_top": 4}},
}
"""The small parts of each framework whose models can be made up."""
_STAGE: Final = {"epochs": 1, "batch_size": 16}
_KEPT: Final = "name lr optimizer weight_decay beta2 schedule lr_warmup grad_clip drop_last bn_mode".split()


def shrunk(root: Document, problems: list[Problem]) -> Document:
    """Make a sweep small: two objectives, one seed, one epoch of drawn pictures, a small random backbone, one CPU.

    Its framework, stages and optimisers stay, its plugins, its store and its tracking. Its name gets `-smoke`.
    """
    framework = str(root.at(("model", "framework")) or "vsepp")
    if framework not in _PARTS:
        message = f"{SUFFIX} makes up pictures and a model, as it can for {', '.join(_PARTS)}; got {framework}"
        problems.append(Problem(root.place(()), "model.framework", message))
    backbone = "swin_mini_patch8_window4" if framework == "xvlm" else "test_resnet"
    own = {"backbones": [{"name": backbone, "weights": "random"}], "embed_dim": 64, **_PARTS.get(framework, {})}
    augment = root.at(("data", "image", "augment")) or "none"
    names = {key: found for key in ("pair", "triplet") if (found := _items(root.at(("objectives", key))))}
    grid = [f"{pair}/{triplet}" for pair in names.get("pair", ["con"]) for triplet in names.get("triplet", ["con"])]
    chosen = _items(root.at(("objectives", "only"))) or grid
    small = {
        "name": f"{root.at(('name',))}-smoke",
        "data": {**_DATA, "image": {"size": 64, "resize": 64, "augment": augment}},
        "model": {"framework": framework, **own},
        "objectives": {**names, "only": list(dict.fromkeys([chosen[0], chosen[-1]]))},
        "seeds": _items(root.at(("seeds",)))[:1] or [1],
        "stages": [
            {**{key: (_items(stage[key]) or [stage[key]])[0] for key in _KEPT if key in stage}, **_STAGE}
            for stage in _items(root.at(("stages",)))
            if isinstance(stage, dict)
        ],
        "execution": {"sharing": root.at(("execution", "sharing")) or "auto"},
    }
    kept = {key: root.content[key] for key in ("plugins", "store", "tracking") if key in root.content}
    return Document({**small, **kept}, root.places)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
