"""Weights as people have them: wrapped, cut, replaced by a pointer or a page, or with NaN inside."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from goal_sweep.goal_core.basics.errors import WeightsError, listening
from goal_sweep.goal_core.models import BackboneConfig
from goal_sweep.goal_core.models.backbones import ImageBackbone, build_backbone
from goal_sweep.goal_core.official.convert import read_torch_file

NAME = "resnet10t"
State = dict[str, Tensor]


def built(weights: str) -> ImageBackbone:
    return build_backbone(BackboneConfig(name=NAME, weights=weights), image_size=32, seed=1)


@pytest.fixture(scope="module")
def state() -> State:
    return {name: tensor.clone() for name, tensor in built("random").net.state_dict().items()}


def prefixed(*prefixes: str) -> Callable[[State], object]:
    return lambda state: {"".join(prefixes) + name: tensor for name, tensor in state.items()}


@pytest.mark.parametrize(
    ("wrap", "said"),
    [
        (lambda state: state, ""),
        (lambda state: {"state_dict": state, "epoch": 3}, ""),
        (lambda state: {"model": state, "optimizer": {}}, ""),
        (
            lambda state: {"state_dict_ema": {"a": 1}, "state_dict": state},
            "'state_dict' is taken, not 'state_dict_ema'",
        ),
        (lambda state: {"model": state, "model_ema": {"module": {}}}, "'model' is taken, not 'model_ema'"),
        (lambda state: {"ema": state, "model": state, "swa": state}, "'model' is taken, not 'ema', 'swa'"),
        (lambda state: {"model": state, "schema": {}, "ema": None}, ""),
        (prefixed("module."), "'module.'"),
        (prefixed("module.", "_orig_mod."), "'module._orig_mod.'"),
        (prefixed("backbone."), "'backbone.'"),
        (lambda state: {"model_state_dict": prefixed("model.", "encoder.")(state)}, "'model.encoder.'"),
    ],
)
def test_what_wraps_weights_is_taken_off_with_a_word(
    tmp_path: Path, state: State, wrap: Callable[[State], object], said: str
) -> None:
    torch.save(wrap(state), tmp_path / "w.pth")
    lines: list[str] = []
    with listening(lines.append):
        loaded = built(str(tmp_path / "w.pth")).net.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
    assert [said in line and "w.pth" in line for line in lines] == ([True] if said else [])


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 99\n"


@pytest.mark.parametrize("ending", [".pth", ".safetensors"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (POINTER, "is a Git LFS pointer"),
        (b"<!DOCTYPE html>\n<html><body>Log in</body></html>", "is a web page"),
        (b"\n<html lang='en'></html>", "is a web page"),
        (b"", "is empty"),
        (b"not a file of weights at all", "cannot read weights|weights-only"),
    ],
)
def test_a_file_that_holds_no_weights_is_called_what_it_is(tmp_path: Path, ending: str, content: bytes, said: str):
    (path := tmp_path / f"w{ending}").write_bytes(content)
    with pytest.raises(WeightsError, match=said) as caught:
        built(str(path))
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_that_are_cut_or_named_as_another_kind_are_called_what_they_are(tmp_path: Path, state: State) -> None:
    torch.save(state, tmp_path / "whole.pth")
    content = (tmp_path / "whole.pth").read_bytes()
    for size in (100, len(content) // 2, len(content) - 1):
        (tmp_path / "cut.pth").write_bytes(content[:size])
        with pytest.raises(WeightsError, match=r"cut\.pth has lost its end"):
            built(str(tmp_path / "cut.pth"))
    save_file(state, tmp_path / "named.pth")
    with pytest.raises(WeightsError, match=r"named\.pth is a safetensors file; name it \.safetensors"):
        built(str(tmp_path / "named.pth"))


@pytest.mark.parametrize(
    ("end", "value", "said"),
    [
        ("conv1.weight", float("nan"), "NaN or infinity"),
        ("conv1.weight", float("inf"), "NaN or infinity"),
        ("running_var", -0.1, "a negative variance"),
    ],
)
@pytest.mark.parametrize("ending", [".pth", ".safetensors"])
def test_weights_that_nothing_can_be_computed_with_are_refused_by_name(
    tmp_path: Path, state: State, ending: str, end: str, value: float, said: str
) -> None:
    name = next(name for name in state if name.endswith(end))
    broken = {key: tensor.clone() for key, tensor in state.items()}
    broken[name].view(-1)[5] = value
    path = tmp_path / f"w{ending}"
    torch.save(broken, path) if ending == ".pth" else save_file(broken, path)
    with pytest.raises(WeightsError, match=f"contain {said}, in {name}"):
        built(str(path))


@pytest.mark.parametrize(
    ("wrap", "said"),
    [
        (lambda state: {"student": state, "teacher": state, "epoch": 3}, "in 'student', 'teacher'; save"),
        (lambda state: {"net": state}, "in 'net'; save"),
        (lambda state: {"ema": state, "optimizer": {"state": {}}}, "in 'ema'; save"),
        (lambda state: {name: torch.zeros_like(tensor) for name, tensor in state.items()}, "are all 0"),
        (lambda state: {"model": {name: 0 * tensor for name, tensor in state.items()}}, "are all 0"),
        *(
            (lambda state, kind=kind: {name: tensor.to(kind) for name, tensor in state.items()}, f"is {kind}")
            for kind in (torch.int8, torch.bool, torch.float8_e4m3fn, torch.complex64)
        ),
        (lambda state: {name: tensor * (tensor.ndim < 2) for name, tensor in state.items()}, "are all 0"),
    ],
)
def test_weights_of_which_none_or_nothing_is_taken_are_refused(
    tmp_path: Path, state: State, wrap: Callable[[State], object], said: str
) -> None:
    torch.save(wrap(state), tmp_path / "w.pth")
    with pytest.raises(WeightsError, match=said):
        built(str(tmp_path / "w.pth"))


@pytest.mark.filterwarnings("ignore")  # of torch, which retires one of the two
@pytest.mark.parametrize(("name", "is_script"), [("w.pt", True), ("w.safetensors", True), ("w.pth", False)])
def test_a_program_is_no_file_of_weights(tmp_path: Path, name: str, is_script: bool) -> None:
    net, path = torch.nn.Linear(2, 2), tmp_path / name
    if is_script:
        torch.jit.script(net).save(str(path))
    else:
        torch.export.save(torch.export.export(net, (torch.zeros(1, 2),)), path.open("wb"))
    for read in (built, lambda name: read_torch_file(Path(name))):
        with pytest.raises(WeightsError, match=r"is a program .*state_dict\(\)") as caught:
            read(str(path))
        assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("stored", [[torch.zeros(2, 2)], {"layers": 3}, {}, 7])
def test_a_file_without_tensors_is_a_mistake_in_the_weights(tmp_path: Path, stored: object) -> None:
    torch.save(stored, path := tmp_path / "w.pth")
    with pytest.raises(WeightsError, match=f"{path} .*(mapping from names to tensors|do not fit)") as caught:
        built(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [("resnet10t.c3_in1k", False), ("best", False), ("resnet14t", True), ("tf_efficientnet_b0.ns", True)],
)
def test_weights_named_after_another_backbone_are_told(tmp_path: Path, state: State, name: str, said: bool) -> None:
    save_file(state, path := tmp_path / f"{name}.safetensors")
    lines: list[str] = []
    with listening(lines.append):
        built(str(path))
    assert ["another backbone" in line for line in lines] == [True] * said
