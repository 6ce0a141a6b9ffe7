"""Recall of one finished cell, from its checkpoint and its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from goal_core.checkpoints.description import ModelDescription, moved
from goal_core.checkpoints.file import load_module, read_checkpoint, take_prefix
from goal_core.data import Dataset, open_dataset
from goal_core.errors import DataError, WeightsError
from goal_core.evaluation.embedding import EvalSplit, prepare_split, split_inputs
from goal_core.evaluation.recalls import recalls_of
from goal_core.frameworks import framework_of
from goal_core.models.encoder import Encoder, num_features


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A trained cell with its data, ready to embed."""

    card: ModelDescription
    epoch: int
    """Which epoch's weights they are."""
    encoder: Encoder
    dataset: Dataset

    def prepared(self, split: str) -> EvalSplit:
        """A split as :func:`goal_core.evaluation.embedding.embed_split` takes it."""
        chosen = self.dataset.splits[split]
        inputs = split_inputs(chosen, self.card.data.image, self.encoder.device)
        return prepare_split(chosen, self.card.vocabulary, inputs)


def open_checkpoint(path: Path, *, root: str | None = None, weights: str | None = None, device: str = "cpu") -> Opened:
    """Load a trained cell and open its data; arguments and errors as those of :func:`evaluate_checkpoint`."""
    path = path / "best.safetensors" if path.is_dir() else path
    tensors, state = read_checkpoint(path)
    if "card" not in state:
        raise WeightsError(f"{path} is no model to evaluate (training state?); give the best.safetensors beside it")
    card = moved(ModelDescription.from_json(state["card"]), root=root, weights=weights)
    dataset = open_dataset(card.data)
    if dataset.fingerprint != card.data_fingerprint:
        raise DataError(
            "the data is not what the cell was trained on: "
            f"fingerprint {dataset.fingerprint}, not {card.data_fingerprint}"
        )
    encoder = _encoder(card, tensors, path, torch.device(device), dataset)
    return Opened(card=card, epoch=state["epoch"], encoder=encoder, dataset=dataset)


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
    opened = open_checkpoint(path, root=root, weights=weights, device=device)
    return describe(opened, split, recalls_of(opened.encoder, opened.prepared(split), split))


def describe(opened: Opened, split: str, metrics: Mapping[str, float]) -> dict[str, Any]:
    """What was evaluated, beside its metrics; see :func:`evaluate_checkpoint`."""
    card, chosen = opened.card, opened.dataset.splits[split]
    return {
        "cell": card.cell,
        "stage": card.stage,
        "objective": f"{card.objective['pair']}/{card.objective['triplet']}",
        "seed": card.seed,
        "epoch": opened.epoch,
        "split": split,
        "images": chosen.num_images,
        "captions": chosen.num_captions,
        "metrics": dict(metrics),
    }


def _encoder(
    card: ModelDescription, tensors: dict[str, torch.Tensor], path: Path, device: torch.device, dataset: Dataset
) -> Encoder:
    """The model of a checkpoint; its backbone from the file, or from the weights it was frozen with."""
    framework = framework_of(card.model)
    stored, model = take_prefix("backbone", tensors), card.model
    if stored:  # it is about to be overwritten: spare the file or the download
        model = replace(model, backbone=replace(model.backbone, weights="random"))
    elif model.backbone.weights != "precomputed" and framework.weights_id(model) != card.weights:
        raise WeightsError(
            f"the backbone's weights have changed: {model.backbone.weights} is {framework.weights_id(model)}, "
            f"the cell used {card.weights}"
        )
    backbone = framework.backbone(model, card.data, card.seed)
    if stored and backbone is not None:
        load_module(backbone, stored, path)
    width = num_features(backbone, dataset.splits["test"])
    heads = framework.heads(card.model, num_features=width, tokenizer=card.vocabulary, seed=card.seed)
    load_module(heads, take_prefix("heads", tensors), path)
    backbone = None if backbone is None else backbone.to(device)
    return Encoder(heads=heads.to(device), backbone=backbone, precision=card.precision, device=device)
