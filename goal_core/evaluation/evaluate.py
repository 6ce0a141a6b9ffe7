"""Recall of trained cells, one or several together, from their checkpoints and their data."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from goal_sweep.goal_core.basics.errors import CollapsedError, ConfigError, DataError, GoalError, warn
from goal_sweep.goal_core.basics.files import kept_columns
from goal_sweep.goal_core.checkpoints.file import ModelDescription, TrainedModel, read_model
from goal_sweep.goal_core.checkpoints.initial_model import trained_encoder
from goal_sweep.goal_core.data import SPLIT_NAMES, DataConfig, Dataset, Split
from goal_sweep.goal_core.data.config import ScenesConfig, SourceConfig
from goal_sweep.goal_core.data.dataset import fingerprint_of
from goal_sweep.goal_core.data.formats.index import Index, index_path, own_indexes
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.inputs import captions_of, warn_of_reading
from goal_sweep.goal_core.data.words import tokenize
from goal_sweep.goal_core.evaluation import recalls
from goal_sweep.goal_core.evaluation.retrieval import EmbeddingError
from goal_sweep.goal_core.models.heads import Encoder
from goal_sweep.goal_core.objectives.variants import objective_name

SplitName = Literal["train", "val", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCheckpoint:
    """A trained cell with its data, ready to embed. :func:`open_checkpoint` makes one."""

    path: Path
    description: ModelDescription
    epoch: int
    """The epoch whose weights these are."""
    encoder: Encoder
    dataset: Dataset
    trained_on: str
    """Name of the data that it was trained on."""

    def prepared(self, split: str) -> recalls.EvalSplit:
        """A split in the form that :func:`goal_core.evaluation.recalls.embed_split` takes."""
        chosen = self.dataset.splits[split]
        inputs = recalls.split_inputs(chosen, self.description.data.image, self.encoder.device)
        return recalls.prepare_split(chosen, self.description.vocabulary, inputs)

    def evaluate(self, split: SplitName = "test", embedded: recalls.Embedded | None = None) -> dict[str, Any]:
        """Measure the recall on a split.

        Returns:
            ``metrics`` (recalls by name, percent), and what was evaluated: ``cell``, ``stage``, ``objective``,
            ``seed``, ``epoch``, ``trained_on``, ``data``, ``split``, ``images``, ``captions``.
        """
        description, chosen = self.description, self.dataset.splits[split]
        try:
            metrics = recalls.all_recalls_of(self.encoder, self.prepared(split), embedded)[0]
        except (EmbeddingError, CollapsedError) as error:
            raise type(error)(f"{self.path}: {error}") from error
        return {
            "cell": description.cell,
            "stage": description.stage,
            "objective": objective_name(description.objective["pair"], description.objective["triplet"]),
            "seed": description.seed,
            "epoch": self.epoch,
            "trained_on": self.trained_on,
            "data": self.dataset.name,
            "split": split,
            "images": chosen.num_images,
            "captions": chosen.num_captions,
            "metrics": metrics,
        }


def open_checkpoint(
    path: Path,
    *,
    root: str | None = None,
    weights: str | None = None,
    device: str = "cpu",
    data: DataConfig | None = None,
    splits: Collection[str] = SPLIT_NAMES,
    indexes: Path | None = None,
) -> OpenedCheckpoint:
    """Load a trained cell and open its data.

    Args:
        root: the data's folder, if it is not the one the cell was trained with.
        weights: the backbone's weights file, if it has moved; its content must be the same.
        data: other data than the cell was trained on. Words and the preparation of images stay the cell's. Where the
            data say no split, all images are test.
        splits: those that the data must have.
        indexes: the folder of the indexes of datasets; None: this user's own.
    """
    torch.set_num_threads(1)  # of the CPU; another number can change the last bit of a similarity
    trained = read_model(path)
    description = trained.description.moved(root=root, weights=weights)
    if data is not None:
        own = description.data
        if (data.image is None) != (own.image is None):
            has, takes = data.format, "pictures" if own.image is not None else own.format
            raise ConfigError(f"the cell takes {takes}, but the other data are {has}")
        if own.image is not None:
            data = replace(data, image=own.image)  # type: ignore[arg-type]  # all with pictures have one
        if isinstance(data, SourceConfig):
            data = replace(data, val_share=0.0, test_share=1.0)
        description = replace(description, data=data)
    dataset = open_dataset(description.data, indexes or own_indexes(), needed=splits)
    if data is None:
        check_same_data(dataset, description)
    else:
        words, chosen = description.vocabulary, [dataset.splits[name] for name in splits]
        for split in chosen:
            of, again = f"{split.num_images:,} {split.name} images", _trained_on(trained, split)
            if again is None:
                warn(f"how many of {of} are training images of {path} is not known: no index of its data is kept here")
            elif again:
                warn(f"{again:,} of {of} are training images of {path}, so its recall on them says little")
        warn_of_reading([captions_of(split, words) for split in chosen], words)
    encoder = trained_encoder(trained, description, torch.device(device), dataset)
    return OpenedCheckpoint(
        path=path,
        description=description,
        epoch=trained.epoch,
        encoder=encoder,
        dataset=dataset,
        trained_on=trained.description.data.name,
    )


def check_same_data(dataset: Dataset, description: ModelDescription) -> None:
    """Check that data are those that a model was trained on, to the byte; else a `DataError`."""
    if dataset.fingerprint != description.data_fingerprint:
        are = f"fingerprint {dataset.fingerprint}, not {description.data_fingerprint}"
        where = f" in {description.data.root}" if description.data.root else ""
        raise DataError(f"the data{where} is not what the cell was trained on: {are}")


def _trained_on(trained: TrainedModel, split: Split) -> int | None:
    """How many images of a split a model was trained on, byte by byte; None where no index of its data is kept here."""
    own, data, digests = trained.description, trained.description.data, getattr(split.reader, "digests", ())
    if not len(digests) or isinstance(data, ScenesConfig):
        return 0
    for folder in (own_indexes(), *(parent / "indexes" for parent in trained.path.resolve().parents)):
        with suppress(GoalError):  # an importer of a plugin that is not loaded
            kept = kept_columns(index_path(data, folder))
            if kept and fingerprint_of(data.image, data.min_word_count, Index(*kept).digest) == own.data_fingerprint:
                known = set(map(bytes, kept[0]["train.digests"]))
                return sum(bytes(digest) in known for digest in digests)
    return None


def evaluate_ensemble(members: Iterable[OpenedCheckpoint], split: SplitName = "test") -> dict[str, Any]:
    """Measure the recall of several trained cells together, ranking a split by their mean similarity.

    They may be of any seed, objective, backbone and framework, but must rank the same images and captions. The mean of
    dot products is, up to a factor, the dot product of the concatenated embeddings, so this is the ranking of one model
    with long embeddings: exact, in blocks, and with ties counted against the ensemble.

    Returns:
        ``metrics`` of the ensemble (recalls by name, percent), ``split``, ``images``, ``captions``, and ``members``:
        for each checkpoint what its ``evaluate`` returns.

    Source: VSE-infinity's ensembles (Chen et al. 2021, arXiv:2011.04305), of two models.
    """
    found, embedded = [], []
    splits: list[tuple[Path, Split]] = []
    for member in members:
        if member.path.resolve() in {path.resolve() for path, _ in splits}:
            raise ConfigError("an ensemble takes each checkpoint once; the same one is given twice")
        if member.encoder.heads.rerank_top:
            why = "re-ranks the nearest by a score that is not a similarity; an ensemble averages similarities"
            raise ConfigError(f"{member.path} ({member.description.model.framework}) {why}")
        splits.append((member.path, member.dataset.splits[split]))
        check_same_queries(*splits[0], *splits[-1])
        embedded.append(recalls.embed_split(member.encoder, member.prepared(split)))
        found.append(member.evaluate(split, embedded[-1]))
    images_ND, texts_MD = (torch.cat(parts, 1) for parts in zip(*embedded, strict=True))
    ranked = splits[0][1]
    return {
        "split": split,
        "images": ranked.num_images,
        "captions": ranked.num_captions,
        "metrics": recalls.recalls_between(images_ND, texts_MD, torch.tensor(ranked.caption_image), split)[0],
        "members": found,
    }


def check_same_queries(first_path: Path, first: Split, other_path: Path, other: Split) -> None:
    """Check that two splits are the same images and captions in the same order.

    Images are compared by their captions, word by word, because region files and image files name them differently.
    """
    says = f"{first_path} and {other_path} are ranked on different data:"
    if first.caption_image.tolist() != other.caption_image.tolist():
        images = f"{first.num_images} images with {first.num_captions} captions"
        raise DataError(f"{says} {images}, and {other.num_images} with {other.num_captions}")
    for index, (ours, theirs) in enumerate(zip(first.captions, other.captions, strict=True)):
        if ours != theirs and tokenize(ours) != tokenize(theirs):
            both = f"{ours!r} in the first and {theirs!r} in the second"
            raise DataError(f"{says} caption {index} of split {first.name!r} is {both}")
