"""Activation checkpointing of a backbone: its blocks keep only their inputs, and run again in the backward pass.

The second run is the first one again: it draws the same random numbers, its modules are in the modes of the first run,
and batch normalisation that uses the statistics of the batch does not count them into the running ones a second time.

Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from goal_core.basics.errors import ConfigError
from goal_core.models.batch_rows import WholeBatchDraws


def recompute_blocks(net: nn.Module) -> None:
    """Make every block of a network run again in the backward pass. The names of its tensors stay.

    Args:
        net: whose blocks are the items of its sequences and lists of modules, as in timm's models.

    Raises:
        ConfigError: it has no blocks.
    """
    blocks = blocks_of(net)
    if not blocks:
        raise ConfigError(f"recompute: {type(net).__name__} has no blocks that could run again; leave the setting out")
    for block in blocks:
        block.forward = partial(_run_twice, block, block.forward)  # of this block alone


def blocks_of(net: nn.Module) -> list[nn.Module]:
    """The innermost items of a network's sequences and lists that consist of several layers with weights."""
    blocks: list[nn.Module] = []
    for child in net.children():
        if inner := blocks_of(child):
            blocks += inner
        elif isinstance(net, nn.Sequential | nn.ModuleList | nn.ModuleDict) and _num_layers(child) > 1:
            blocks.append(child)
    return blocks


def _num_layers(module: nn.Module) -> int:
    return sum(1 for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None)


def _run_twice(block: nn.Module, forward: Callable[..., Any], *args: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **named)
    # Callers of DenseNets' blocks append to the lists that they passed.
    args = tuple(list(value) if isinstance(value, list) else value for value in args)
    return checkpoint(forward, *args, use_reentrant=False, context_fn=partial(_contexts, block), **named)


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The contexts of the first run and of the second."""
    modes = {module: module.training for module in block.modules()}
    return nullcontext(), _again(modes, WholeBatchDraws.continued())


@contextmanager
def _again(modes: Mapping[nn.Module, bool], draws: WholeBatchDraws | None) -> Iterator[None]:
    """Modules as in the first run, except that they count into copies; draws from where the first run began."""
    now = {module: module.training for module in modes}
    counted = {norm: dict(norm._buffers) for norm in modes if isinstance(norm, _BatchNorm) and modes[norm]}
    try:
        for module, training in modes.items():
            module.training = training
        for norm, buffers in counted.items():
            norm._buffers.update({name: None if value is None else value.clone() for name, value in buffers.items()})
        with draws or nullcontext():
            yield
    finally:
        for norm, buffers in counted.items():
            norm._buffers.update(buffers)
        for module, training in now.items():
            module.training = training
