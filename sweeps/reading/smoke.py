"""Any sweep, small enough to try it on a CPU within a minute: `SWEEP+smoke` in the place of `SWEEP`."""

from __future__ import annotations

from typing import Any, Final

from goal_sweep.sweeps.reading.tree import Node, Problem

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
_KEPT: Final = ("optimizer", "weight_decay", "beta2", "schedule", "lr_warmup", "grad_clip", "drop_last", "bn_mode")
"""Settings of a stage that stay, beside its name and its learning rate."""


def shrunk(root: Node, problems: list[Problem]) -> Node:
    """Make a sweep small: two objectives, one seed, one epoch of drawn pictures, a small random backbone, one CPU.

    Its framework, stages and optimisers stay, its plugins, its store and its tracking. Its name gets `-smoke`.

    Args:
        root: the sweep file, after `extends`, with its abbreviations expanded.
        problems: receives a framework whose models cannot be made up.
    """
    plain = root.plain()
    model, objectives = _mapping(plain, "model"), _mapping(plain, "objectives")
    framework = model.get("framework", "vsepp")
    if framework not in _PARTS:
        message = f"{SUFFIX} makes up pictures and a model, as it can for {', '.join(_PARTS)}; got {framework}"
        problems.append(Problem(root.where, "model.framework", message))
    augment = _mapping(_mapping(plain, "data"), "image").get("augment", "none")
    backbone = "swin_mini_patch8_window4" if framework == "xvlm" else "test_resnet"
    own = {"backbones": [{"name": backbone, "weights": "random"}], "embed_dim": 64, **_PARTS.get(framework, {})}
    small: dict[str, Any] = {
        "name": f"{plain.get('name')}-smoke",
        "data": {**_DATA, "image": {"size": 64, "resize": 64, "augment": augment}},
        "model": {"framework": framework, **own},
        "objectives": {key: objectives[key] for key in ("pair", "triplet") if key in objectives},
        "seeds": _items(plain.get("seeds"))[:1] or [1],
        "stages": [
            {**{key: _first(stage[key]) for key in ("name", "lr", *_KEPT) if key in stage}, **_STAGE}
            for stage in _items(plain.get("stages"))
            if isinstance(stage, dict)
        ],
        "execution": {"sharing": _mapping(plain, "execution").get("sharing", "auto")},
    }
    pairs, triplets = (_items(objectives.get(key)) or ["con"] for key in ("pair", "triplet"))
    grid = [f"{pair}/{triplet}" for pair in pairs for triplet in triplets]
    chosen = _items(objectives.get("only")) or grid
    small["objectives"]["only"] = list(dict.fromkeys([chosen[0], chosen[-1]]))
    kept = {key: node for key in ("plugins", "store", "tracking") if (node := root.child(key)) is not None}
    return Node({**{key: root.made(value) for key, value in small.items()}, **kept}, root.where)


def _mapping(plain: Any, key: str) -> dict[str, Any]:
    found = plain.get(key)
    return found if isinstance(found, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(value: Any) -> Any:
    """One value of a setting that may have several."""
    return value[0] if isinstance(value, list) and value else value
