"""Recall of several cells together: the mean of their similarities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from goal_core.data import Split, tokenize
from goal_core.errors import ConfigError, DataError
from goal_core.evaluation.embedding import embed_split
from goal_core.evaluation.evaluate import Opened, describe, open_checkpoint
from goal_core.evaluation.recalls import recalls_between


def evaluate_ensemble(
    paths: Sequence[Path],
    *,
    split: Literal["train", "val", "test"] = "test",
    root: str | None = None,
    device: str = "cpu",
    threads: int = 1,
) -> dict[str, Any]:
    """Rank a split by the mean of the similarities of several trained cells.

    The cells may differ in anything but the images and captions they are ranked on: other seeds, objectives,
    backbones, or frameworks, one of which reads regions and the other images.

    The mean of dot products is, up to a factor, the dot product of the embeddings laid end to end, so this is the
    ranking of one model with long embeddings: exact, in blocks, and with ties counted against the ensemble.

    Args:
        paths: two checkpoints or more, each as in :func:`~goal_core.evaluation.evaluate.evaluate_checkpoint`.
        split: which split.
        root: the data's folder, where it is not the one the cells were trained with.
        device: `cpu` or `cuda`.
        threads: torch's CPU threads.

    Returns:
        ``metrics`` of the ensemble (recalls by name, percent), ``split``, ``images``, ``captions``, and ``members``:
        for each checkpoint what ``evaluate_checkpoint`` returns of it.

    Raises:
        ConfigError: fewer than two checkpoints, one given twice, or one that re-ranks with more than similarities.
        DataError: the cells' splits are not the same images and captions in the same order.
        WeightsError: a checkpoint is missing or damaged.

    Source: VSE-infinity's ensembles (Chen et al. 2021, arXiv:2011.04305), of two models.
    """
    if len(paths) < 2:
        raise ConfigError(f"an ensemble takes two checkpoints or more, got {len(paths)}")
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("an ensemble takes each checkpoint once; the same one is given twice")
    torch.set_num_threads(threads)
    members, images, texts = [], [], []
    first: Split | None = None
    caption_image = torch.empty(0)
    for path in paths:
        opened = open_checkpoint(path, root=root, device=device)
        _check_member(path, opened)
        chosen = opened.dataset.splits[split]
        first = first or chosen
        check_same_queries(first, chosen, paths[0], path)
        prepared = opened.prepared(split)
        caption_image = prepared.caption_image.to(opened.encoder.device)
        image_ND, text_MD = embed_split(opened.encoder, prepared)
        members.append(describe(opened, split, recalls_between(image_ND, text_MD, caption_image, split)))
        images.append(image_ND)
        texts.append(text_MD)
    assert first is not None
    return {
        "split": split,
        "images": first.num_images,
        "captions": first.num_captions,
        "metrics": recalls_between(torch.cat(images, 1), torch.cat(texts, 1), caption_image, split),
        "members": members,
    }


def check_same_queries(first: Split, other: Split, first_path: Path, other_path: Path) -> None:
    """Check that two splits are the same images and captions in the same order.

    Images are told by their captions, word by word, for region files and image files name them differently.

    Raises:
        DataError: they are not; the message says where they part.
    """
    if first.caption_image.tolist() != other.caption_image.tolist():
        raise DataError(
            f"{first_path} and {other_path} are ranked on different data: {first.num_images} images with "
            f"{first.num_captions} captions, and {other.num_images} with {other.num_captions}"
        )
    for index, (one, two) in enumerate(zip(first.captions, other.captions, strict=True)):
        if one != two and tokenize(one) != tokenize(two):
            raise DataError(
                f"{first_path} and {other_path} are ranked on different data: caption {index} of split "
                f"{first.name!r} is {one!r} for the one and {two!r} for the other"
            )


def _check_member(path: Path, opened: Opened) -> None:
    if opened.encoder.heads.rerank_top:
        raise ConfigError(
            f"{path} ({opened.card.model.framework}) re-ranks the nearest by a score that is no similarity; an "
            "ensemble averages similarities"
        )
