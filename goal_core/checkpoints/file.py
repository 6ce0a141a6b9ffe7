"""One safetensors file: tensors by name, everything else as JSON in its header.

A training's state is one file because a file is replaced as a whole: weights, optimiser, random streams, position and
history always belong to the same moment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from goal_core.errors import WeightsError

LAST: Final = "last.safetensors"
"""Everything from which a training continues."""
BEST: Final = "best.safetensors"
"""The weights of the best epoch."""


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors and a JSON-able state to a file. Not atomic: the caller puts the file in place."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, path, metadata={"state": json.dumps(state, sort_keys=True)})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_checkpoint` wrote. Nothing is unpickled.

    Raises:
        WeightsError: the file is missing or damaged, or goal-sweep did not write it.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if "state" not in metadata:
                raise WeightsError(f"{path} is not a goal-sweep checkpoint: its header has no state")
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(metadata["state"])
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise WeightsError(f"cannot read checkpoint {path}: {error}") from error


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under ``prefix.name``."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def take_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with ``prefix.``, without it."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def load_module(module: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Load a module's tensors, all of them and no others.

    Raises:
        WeightsError: a tensor is missing, is left over or has the wrong shape.
    """
    own = module.state_dict()
    problems = [f"no {name}" for name in own.keys() - tensors.keys()]
    problems += [f"unknown {name}" for name in tensors.keys() - own.keys()]
    problems += [
        f"{name} is {tuple(tensors[name].shape)}, not {tuple(own[name].shape)}"
        for name in own.keys() & tensors.keys()
        if own[name].shape != tensors[name].shape
    ]
    if problems:
        raise WeightsError(f"checkpoint {source} does not fit the model: {'; '.join(sorted(problems)[:3])}")
    module.load_state_dict(dict(tensors))


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's per-parameter state, as ``<parameter number>.<name>``."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value for index, slots in state.items() for name, value in slots.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what :func:`optimizer_tensors` gave; hyper-parameters stay as the optimiser was built."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, slot = name.split(".", 1)
        state.setdefault(int(index), {})[slot] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
