"""Recall of one finished cell, from its checkpoint and its data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from goal_core.data import open_dataset
from goal_core.errors import DataError, WeightsError
from goal_core.models import VseppHeads, build_backbone, weights_id
from goal_core.training.card import Card, moved
from goal_core.training.checkpoint import load_module, read_checkpoint, take_prefix
from goal_core.training.embed import prepare_split, recalls_of
from goal_core.training.encoder import Encoder
from goal_core.training.trunk import split_pixels


def evaluate_checkpoint(
    path: Path,
    *,
    split: Literal["train", "val", "test"] = "test",
    root: str | None = None,
    weights: str | None = None,
    device: str = "cpu",
    threads: int = 1,
) -> dict[str, Any]:
    """Rank a split with a trained cell.

    Args:
        path: a ``best.safetensors``, or the folder it lies in.
        split: which split.
        root: the data's folder, where it is not the one the cell was trained with.
        weights: the backbone's weights file, where it has moved; its content must be the same.
        device: `cpu` or `cuda`.
        threads: torch's CPU threads.

    Returns:
        ``metrics`` (recalls by name, percent), and what was evaluated: ``cell``, ``stage``, ``objective``, ``seed``,
        ``epoch``, ``split``, ``images``, ``captions``.

    Raises:
        WeightsError: the checkpoint or the backbone's weights are missing, damaged or changed.
        DataError: the data is missing, or is not the data the cell was trained on.
    """
    torch.set_num_threads(threads)
    path = path / "best.safetensors" if path.is_dir() else path
    tensors, state = read_checkpoint(path)
    if "card" not in state:
        raise WeightsError(f"{path} is no model to evaluate (training state?); give the best.safetensors beside it")
    card = moved(Card.from_json(state["card"]), root=root, weights=weights)
    dataset = open_dataset(card.data)
    if dataset.fingerprint != card.data_fingerprint:
        raise DataError(
            "the data is not what the cell was trained on: "
            f"fingerprint {dataset.fingerprint}, not {card.data_fingerprint}"
        )
    encoder = _encoder(card, tensors, path, torch.device(device))
    chosen = dataset.splits[split]
    ready = prepare_split(chosen, card.vocabulary, split_pixels(chosen, card.data.image, encoder.device))
    return {
        "cell": card.cell,
        "stage": card.stage,
        "objective": f"{card.objective['pair']}/{card.objective['triplet']}",
        "seed": card.seed,
        "epoch": state["epoch"],
        "split": split,
        "images": chosen.num_images,
        "captions": chosen.num_captions,
        "metrics": recalls_of(encoder, ready, split),
    }


def _encoder(card: Card, tensors: dict[str, torch.Tensor], path: Path, device: torch.device) -> Encoder:
    """The model of a checkpoint; its backbone from the file, or from the weights it was frozen with."""
    stored = take_prefix("backbone", tensors)
    config = card.model.backbone
    if not stored and weights_id(config) != card.weights:
        raise WeightsError(
            f"the backbone's weights have changed: {config.weights} is {weights_id(config)}, "
            f"the cell used {card.weights}"
        )
    if stored:
        config = replace(config, weights="random")  # about to be overwritten: spare the file or the download
    backbone = build_backbone(config, image_size=card.data.image.size, seed=card.seed)
    if stored:
        load_module(backbone, stored, path)
    heads = VseppHeads(
        num_features=backbone.num_features,
        vocab_size=len(card.vocabulary),
        text=card.model.text,
        embed_dim=card.model.embed_dim,
        seed=card.seed,
    )
    load_module(heads, take_prefix("heads", tensors), path)
    return Encoder(heads=heads.to(device), backbone=backbone.to(device), precision=card.precision, device=device)
