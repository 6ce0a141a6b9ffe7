"""A trained model that encodes pictures and sentences, from its checkpoint alone: without data, store or network."""

import os
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property, partial
from pathlib import Path
from string import punctuation
from typing import Any, Literal

import numpy as np
import regex
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from goal_sweep.goal_core.basics.atomic import replace_with
from goal_sweep.goal_core.basics.devices import arithmetic, send
from goal_sweep.goal_core.basics.errors import ConfigError, DataError, warn
from goal_sweep.goal_core.basics.files import content_of, new_file
from goal_sweep.goal_core.basics.registry import run_plugins
from goal_sweep.goal_core.checkpoints.file import ModelDescription, TrainedModel, flat, read_model, write_model
from goal_sweep.goal_core.checkpoints.initial_model import trained_encoder
from goal_sweep.goal_core.data.formats.pictures import examined, to_rgb
from goal_sweep.goal_core.data.inputs import EncodedCaptions, warn_of_reading
from goal_sweep.goal_core.data.transforms import transform_of
from goal_sweep.goal_core.evaluation.recalls import CHUNK, embed_captions
from goal_sweep.goal_core.models.heads import Encoder
from goal_sweep.goal_core.objectives.stats import describe_unsound, no_unit_vectors
from goal_sweep.goal_core.objectives.variants import objective_name

_SIGNS = f"{' '.join(punctuation)} n't 's 'm 'd 'll 're 've"
"""Words that say nothing by themselves."""
_WORD = regex.compile(r"\w[\w'’-]*")
Picture = str | os.PathLike[str] | Image.Image | NDArray[np.uint8]
"""A file, an open picture, or pixels (H, W, 3), uint8 RGB."""


class RetrievalModel:
    """Encodes pictures and sentences into the joint space. :func:`load_model` makes one.

    A `ConfigError` says that the model takes other inputs, and a `DataError` that an input cannot be used.
    """

    def __init__(self, path: Path, trained: TrainedModel, encoder: Encoder) -> None:
        self.description: ModelDescription = trained.description
        self._path, self._epoch, self._encoder = path, trained.epoch, encoder
        encoder.train(False)

    def __repr__(self) -> str:
        own = self.description
        name = objective_name(own.objective["pair"], own.objective["triplet"])
        return f"<{type(self).__name__} {name} seed {own.seed} ({own.stage}), epoch {self._epoch}: {self._path}>"

    def encode_images(self, images: Iterable[Picture]) -> NDArray[np.float32]:
        """Unit vectors (N, D) float32 of pictures, which are resized and cropped, or stretched, as in evaluation.

        A `DataError` names a damaged file; of files that are dark, or that viewers turn, one warning says how many.
        """
        given, shown = _several(images), defaultdict[str, list[str]](list)
        parts = (given[start : start + CHUNK] for start in range(0, len(given), CHUNK))
        rows = self._embed_images(self._prepared(part, shown) for part in parts)
        for remark, names in shown.items():
            warn(f"{len(names):,} images {remark}; the first is {names[0]}")
        return rows

    def encode_features(self, features: ArrayLike) -> NDArray[np.float32]:
        """Unit vectors (N, D) float32 of features (N, F), or regions (N, R, F), that another network has computed."""
        given, width = np.asarray(features, dtype=np.float32), self.description.num_features
        if self.description.data.image is not None:
            raise ConfigError("this model takes pictures; use encode_images")
        if given.ndim not in (2, 3) or given.shape[-1] != width:
            raise ConfigError(f"features must be (N, {width}) or (N, R, {width}), got {given.shape}")
        return self._embed_images(torch.split(torch.from_numpy(given), CHUNK))

    def encode_texts(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Unit vectors (M, D) float32 of sentences; it is warned of those that are cut or hardly known."""
        return self._embed_texts(_several(texts))

    def _embed_texts(self, given: list[str], *, is_known: bool = False) -> NDArray[np.float32]:
        if other := [type(text).__name__ for text in given if not isinstance(text, str)]:
            raise DataError(f"a sentence must be a text, got {other[0]}")
        if not given:
            raise DataError("there is no sentence to embed")
        if empty := [number for number, text in enumerate(given) if not text.strip()]:
            raise DataError(f"sentence {empty[0]} is empty")
        captions = EncodedCaptions.of(given, self.description.vocabulary)
        warn_of_reading([captions], self.description.vocabulary, of_these=is_known)
        return self._checked(embed_captions(self._encoder, captions).cpu(), len(set(given)))

    @cached_property
    def _unsaid(self) -> tuple[int | None, frozenset[int | None]]:
        """The id of unknown words, and all that say nothing; a tokenizer of the library reads its whole file for it."""
        vocabulary = self.description.vocabulary
        return (unknown := vocabulary.unknown), frozenset((*vocabulary.encode(_SIGNS), unknown))

    def unknown_words(self, text: str, where: str = "") -> list[str]:
        """The words of a sentence that the vocabulary lacks; a `DataError` if it has none of the others."""
        encode, (unknown, signs) = self.description.vocabulary.encode, self._unsaid
        if unknown is None:
            return []

        def is_known(part: str) -> bool:
            return not signs.issuperset(encode(part))

        if not is_known(text):
            raise DataError(f"{where}{self._path} knows no word of {text!r:.80}")
        parts = [part for part in text.split() if unknown in encode(part)]
        return [*dict.fromkeys(word for part in parts for word in _WORD.findall(part) if not is_known(word))]

    def search(self, text: str, images: ArrayLike, top: int = 5) -> list[tuple[int, float]]:
        """The images nearest to a sentence by cosine similarity, without X-VLM's second ranking.

        Returns:
            Numbers of images and their similarities, in [-1, 1], the nearest first; equal ones in their order.
        """
        query = self._embed_texts([text], is_known=True)[0]
        if unknown := self.unknown_words(text):
            warn(f"words that the model does not know: {', '.join(map(repr, unknown))}")
        if np.ndim(images) != 2 or len(query) != np.shape(images)[1]:
            raise DataError(f"images must be (N, {len(query)}), got {tuple(np.shape(images))}")
        if top < 1:
            raise DataError(f"top must be at least 1, got {top}")
        rows_ND = np.asarray(images, np.float64)  # in which no length overflows
        similarities = rows_ND @ query / np.maximum(np.linalg.norm(rows_ND, axis=1), np.finfo(np.float64).tiny)
        nearest = np.argsort(-similarities, kind="stable")[:top]
        return [(int(index), float(similarities[index])) for index in nearest]

    def export(
        self,
        folder: str | os.PathLike[str],
        kind: Literal["onnx", "torch"] = "onnx",
        *,
        longest: int = 77,
        force: bool = False,
    ) -> dict[str, float | None]:
        """Write image tower and text tower apart, with tokenizer and preprocessing, for programs without goal-sweep.

        A `ConfigError` says what cannot be exported, or which file is there already; X-VLM's second ranking is left
        out.

        Args:
            kind: files in ONNX, which need the extra `goal-sweep[onnx]`, or for `torch.export.load`.
            longest: ids of the longest caption; 77 are CLIP's. A GRU reads all captions padded to it.
            force: write over files that are there.

        Returns:
            For each tower's file the largest difference of its embeddings from the model's; None without onnxruntime.
        """
        from goal_sweep.goal_core.evaluation.export import export_towers  # a second of import

        return export_towers(self._encoder, self.description, Path(folder), kind, longest=longest, force=force)

    def save(self, file: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the whole model, a frozen backbone too, as one safetensors file, which :func:`load_model` reads.

        A `ConfigError` says that the file is there already, unless `force`.
        Models of the transformers library find their configuration where they found it before.
        """
        parts = {"heads": self._encoder.heads, "backbone": self._encoder.backbone}
        tensors = flat({name: part.state_dict() for name, part in parts.items() if part is not None})
        write = partial(write_model, tensors=tensors, description=self.description, epoch=self._epoch)
        replace_with(new_file(Path(file), force=force), write)

    def prepared(self, images: Iterable[Picture]) -> torch.Tensor:
        """Pictures as the network takes them: resized, cropped or stretched, (N, 3, S, S) uint8."""
        return self._prepared(images, defaultdict(list))

    def _prepared(self, images: Iterable[Picture], shown: dict[str, list[str]]) -> torch.Tensor:
        config = self.description.data.image
        if config is None:
            raise ConfigError(f"it takes features ({self.description.data.format}), no pictures; use encode_features")
        transform = transform_of(config)
        return torch.stack([transform.for_evaluation(_pixels(image, shown)) for image in _several(images)])

    def _embed_images(self, chunks: Iterable[torch.Tensor]) -> NDArray[np.float32]:
        encoder = self._encoder
        with torch.inference_mode(), arithmetic(encoder.precision):
            found = [encoder.images(send(chunk, encoder.device)).float().cpu() for chunk in chunks]
        if not found:
            raise DataError("there is no picture to embed")
        found_ND = torch.cat(found)
        return self._checked(found_ND, len(found_ND))

    def _checked(self, rows_ND: torch.Tensor, different: int) -> NDArray[np.float32]:
        """Rows, which must be unit vectors; a model that gives several different inputs one vector is warned of."""
        if bool(no_unit_vectors(rows_ND).any()):
            raise DataError(f"{self._path}: {describe_unsound(inputs=rows_ND)}")
        if different > 1 and bool((rows_ND == rows_ND[0]).all()):
            warn(f"{self._path}: all {len(rows_ND)} embeddings are equal: equal inputs, or a collapsed model")
        return np.asarray(rows_ND)


def load_model(
    path: str | os.PathLike[str], *, weights: str | None = None, device: str = "cpu", plugins: Iterable[str] = ()
) -> RetrievalModel:
    """Load a trained model.

    Args:
        weights: the file of a frozen backbone's weights, if it has moved. A fine-tuned backbone is in the checkpoint.
        plugins: files or modules with parts of one's own that the model has, which are run.
    """
    run_plugins(plugins)
    trained = read_model(Path(path))
    description = trained.description.moved(root=None, weights=weights)
    return RetrievalModel(Path(path), trained, trained_encoder(trained, description, torch.device(device)))


def _several(items: Iterable[Any]) -> list[Any]:
    """Pictures or sentences as a list; one alone would be taken for as many as it has letters or rows."""
    if isinstance(items, str | bytes | os.PathLike | Image.Image):
        raise DataError(f"give a list, not one {type(items).__name__}")
    return list(items)


def _pixels(image: Picture, shown: dict[str, list[str]]) -> NDArray[np.uint8]:
    """Pixels (H, W, 3), uint8 RGB; the path of a file is added to what is to be said of it."""
    if isinstance(image, Image.Image):
        return np.asarray(to_rgb(image))
    if isinstance(image, np.ndarray):
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise DataError(f"pixels must be (H, W, 3) uint8, got {image.shape} {image.dtype}")
        return image
    if not isinstance(image, str | os.PathLike):
        raise DataError(f"a picture must be a path, an open picture or pixels, got {type(image).__name__}")
    pixels, remarks = examined(content_of(Path(image)), str(image))
    for remark in remarks:
        shown[remark].append(str(image))
    return pixels
