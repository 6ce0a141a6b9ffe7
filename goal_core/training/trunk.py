"""What the cells of a unit share: every batch, and in the frozen stage the backbone's forward pass."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from goal_core.data import Batch, DecodedImages, Split, transform_of
from goal_core.evaluation.embedding import CHUNK, split_inputs
from goal_core.models import ImageBackbone, weights_id
from goal_core.models.encoder import autocast
from goal_core.training.plan import UnitPlan


class Trunk:
    """Turns batches into what a cell's step takes.

    Frozen backbone: features (B, F), computed once for all cells; where training images are not augmented they are
    the same in every epoch, so each image passes the backbone once. Trained backbone: pixels, which each cell
    passes through its own.

    Args:
        unit: the unit.
        backbone: the shared frozen backbone, on the device; None when every cell trains its own.
        fingerprint: the dataset's fingerprint, under which features are kept.
        init_id: of the checkpoint that cells begin with; empty for none.
        alive: called for every chunk of a split, so that a long pass over the data is not taken for a hang.
    """

    def __init__(
        self,
        unit: UnitPlan,
        backbone: ImageBackbone | None,
        fingerprint: str,
        *,
        alive: Callable[[], None],
        init_id: str = "",
    ) -> None:
        self._alive, self._init_id = alive, init_id
        self.unit, self.backbone, self._fingerprint = unit, backbone, fingerprint
        self.device = torch.device(unit.device)
        self.image = unit.data.image
        self._train_features: Tensor | None = None

    def wants_pixels(self) -> bool:
        """Whether training batches need decoded images."""
        return self.image is not None and (self.backbone is None or transform_of(self.image).augments)

    def prepare(self, train: Split) -> None:
        """Compute the training features once, where they are the same in every epoch."""
        if self.backbone is not None and not self.wants_pixels():
            self._train_features = self._split_features(train, self.backbone)

    def batch_inputs(self, batch: Batch) -> Tensor:
        """Features (B, F) or (B, R, F), or pixels (B, 3, S, S), of a training batch, on the device."""
        if batch.regions is not None:
            return batch.regions.to(self.device, non_blocking=True)
        if self._train_features is not None:
            return self._train_features[batch.image_index.to(self._train_features.device)]
        assert batch.images is not None
        pixels = batch.images.to(self.device, non_blocking=True)
        return pixels if self.backbone is None else self._forward(self.backbone, pixels)

    def captions(self, batch: Batch) -> Batch:
        """The batch with its captions on the device (lengths stay on the CPU, where packing wants them)."""
        return replace(
            batch,
            images=None,
            regions=None,
            tokens=batch.tokens.to(self.device, non_blocking=True),
            image_index=batch.image_index.to(self.device, non_blocking=True),
        )

    def split_inputs(self, split: Split) -> Callable[[], Iterator[Tensor]]:
        """A whole split in order, unaugmented, as often as it is asked for.

        Returns:
            A function that gives features (C, F), or pixels (C, 3, S, S), chunk by chunk on the device.
        """
        if self.backbone is not None:
            features = self._split_features(split, self.backbone)
            return lambda: iter(torch.split(features, CHUNK))
        return split_inputs(split, self.image, self.device, workers=self.unit.loader_workers, alive=self._alive)

    def _split_features(self, split: Split, backbone: ImageBackbone) -> Tensor:
        path = self._cache_path(split)
        if path is not None and (stored := _read_features(path, split.num_images)) is not None:
            return stored.to(self.device)
        assert self.image is not None
        squares = DecodedImages(split, self.image, num_workers=self.unit.loader_workers, ram_limit=0)
        chunks = [self._forward(backbone, chunk.to(self.device)).float() for chunk in squares.chunks(CHUNK)]
        squares.close()
        features = torch.cat(chunks)
        if path is not None:
            _write_features(path, features)
        return features

    def _forward(self, backbone: ImageBackbone, pixels: Tensor) -> Tensor:
        self._alive()
        with torch.no_grad(), autocast(self.unit.precision, self.device):
            features: Tensor = backbone(pixels)
        return features

    def _cache_path(self, split: Split) -> Path | None:
        if self.unit.cache is None:
            return None
        assert self.image is not None
        assert self.backbone is not None
        model, image = self.unit.model, self.image
        what = {
            "data": self._fingerprint,
            "split": split.name,
            "image": [image.size, image.resize],
            "backbone": [model.backbone.name, weights_id(model.backbone)],
            "seed": self.unit.seed if model.backbone.weights == "random" else None,
            "computed": [self.unit.precision, self.unit.device, self.unit.threads, torch.__version__],
        }
        if self._init_id:
            what["init"] = self._init_id
        if self.backbone.cells:
            what["cells"] = True
        what |= transform_of(image).feature_key
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
        return self.unit.cache / f"{split.name}-{digest}.safetensors"


def _read_features(path: Path, num_images: int) -> Tensor | None:
    """Kept features; None where there are none, or they are damaged and so as good as none."""
    try:
        stored: Tensor = load_file(path)["features"]
    except (FileNotFoundError, SafetensorError, KeyError):
        return None
    return stored if len(stored) == num_images else None


def _write_features(path: Path, features: Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        save_file({"features": features.cpu().contiguous()}, temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
