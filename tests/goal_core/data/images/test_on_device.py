from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg

from goal_core.data import ImageConfig, KarpathyConfig, Split, open_dataset
from goal_core.data.images import DecodeRequest, DeviceImages, ImageDecoder, decode_bytes, resampling
from goal_core.data.packs import open_packed, plan_pack, write_pack
from goal_core.errors import ConfigError, DataError, DeviceError
from goal_core.training import train_unit
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.training_cases import DATA, FROZEN, folders_of, same_weights, unit_of

# torchvision 0.29 gives its decoders to TorchCodec, which no dependency brings yet.
pytestmark = pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")

CPU = torch.device("cpu")
CROPS = ImageConfig(size=16, resize=20, augment="crop_flip")
NVJPEG = replace(CROPS, decoder="nvjpeg")
REQUESTS = [
    DecodeRequest(images=np.array([5, 0, 5, 3]), seeds=(1, 2, 3, 4)),
    DecodeRequest(images=np.array([7]), seeds=(2**62,)),
    DecodeRequest(images=np.arange(40) % 8, seeds=tuple(range(40))),
]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 90), st.integers(1, 90), st.integers(1, 40), st.integers(0, 30), st.integers(0, 30),
    st.sampled_from([Image.Resampling.BILINEAR, Image.Resampling.BICUBIC]), st.integers(0, 10**6),
)  # fmt: skip
def test_resizing_is_that_of_pillow_bit_for_bit(
    height: int, width: int, size: int, more_rows: int, more_columns: int, how: Image.Resampling, seed: int
) -> None:
    noise = np.random.default_rng(seed)
    pixels = noise.integers(0, 256, (height, width, 3), dtype=np.uint8)
    pixels = pixels if seed % 2 else (pixels > 127).astype(np.uint8) * 255
    out = (size + more_rows, size + more_columns)
    first = (int(noise.integers(0, more_rows + 1)), int(noise.integers(0, more_columns + 1)))
    padded = torch.randint(0, 256, (2, 3, height + 3, width + 5), dtype=torch.uint8)
    padded[1, :, :height, :width] = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
    twice = [torch.tensor([pair, pair]) for pair in ((height, width), out, first)]
    found = resampling.resample(padded, *twice, size, how)[1]
    whole = np.asarray(Image.fromarray(pixels).resize(out[::-1], how))
    expected = whole[first[0] : first[0] + size, first[1] : first[1] + size]
    assert np.array_equal(found.permute(1, 2, 0).numpy(), expected)


def test_another_pillow_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL, "__version__", "12.0.0" if int(PIL.__version__.split(".")[0]) > 12 else "13.0.0")
    with pytest.raises(DeviceError, match="differ from those of this Pillow"):
        resampling.check_resampling.__wrapped__(CPU)


def train_split(tmp_path: Path, image: ImageConfig, packed: bool) -> Split:
    root = tmp_path / "data"
    if not root.exists():
        write_dataset(root, size=(70, 41))
    dataset = open_dataset(KarpathyConfig(name="tiny", root=str(root), image=image))
    if packed:
        write_pack(dataset, plan_pack(dataset, image, tmp_path / "packs"))
        dataset, _ = open_packed(dataset, image, tmp_path / "packs")
    return dataset.splits["train"]


@pytest.mark.parametrize("augment", ["crop_flip", "vse_infty"])
@pytest.mark.parametrize(("packed", "resident"), [(False, None), (True, None), (True, True)])
def test_batches_are_those_of_the_cpu(tmp_path: Path, augment: str, packed: bool, resident: bool | None) -> None:
    image = replace(CROPS, augment=augment, shrink=24)
    expected = list(ImageDecoder(train_split(tmp_path, image, packed=False), image).stream(REQUESTS))
    images = DeviceImages(train_split(tmp_path, image, packed), image, CPU, threads=2, resident=resident)
    assert images.is_resident is bool(resident)
    for _ in range(2):
        assert all(map(torch.equal, images.stream(REQUESTS), expected))


def test_what_cannot_be_done_there_is_said(tmp_path: Path) -> None:
    for augment, why in (("xvlm", "distorts images with Pillow"), ("none", "not augmented")):
        image = replace(CROPS, augment=augment)
        with pytest.raises(ConfigError, match=why):
            DeviceImages(train_split(tmp_path, image, packed=False), image, CPU)
    with pytest.raises(ConfigError, match="only from a pack"):
        DeviceImages(train_split(tmp_path, CROPS, packed=False), CROPS, CPU, resident=True)


def test_a_training_has_the_same_numbers_where_images_are_augmented_on_the_device(tmp_path: Path) -> None:
    data = replace(DATA, image=replace(DATA.image, augment="crop_flip"))
    stage = replace(FROZEN, epochs=1, lr_drops=(), warmup_epochs=0)
    unit = unit_of("con/con", data=data, stage=stage, augment_on="cpu")
    plain, there = folders_of(unit, tmp_path / "cpu"), folders_of(unit, tmp_path / "device")
    train_unit(unit, plain)
    train_unit(replace(unit, augment_on="device"), there)
    assert plain["con-con"].numbers() == there["con-con"].numbers()
    assert same_weights(plain["con-con"], there["con-con"])
    assert "augmented on cpu" in (there["con-con"].root / "log.txt").read_text()


def by_pillow(files: list[torch.Tensor]) -> list[torch.Tensor]:
    """Stands for nvJPEG."""
    decoded = [decode_bytes(file.numpy().tobytes(), "file") for file in files]
    return [torch.from_numpy(pixels.transpose(2, 0, 1).copy()) for pixels in decoded]


def by_torchvision(files: list[torch.Tensor]) -> list[torch.Tensor]:
    """The function by which nvJPEG is called, on the CPU."""
    return list(decode_jpeg(files, mode=ImageReadMode.RGB))


def jpeg_split(tmp_path: Path) -> Split:
    """Images of which every other one is a JPEG, under the names of PNGs."""
    split = train_split(tmp_path, NVJPEG, packed=False)
    for index in range(0, split.num_images, 2):
        path = split.reader.label(index)
        Image.open(path).resize((37 + 5 * index, 300 - index)).save(path, format="JPEG", quality=95)
    return split


@pytest.mark.parametrize("augment", ["crop_flip", "vse_infty"])
def test_files_that_are_decoded_on_the_device_go_the_same_way(tmp_path: Path, augment: str) -> None:
    image = replace(NVJPEG, augment=augment)
    split = jpeg_split(tmp_path)
    evaluated = [replace(request, seeds=()) for request in REQUESTS]
    expected = list(ImageDecoder(split, replace(image, decoder="pillow")).stream([*REQUESTS, *evaluated]))
    images = DeviceImages(split, image, CPU, decode=by_pillow)
    assert all(map(torch.equal, images.stream([*REQUESTS, *evaluated]), expected))
    close = DeviceImages(split, image, CPU, decode=by_torchvision)
    for found, wanted in zip(close.stream([*REQUESTS, *evaluated]), expected, strict=True):
        assert (found.int() - wanted.int()).abs().float().mean() < 2


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    split = jpeg_split(tmp_path)
    path = Path(split.reader.label(2))
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(DataError, match=f"cannot read image {path}: "):
        list(DeviceImages(split, NVJPEG, CPU, decode=by_torchvision).stream(REQUESTS[2:]))


def test_nvjpeg_needs_a_gpu_and_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    split = train_split(tmp_path, NVJPEG, packed=False)
    with pytest.raises(DeviceError, match="nvjpeg needs a GPU"):
        DeviceImages(split, NVJPEG, CPU)
    with pytest.raises(ConfigError, match="takes images as they are"):
        replace(NVJPEG, shrink=24)
    root = str(tmp_path / "data")
    prints = {open_dataset(KarpathyConfig(name="t", root=root, image=image)).fingerprint for image in (CROPS, NVJPEG)}
    assert len(prints) == 2


@pytest.mark.gpu
def test_nvjpeg_decodes_nearly_as_pillow(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    split = jpeg_split(tmp_path)
    expected = ImageDecoder(split, CROPS).stream(REQUESTS)
    for found, wanted in zip(DeviceImages(split, NVJPEG, torch.device("cuda")).stream(REQUESTS), expected, strict=True):
        assert (found.cpu().int() - wanted.int()).abs().float().mean() < 4


@pytest.mark.gpu
def test_pillow_s_pixels_on_a_gpu(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    expected = list(ImageDecoder(train_split(tmp_path, CROPS, packed=False), CROPS).stream(REQUESTS))
    images = DeviceImages(train_split(tmp_path, CROPS, packed=True), CROPS, torch.device("cuda"))
    assert images.is_resident
    assert all(map(torch.equal, (batch.cpu() for batch in images.stream(REQUESTS)), expected))
