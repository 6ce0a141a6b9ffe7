import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data import ImageConfig
from goal_sweep.goal_core.data.formats.index import FileReader
from goal_sweep.goal_core.data.formats.pictures import DARK, FORMATS, TURNED, decode_image, to_rgb
from goal_sweep.goal_core.data.transforms import (
    CROP_RATIO,
    CROP_SCALE,
    OPERATIONS,
    rand_augment,
    random_crop_box,
    transform_of,
)
from tests.helpers.paths import ROOT
from tests.helpers.properties import given, settings, st

CONFIG = ImageConfig(size=24, resize=32)


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def saved(tmp_path: Path, image: Image.Image, name: str = "image.png", **options: object) -> Path:
    image.save(tmp_path / name, **options)  # type: ignore[arg-type]
    return tmp_path / name


def test_rgb_is_read_as_it_is(tmp_path: Path) -> None:
    pixels = decode_image(saved(tmp_path, Image.fromarray(noise(5, 7))))
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, noise(5, 7))


def test_transparency_is_composited_on_white(tmp_path: Path) -> None:
    rgba = np.array([[[200, 0, 0, 255], [200, 0, 0, 0], [0, 0, 0, 128]]], dtype=np.uint8)
    assert decode_image(saved(tmp_path, Image.fromarray(rgba))).tolist() == [
        [[200, 0, 0], [255, 255, 255], [127, 127, 127]]
    ]
    grey = np.array([[[9, 255], [9, 0]]], dtype=np.uint8)
    assert decode_image(saved(tmp_path, Image.fromarray(grey))).tolist() == [[[9] * 3, [255] * 3]]


@pytest.mark.parametrize("transparency", [1, b"\xff\x00"])
def test_a_palette_with_a_transparent_entry(tmp_path: Path, transparency: int | bytes) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    path = saved(tmp_path, image, transparency=transparency)
    assert decode_image(path).tolist() == [[[10, 20, 30], [255, 255, 255]]]
    assert decode_image(saved(tmp_path, image)).tolist() == [[[10, 20, 30], [40, 50, 60]]]


def test_greyscale_of_1_8_and_16_bits(tmp_path: Path) -> None:
    grey = np.array([[0, 100, 255]], dtype=np.uint8)
    assert decode_image(saved(tmp_path, Image.fromarray(grey)))[0, :, 0].tolist() == [0, 100, 255]
    deep = np.array([[0, 256, 65535]], dtype=np.uint16)
    for name in ("deep.png", "deep.tif"):
        assert decode_image(saved(tmp_path, Image.fromarray(deep), name))[0].tolist() == [[0] * 3, [1] * 3, [255] * 3]
    bits = Image.fromarray(np.array([[False, True]]))
    assert decode_image(saved(tmp_path, bits))[0, :, 2].tolist() == [0, 255]


@pytest.mark.parametrize(
    ("kind", "values", "seen"),
    [
        (np.float32, [0.0, 0.5, 1.0], [0, 127, 255]),
        (np.float32, [0.0, 128.0, 255.0], [0, 128, 255]),
        (np.int32, [0, 128, 255], [0, 128, 255]),
        (np.int32, [0, 32768, 65535], [0, 128, 255]),
        (np.float32, [0.0, 1.0, 256.0], None),
        *((np.float32, [0.0, 0.5, top], None) for top in (1.0001, 1.2, 3.0, 10.0)),
        (np.float32, [-1.0, 0.0, 1.0], None),
        (np.int32, [0, 1, 70_000], None),
        (np.int32, [-1, 0, 1], None),
    ],
)
def test_wide_greyscale_has_a_known_range_or_is_refused(
    tmp_path: Path, kind: type, values: list[float], seen: list[int] | None
) -> None:
    Image.fromarray(np.array([values], dtype=kind)).save(tmp_path / "w.tif")
    if seen is None:
        with pytest.raises(DataError, match=rf"w\.tif: its numbers lie between {values[0]:g} and {values[-1]:g}, "):
            decode_image(tmp_path / "w.tif")
    else:
        assert decode_image(tmp_path / "w.tif")[0].tolist() == [[value] * 3 for value in seen]


@pytest.mark.parametrize(
    ("ending", "kind", "most", "is_dark", "guess"),
    [
        ("png", "<u2", 255, True, 0),
        ("png", "<u2", 4_095, True, 0),
        ("tif", "<u2", 16_383, True, 0),
        ("tif", "<u2", 16_384, False, 0),
        ("png", "<u2", 65_535, False, 0),
        ("tif", "<i4", 4_095, True, 65_535),
        ("tif", "<i4", 255, False, 255),
        ("tif", "<f4", 0.75, False, 1),
        ("tif", "<f4", 99, False, 255),
        ("png", "u1", 15, False, 0),
    ],
)
def test_wide_greyscale_that_is_nearly_black_is_said_and_a_range_that_is_guessed(
    tmp_path: Path, ending: str, kind: str, most: float, is_dark: bool, guess: int
) -> None:
    path = saved(tmp_path, Image.fromarray(np.array([[0, most / 2, most]], kind)), f"deep.{ending}")
    reader = FileReader(str(tmp_path), [path.name], np.zeros((1, 32), np.uint8))
    guessed = f"are read as from 0 to {guess}, as their own numbers suggest"
    assert reader.fresh([0])[2:] == ([], [(str(path), DARK)] * is_dark + [(str(path), guessed)] * bool(guess))


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    numbers = np.array([[0, 1, np.nan]], dtype=np.float32)
    assert decode_image(saved(tmp_path, Image.fromarray(numbers[:, :2]), "fine.tif")).shape == (1, 2, 3)
    with pytest.raises(DataError, match=r"broken\.tif: it has numbers that are not finite"):
        decode_image(saved(tmp_path, Image.fromarray(numbers), "broken.tif"))


def test_cmyk_jpeg_becomes_rgb(tmp_path: Path) -> None:
    path = saved(tmp_path, Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "ink.jpg", quality=95)
    red, green, blue = decode_image(path)[4, 4].tolist()
    assert red > 200
    assert max(green, blue) < 60


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif", "lzw.tif", "L.tif", "CMYK.tif"])
def test_exif_orientation_is_not_applied(tmp_path: Path, ending: str) -> None:
    exif, mode = Image.Exif(), ending.split(".")[0]
    image = Image.fromarray(noise(4, 8)).convert(mode if mode.isupper() else "RGB")
    how: Any = {"webp": {"lossless": True}, "lzw.tif": {"compression": "tiff_lzw"}}.get(ending, {})
    plain = decode_image(saved(tmp_path, image, f"plain.{ending}", **how))
    for turn in range(1, 9):
        exif[0x0112] = turn
        path = saved(tmp_path, image, f"{turn}.{ending}", exif=exif, **how)
        assert np.array_equal(decode_image(path), plain)
        with Image.open(path) as opened:
            assert np.array_equal(np.asarray(to_rgb(opened)), plain)
            assert np.array_equal(np.asarray(to_rgb(opened)), plain)
        reader = FileReader(str(tmp_path), [path.name], np.zeros((1, 32), np.uint8))
        assert reader.fresh([0])[2:] == ([], [(str(path), TURNED)] if turn > 1 else [])


def test_a_gif_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    path = saved(tmp_path, frames[0], "moving.gif", save_all=True, append_images=frames[1:])
    assert decode_image(path)[0, 0].tolist() == [255, 0, 0]


def damaged() -> dict[str, bytes]:
    buffer = io.BytesIO()
    Image.fromarray(noise(64, 64)).save(buffer, "JPEG")
    jpeg = buffer.getvalue()
    buffer = io.BytesIO()
    Image.fromarray(noise(64, 64)).save(buffer, "PNG")
    png = buffer.getvalue()
    return {
        "empty": b"",
        "text": b"<html>404</html>",
        "cut.jpg": jpeg[: len(jpeg) // 2],
        "cut.png": png[: len(png) // 2],
        "flipped.png": png[:60] + bytes(200) + png[260:],
        "header.png": png[:20],
    }


@pytest.mark.parametrize("name", damaged())
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(damaged()[name])
    with pytest.raises(DataError, match=f"cannot read image {path}: ") as caught:
        decode_image(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"^cannot read image it: [^<>]*$"):
        decode_image(damaged()[name], "it")


def test_an_image_of_too_many_pixels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, Image.fromarray(noise(5, 7)))
    monkeypatch.setattr("goal_sweep.goal_core.data.formats.pictures.MAX_PIXELS", 34)
    with pytest.raises(DataError, match=r"image\.png: .* 7 x 5 pixels"):
        decode_image(path)
    path.write_bytes(png_of(20_000, 20_000))  # so many that Pillow refuses it
    with pytest.raises(DataError, match=r"image\.png: it has more than 34 pixels"):
        decode_image(path)
    path.write_bytes(png_of(10_000, 10_000))  # of which Pillow warns
    program = f"from goal_sweep.goal_core.data.formats.pictures import decode_image; decode_image({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Warning" not in done.stderr
    assert "10000 x 10000 pixels" in done.stderr.splitlines()[-1]


def png_of(width: int, height: int) -> bytes:
    """A PNG file without most of its pixels."""
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b"\0"))
    parts = (struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def torchvision_eval(pixels: np.ndarray, config: ImageConfig) -> torch.Tensor:
    pipeline = transforms.Compose(
        [transforms.Resize(config.resize), transforms.CenterCrop(config.size), transforms.PILToTensor()]
    )
    cropped: torch.Tensor = pipeline(Image.fromarray(pixels))
    return cropped


@settings(deadline=None, max_examples=60)
@given(height=st.integers(1, 90), width=st.integers(1, 90), size=st.integers(8, 40), extra=st.integers(0, 9))
def test_evaluation_pixels_equal_torchvisions(height: int, width: int, size: int, extra: int) -> None:
    if max(height, width) > 32 * min(height, width):
        width = height
    config = ImageConfig(size=size, resize=size + extra)
    ours = transform_of(config).for_evaluation(noise(height, width))
    assert ours.dtype == torch.uint8
    assert ours.shape == (3, size, size)
    assert torch.equal(ours, torchvision_eval(noise(height, width), config))


def test_a_very_long_image_stays_small_when_it_is_resized(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    resize = Image.Image.resize

    def recorded(image: Image.Image, size: tuple[int, int], resample: Image.Resampling) -> Image.Image:
        sizes.append(size)
        return resize(image, size, resample)

    monkeypatch.setattr(Image.Image, "resize", recorded)
    ramp = np.repeat(np.arange(60_000, dtype=np.uint16)[None, :] // 256, 1, axis=0).astype(np.uint8)
    ours = transform_of(CONFIG).for_evaluation(np.stack([ramp] * 3, axis=2))
    assert ours.shape == (3, 24, 24)
    assert set(ours.unique().tolist()) <= {116, 117, 118}  # the middle of the ramp, 30,000 / 256
    assert sizes == [(32 * 32, 32)]


def test_training_pixels_depend_on_their_seed_and_on_no_global_stream() -> None:
    pixels = noise(50, 40)
    first = transform_of(CONFIG).for_training(pixels, 7)
    torch.rand(3)
    np.random.rand(3)
    state = torch.get_rng_state()
    assert torch.equal(transform_of(CONFIG).for_training(pixels, 7), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(transform_of(CONFIG).for_training(pixels, 8), first)
    assert first.shape == (3, 24, 24)
    assert first.dtype == torch.uint8


def test_crop_boxes_are_spread_as_torchvision_spreads_them() -> None:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    image = Image.new("RGB", (120, 90))
    ours = np.array([random_crop_box(90, 120, rng) for _ in range(4000)], dtype=float)
    theirs = np.array(
        [transforms.RandomResizedCrop.get_params(image, [*CROP_SCALE], [*CROP_RATIO]) for _ in range(4000)], dtype=float
    )
    assert np.allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=2.0)
    assert np.allclose(ours.std(axis=0), theirs.std(axis=0), atol=2.0)


def test_a_crop_that_cannot_fit_falls_back_to_the_centre() -> None:
    assert random_crop_box(100, 1, np.random.default_rng(0)) == (49, 0, 1, 1)
    assert random_crop_box(10, 1000, np.random.default_rng(0)) == (0, 493, 10, 13)


def test_only_the_listed_formats_are_read_whatever_a_file_is_called(tmp_path: Path) -> None:
    picture = Image.fromarray(np.zeros((8, 8, 3), np.uint8))
    for kind in FORMATS:
        picture.save(tmp_path / "0.jpg", format=kind)
        assert decode_image(tmp_path / "0.jpg").shape == (8, 8, 3)
    for kind in ("EPS", "ICO", "PDF"):
        picture.save(tmp_path / "0.png", format=kind)
        with pytest.raises(DataError, match=r"0\.png: .* none of the formats JPEG"):
            decode_image(tmp_path / "0.png")


def test_rand_augment_does_two_of_ten_operations_half_of_the_time() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    pixels[0, 0], pixels[0, 1] = 0, 255
    image = Image.fromarray(pixels)
    assert len(OPERATIONS) == 10
    for place, (name, operation) in enumerate(OPERATIONS.items()):
        there, back = operation(image, 1), operation(image, -1)
        assert there.size == image.size
        assert (there.tobytes() == back.tobytes()) == (place < 5)
        assert (there.tobytes() == image.tobytes()) == (
            name in ("Identity", "AutoContrast")
        )  # it is full range already
    draws = (np.random.Generator(np.random.PCG64(seed)) for seed in range(400))
    unchanged = np.mean([rand_augment(image, generator).tobytes() == image.tobytes() for generator in draws])
    assert unchanged == pytest.approx(
        0.6**2, abs=0.06
    )  # each draw: not done, or done and one of the two that do nothing
    shifted = np.asarray(OPERATIONS["TranslateX"](image, 1))
    assert np.array_equal(shifted[:, 7:], np.asarray(image)[:, :-7])
    assert (shifted[:, :7] == 128).all()
