"""A VSE++ cell as a careful user of the usual tools trains it: a process for each cell. The baseline of benchmarks.

    python -m benchmarks.usual --backbone resnet18 --size 112 --batch 32 --steps 10 [--finetune]

Torch's Dataset and DataLoader, torchvision's transforms, a timm backbone (in evaluation mode, without gradients unless
it is fine-tuned), an embedding and torch's GRU on packed captions, the hinge of hardest negatives differentiated by
autograd, clipping and Adam. Of goal_core it takes only the images and the captions' token ids. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import timm
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from benchmarks.machine import clock_of, in_own_process, wait_for
from goal_core.data import EncodedCaptions, Split, Vocabulary, open_dataset
from goal_core.data.config import ImageConfig, PrecompConfig, ScenesConfig
from goal_core.training import UnitPlan

Sample = tuple[Tensor, Tensor]


class Pairs(Dataset[Sample]):
    """Image-caption pairs: pixels (3, S, S) float or features (F,), and token ids (L,)."""

    def __init__(self, split: Split, captions: EncodedCaptions, size: int) -> None:
        self._split, self._captions = split, captions
        self._transform = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomResizedCrop(size),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def __len__(self) -> int:
        return self._split.num_captions

    def __getitem__(self, index: int) -> Sample:
        image = self._split.caption_image[index : index + 1]
        tokens, _ = self._captions.batch(np.array([index]))
        if self._split.region_shape is not None:
            return torch.from_numpy(self._split.load_regions(image)[0]), tokens[0]
        return self._transform(self._split.load_image(int(image[0]))), tokens[0]


def together(samples: Sequence[Sample]) -> tuple[Tensor, Tensor, Tensor]:
    """A batch: images, padded token ids and lengths."""
    images, tokens = zip(*samples, strict=True)
    lengths = torch.tensor([len(one) for one in tokens])
    return torch.stack(images), pad_sequence(tokens, batch_first=True), lengths


class Model(nn.Module):
    """Images and captions to unit vectors (B, D)."""

    def __init__(self, backbone: nn.Module | None, width: int, words: int, word_dim: int, dim: int) -> None:
        super().__init__()
        self.backbone, self.image = backbone, nn.Linear(width, dim)
        self.words, self.gru = nn.Embedding(words, word_dim), nn.GRU(word_dim, dim, batch_first=True)

    def forward(self, images: Tensor, tokens: Tensor, lengths: Tensor, *, finetune: bool) -> tuple[Tensor, Tensor]:
        """Unit vectors of a batch; without ``finetune`` the backbone gets no gradient."""
        if self.backbone is not None:
            with nullcontext() if finetune else torch.no_grad():
                images = self.backbone(images)
        packed = pack_padded_sequence(self.words(tokens), lengths, batch_first=True, enforce_sorted=False)
        _, last = self.gru(packed)
        return normalize(self.image(images)), normalize(last[0])


def hinge(images: Tensor, texts: Tensor, margin: float = 0.2) -> Tensor:
    """VSE++'s loss: the hardest negative of each image and of each caption."""
    scores = images @ texts.t()
    positive, own = scores.diagonal(), torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    of_images = (margin + scores - positive[:, None]).clamp(min=0).masked_fill(own, 0).amax(1)
    of_texts = (margin + scores - positive[None, :]).clamp(min=0).masked_fill(own, 0).amax(0)
    return of_images.sum() + of_texts.sum()


def apart(unit: UnitPlan, steps: int) -> dict[str, float]:
    """Train a cell of a unit so, in a process of its own. Returns its milliseconds a step."""
    image = unit.data.image
    words = [
        *("--steps", steps, "--batch", unit.stage.batch_size, "--embed-dim", unit.model.embed_dim),
        *("--word-dim", unit.model.text.word_dim, "--device", unit.device, "--threads", unit.threads),
        *("--precision", unit.precision, "--workers", unit.loader_workers),
        *(["--features"] if image is None else ["--backbone", unit.model.backbone.name, "--size", image.size]),
        *(["--finetune"] if unit.stage.trains_backbone else []),
    ]
    return in_own_process("usual", *words)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="test_resnet")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--features", action="store_true", help="vectors that ship with goal-sweep instead of images")
    parser.add_argument("--finetune", action="store_true")
    for name, value in (("batch", 32), ("steps", 10), ("embed-dim", 64), ("word-dim", 300)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    given = parser.parse_args(arguments)
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    print(json.dumps({"step_ms": step_ms(given)}))


def step_ms(given: argparse.Namespace) -> float:
    """Train for some steps; milliseconds of each but the first two, which warm up."""
    data: ScenesConfig | PrecompConfig
    if given.features:
        data = PrecompConfig(name="emoji", root="shipped:emoji_precomp", max_captions=4, max_words=10)
    else:
        image = ImageConfig(size=given.size, resize=given.size, augment="crop_flip")
        data = ScenesConfig(num_train=-(-given.batch * (given.steps + 2) // 5), num_val=4, num_test=4, image=image)
    dataset = open_dataset(data)
    split, words = dataset.splits["train"], Vocabulary.build(dataset.vocabulary_captions, data.min_word_count)
    backbone = None if given.features else timm.create_model(given.backbone, num_classes=0).eval()
    width = split.region_shape[-1] if split.region_shape else backbone.num_features
    model = Model(backbone, width, len(words), given.word_dim, given.embed_dim).to(given.device)
    trained = [value for name, value in model.named_parameters() if given.finetune or not name.startswith("backbone")]
    optimizer = torch.optim.Adam(trained, lr=1e-3, fused=True)
    loader = DataLoader(
        Pairs(split, EncodedCaptions(split.captions, words), given.size),
        batch_size=given.batch,
        shuffle=True,
        drop_last=True,
        num_workers=given.workers,
        collate_fn=together,
        pin_memory=given.device != "cpu",
    )
    clock, times = clock_of(given.device, given.threads), []
    half = torch.autocast(given.device, torch.bfloat16) if given.precision == "bf16" else nullcontext()
    for images, tokens, lengths in loader:
        images, tokens = (one.to(given.device, non_blocking=True) for one in (images, tokens))
        optimizer.zero_grad()
        with half:
            embedded = model(images, tokens, lengths, finetune=given.finetune)
        torch.autograd.backward(hinge(*(one.float() for one in embedded)))
        clip_grad_norm_(trained, 2.0)
        optimizer.step()
        wait_for(given.device)
        times.append(clock())
        if len(times) == given.steps + 2:
            break
    return 1000 * (times[-1] - times[1]) / (len(times) - 2)


if __name__ == "__main__":
    main()
