"""A VSE++ cell as a careful user of the usual tools trains it: the baseline of other benchmarks.

Torch's DataLoader, torchvision's transforms, a timm backbone (in evaluation mode, without gradients unless it is
fine-tuned), a GRU on packed captions, the hinge of hardest negatives by autograd, clipping and Adam. Of goal_core it
takes the names of the images and the captions' token ids.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from benchmarks.program import clock_of, wait_for
from benchmarks.units import data_of
from goal_sweep.goal_core.basics.devices import set_arithmetic
from goal_sweep.goal_core.data import Split
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.inputs import EncodedCaptions
from goal_sweep.goal_core.data.text import Vocabulary


class Pairs(Dataset[tuple[Tensor, Tensor]]):
    """Image-caption pairs: pixels (3, S, S) float, and token ids (L,)."""

    def __init__(self, split: Split, words: Vocabulary, size: int) -> None:
        self._paths = [split.reader.label(index) for index in split.caption_image.tolist()]
        self._captions = EncodedCaptions.of(split.captions, words)
        normal = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        drawn = [v2.ToImage(), v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
        self._transform = v2.Compose([*drawn, v2.ToDtype(torch.float32, scale=True), normal])

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        with Image.open(self._paths[index]) as image:
            pixels = self._transform(image.convert("RGB"))
        return pixels, self._captions.batch(np.array([index]))[0][0]


def together(samples: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """A batch: images, padded token ids, and lengths."""
    images, tokens = map(list, zip(*samples, strict=True))
    return torch.stack(images), pad_sequence(tokens, batch_first=True), torch.tensor([len(ids) for ids in tokens])


def loader_of(split: Split, words: Vocabulary, given: argparse.Namespace) -> DataLoader[tuple[Tensor, Tensor]]:
    """Shuffled training batches."""
    return DataLoader(
        Pairs(split, words, given.size), batch_size=given.batch, shuffle=True, drop_last=True, collate_fn=together,
        num_workers=given.workers, pin_memory=given.device != "cpu", persistent_workers=given.workers > 0,
    )  # fmt: skip


class Model(nn.Module):
    """Images and captions to unit vectors (B, D)."""

    def __init__(self, given: argparse.Namespace, num_words: int, finetune: bool) -> None:
        super().__init__()
        self.backbone, self._finetune = timm.create_model(given.backbone, num_classes=0).eval(), finetune
        self.image = nn.Linear(self.backbone.num_features, given.embed_dim)
        self.words = nn.Embedding(num_words, given.word_dim)
        self.gru = nn.GRU(given.word_dim, given.embed_dim, batch_first=True)

    def forward(self, images: Tensor, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors of a batch."""
        with nullcontext() if self._finetune else torch.no_grad():
            features = self.backbone(images)
        packed = pack_padded_sequence(self.words(tokens), lengths, batch_first=True, enforce_sorted=False)
        return normalize(self.image(features)), normalize(self.gru(packed)[1][0])


def hinge(images: Tensor, texts: Tensor, margin: float = 0.2) -> Tensor:
    """VSE++'s loss: the hardest negative of each image and of each caption."""
    scores = images @ texts.t()
    own = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    costs = [(margin + scores - scores.diagonal().unsqueeze(dim)).clamp(min=0).masked_fill(own, 0) for dim in (1, 0)]
    return costs[0].amax(1).sum() + costs[1].amax(0).sum()


def usual_steps(given: argparse.Namespace, root: Path, precision: str, finetune: bool) -> dict[str, float]:
    """Train a cell on photographs for some steps, after some that warm up."""
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    set_arithmetic(precision)
    clock, times, count = clock_of(given.device, given.threads + given.workers), [], given.warm + given.steps
    dataset = open_dataset(data_of(root, given.size))
    words = Vocabulary.build(dataset.vocabulary_captions, 1)
    model = Model(given, len(words), finetune).to(given.device)
    trained = [value for name, value in model.named_parameters() if finetune or "backbone" not in name]
    optimizer = torch.optim.Adam(trained, lr=1e-5, fused=True)
    half = torch.autocast(given.device, torch.bfloat16) if precision == "bf16" else nullcontext()
    for images, tokens, lengths in islice(loader_of(dataset.splits["train"], words, given), count):
        optimizer.zero_grad()
        with half:
            embedded = model(images.to(given.device), tokens.to(given.device), lengths)
        torch.autograd.backward(hinge(*(vectors.float() for vectors in embedded)))
        clip_grad_norm_(trained, 2.0)
        optimizer.step()
        wait_for(given.device)
        times.append(clock())
    ms = 1000 * (times[-1] - times[given.warm - 1]) / given.steps
    return {"ms a step": ms, "cell steps/s": 1000 / ms}
