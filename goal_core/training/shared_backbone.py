"""What the cells of a unit share: every batch, the forward pass of a frozen backbone, and the path that they take.

Path `trunk` trains one cell after the other on every batch, and gives each the numbers that it has alone, on the CPU
bit for bit. `heads` trains them as one stack (`cells.stack`), which adds up the same products in another order. A path
never depends on a measurement, so that the same sweep gives the same numbers on the same kind of device.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from goal_sweep.goal_core.basics.devices import send
from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.basics.files import kept_columns, key_of, write_columns
from goal_sweep.goal_core.checkpoints.initial_model import InitialModel
from goal_sweep.goal_core.data import Dataset, Split
from goal_sweep.goal_core.data.batches import Batch
from goal_sweep.goal_core.data.inputs import DecodedImages, captions_of
from goal_sweep.goal_core.data.packs import libraries
from goal_sweep.goal_core.evaluation.recalls import CHUNK, caption_chunks, split_inputs
from goal_sweep.goal_core.models.backbones import ImageBackbone
from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.training.plan import UnitPlan

_LONG: Final = 1000
"""Steps of a training from which on a compiled backbone saves more time than its compilation takes."""


class SharedBatch(NamedTuple):
    """A batch on the device, loaded once for all cells that take it."""

    inputs: Tensor
    """Features (B, F) or (B, R, F), or pixels (B, 3, S, S) that each cell passes through its own backbone."""
    captions: Batch
    """The batch without its images. Its lengths stay on the CPU, where packing needs them."""
    seconds: float
    """What loading took."""


class SharedBackbone:
    """Turns batches into the inputs of the cells' steps.

    A frozen backbone gives features, computed once for all cells. Where training images are not augmented the features
    are the same in every epoch, so each image passes the backbone only once. A trained backbone is each cell's own, and
    the inputs are pixels.
    """

    def __init__(
        self, unit: UnitPlan, initial: InitialModel, fingerprint: str, *, steps: int, alive: Callable[[], None]
    ) -> None:
        pays = unit.device == "cuda" and steps >= _LONG
        self.compiles = unit.compile == "on" or (unit.compile == "auto" and pays)
        """Whether backbones and text encoders are compiled."""
        self.unit, self._initial, self._fingerprint, self._alive = unit, initial, fingerprint, alive
        self.device, self.image = torch.device(unit.device), unit.data.image
        self.backbone: ImageBackbone | None = None
        """The shared frozen backbone, on the device; None where each cell has its own or the data are features."""
        if unit.stage.shares_backbone and (backbone := initial.backbone(unit.seed)) is not None:
            self.backbone = self.placed(backbone)
        self._train_features: Tensor | None = None

    def placed(self, backbone: ImageBackbone) -> ImageBackbone:
        """A backbone on the unit's device, as the unit computes it."""
        stage, size = self.unit.stage, 0
        if self.compiles and self.wants_pixels():
            size = stage.micro_batch if stage.splits_batches else stage.batch_size
        elif self.compiles:
            size = CHUNK
        # A graph's gradients lie in its own memory, where the next chunk's would overwrite those it adds to.
        return backbone.placed(self.device, precision=self.unit.precision, batch=size, graph=not stage.splits_batches)

    def wants_pixels(self) -> bool:
        """Whether training batches need decoded images."""
        return self.image is not None and (self.image.augments or not self.unit.stage.shares_backbone)

    def prepare(self, train: Split) -> None:
        """Compute the training features, where they are the same in every epoch."""
        if self.backbone is not None and not self.wants_pixels():
            self._train_features = self._split_features(train)

    def with_text_vectors(self, dataset: Dataset) -> Dataset:
        """The data with vectors of the frozen text tower, if there is one, in place of captions, computed once."""
        if self.backbone is None or self.backbone.texts is None:
            return dataset
        splits = dict(dataset.splits)
        for name, split in splits.items():
            captions = captions_of(split, self._initial.tokenizer)
            vectors = np.empty((split.num_captions, self.backbone.num_features), np.float32)
            with torch.no_grad():
                for rows, tokens, lengths in caption_chunks(captions, self._alive):
                    vectors[rows] = self.backbone.texts(send(tokens, self.device), lengths).cpu().numpy()
            splits[name] = replace(split, texts=vectors)
        return replace(dataset, splits=splits)

    def load(self, batch: Batch) -> SharedBatch:
        """Put a training batch on the device, and pass its images through the frozen backbone if there is one."""
        began = time.perf_counter()
        inputs = self._inputs(batch)
        tokens, index = send(batch.tokens, self.device), send(batch.image_index, self.device)
        captions = replace(batch, images=None, regions=None, tokens=tokens, image_index=index)
        return SharedBatch(inputs=inputs, captions=captions, seconds=time.perf_counter() - began)

    def _inputs(self, batch: Batch) -> Tensor:
        if batch.regions is not None:
            return send(batch.regions, self.device)
        if self._train_features is not None:
            return self._train_features[send(batch.image_index, self._train_features.device)]
        assert batch.images is not None
        pixels = send(batch.images, self.device)
        if self.backbone is None:
            return pixels
        size = self.unit.stage.micro_batch or len(pixels)
        chunks = [self._forward(self.backbone, chunk) for chunk in torch.split(pixels, size)]
        return chunks[0] if len(chunks) == 1 else torch.cat(chunks)

    def split_inputs(self, split: Split) -> Callable[[], Iterator[Tensor]]:
        """Gives a split in chunks, unaugmented: features (C, F) or (C, R, F), or pixels (C, 3, S, S)."""
        features = self._split_features(split)
        if features is not None:
            return lambda: iter(torch.split(features, CHUNK))
        return split_inputs(split, self.image, self.device, workers=self.unit.loader_workers, alive=self._alive)

    def _split_features(self, split: Split) -> Tensor | None:
        """A split's features from the shared frozen backbone, unaugmented; None where there is none."""
        backbone, image = self.backbone, self.image
        if backbone is None or image is None:
            return None
        path = self._cache_path(split, backbone)
        if path is not None and (kept := kept_columns(path)) and len(stored := kept[0]["features"]) == split.num_images:
            return torch.from_numpy(stored).to(self.device)
        decoded = DecodedImages(split, image, num_workers=self.unit.loader_workers, ram_limit=0, device=self.device)
        with closing(decoded) as images:
            features = torch.cat([self._forward(backbone, send(chunk, self.device)) for chunk in images.chunks(CHUNK)])
        if len(blank := (~features.flatten(1).any(1)).nonzero()):
            label = split.reader.label(int(blank[0]))
            raise DataError(f"{label}: the backbone sees nothing in this picture, all its features are 0; leave it out")
        if path is not None:
            with suppress(OSError):  # a disk that refuses them costs only time
                path.parent.mkdir(parents=True, exist_ok=True)
                write_columns(path, {"features": features.cpu().numpy()}, {})
        return features

    def _forward(self, backbone: ImageBackbone, pixels: Tensor) -> Tensor:
        self._alive()
        with torch.no_grad():
            features: Tensor = backbone(pixels)
            return features

    def _cache_path(self, split: Split, backbone: ImageBackbone) -> Path | None:
        if self.unit.cache is None:
            return None
        model, initial, kind = self.unit.model, self._initial, self.device.type
        if kind == "cuda":  # whose kernels differ with the compute capability, and so does the rounding
            kind = "cuda {}.{}".format(*torch.cuda.get_device_capability(self.device))
        what = {
            "data": self._fingerprint,
            "split": split.name,
            "backbone": [model.backbone.name, initial.framework.weights_id(model), initial.init_id, backbone.cells],
            "seed": self.unit.seed if model.backbone.weights == "random" else None,
            "computed": [self.unit.precision, kind, self.unit.threads, torch.__version__],
            "libraries": libraries(),
        }
        return self.unit.cache / f"{split.name}-{key_of(what)}.safetensors"


def choose_path(unit: UnitPlan) -> tuple[str, str]:
    """Choose the path of a unit from its settings and its device: `none`, `trunk` or `heads`, and why, in a line.

    `auto` is `heads` on a GPU, which small kernels of one cell after the other leave idle, and `trunk` on a CPU. A cell
    by itself is a stack on a CPU if heads are wanted: whatever cells a unit has, their bits stay the same there.
    """
    if len(unit.trainings) == 1 and (unit.sharing != "heads" or unit.device != "cpu"):
        return "none", "the unit has one cell"
    if unit.sharing in ("none", "trunk"):
        return "trunk", f"the launch chose sharing {unit.sharing}"
    if obstacle := _obstacle(unit):
        return "trunk", f"sharing {unit.sharing}, but {obstacle}"
    if unit.sharing == "heads":
        return "heads", "the launch chose sharing heads"
    if unit.device == "cpu":
        return "trunk", "sharing auto on a CPU, where it keeps the numbers of each cell alone bit for bit"
    return "heads", "sharing auto on a GPU"


def _obstacle(unit: UnitPlan) -> str:
    """Why heads cannot be stacked, in words; empty if they can."""
    model, stage = unit.model, unit.stage
    if not framework_of(model).stacks(model):
        return f"framework {model.framework} has no stacked heads" + " of this text encoder" * bool(model.text.encoder)
    if not stage.shares_backbone:
        return f"stage {stage.name} does not share a frozen backbone"
    if stage.splits_batches:
        return f"micro_batch {stage.micro_batch} encodes each cell's batches in chunks"
    return ""
