"""A pretended GPU: the CPU computes, tensors say `cuda:0`, and what a GPU would refuse or wait for shows.

Every storage remembers where it is supposed to be: on the GPU, in pinned memory, or in plain memory. An operation on
tensors of two places fails as it would on a GPU, and every read of a number and every copy that blocks is noted.
Creating tensors, moving them and asking for their device is caught where Python calls torch; everything else, the
backward pass included, where torch dispatches to a kernel.

What it cannot show: kernels that differ, memory that runs out, and streams.
"""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.optim import optimizer
from torch.overrides import TorchFunctionMode
from torch.utils import _foreach_utils, checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

GPU, PINNED, CPU = "gpu", "pinned", "cpu"
DEVICE = torch.device("cuda", 0)
IS_CUDA: Any = Tensor.is_cuda
"""A descriptor, which its annotation in torch does not say."""
_GOAL_CORE = str(Path(__file__).parents[2] / "goal_sweep" / "goal_core")

_FACTORIES = frozenset(
    getattr(torch, name)
    for name in (
        *("arange", "empty", "empty_permuted", "empty_strided", "eye", "full", "linspace", "ones", "rand", "randint"),
        *("randn", "randperm", "zeros", "empty_like", "full_like", "ones_like", "rand_like", "zeros_like"),
    )
)
_FROM_HOST = frozenset({torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor})
_READS = frozenset(
    {
        *(Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__float__, Tensor.__int__, Tensor.__index__),
        *(Tensor.__contains__, torch.equal, Tensor.equal),
    }
)
_SIZED_BY_DATA = frozenset(
    {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount", "multinomial"}
)
"""Kernels that make a GPU's caller wait: the size of their result depends on numbers, or they check them."""
_TAKE_LENGTHS = frozenset({"_pack_padded_sequence", "_pad_packed_sequence", "gru"})
"""Kernels that want the lengths of sequences on the CPU."""


class MixedPlacesError(AssertionError):
    """An operation on tensors of the GPU and of the CPU."""


class PretendedGpu:
    """Notes what a step does that a GPU would wait for.

    Attributes:
        waits: for each, what was called, and the line of goal_core that did.
        kernels: how many operations were queued.
    """

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.kernels = 0

    def note(self, what: str) -> None:
        """Note a wait."""
        ours = [frame for frame in traceback.extract_stack() if frame.filename.startswith(_GOAL_CORE)]
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        self.waits.append(f"{what} at {where}")


class Event:
    """Waiting for it is a wait where nothing has been queued since, so that the GPU would idle."""

    def __init__(self, gpu: PretendedGpu) -> None:
        self._gpu, self._at = gpu, 0

    def record(self) -> None:
        """Note the kernels that were queued."""
        self._at = self._gpu.kernels

    def synchronize(self) -> None:
        """Wait."""
        if self._gpu.kernels == self._at:
            self._gpu.note("synchronize()")


def place_of(tensor: Tensor) -> str:
    """Where a tensor is supposed to be."""
    return str(getattr(tensor.untyped_storage(), "goal_place", CPU))


def put(tensor: Tensor, place: str) -> Tensor:
    """Say where a tensor is supposed to be."""
    tensor.untyped_storage().goal_place = place  # type: ignore[attr-defined]  # ours
    return tensor


class _Kernels(TorchDispatchMode):
    """Checks and marks the tensors of every kernel."""

    def __init__(self, gpu: PretendedGpu) -> None:
        super().__init__()
        self._gpu = gpu
        self.calls: list[str] = []
        """Places of the Python calls of torch that are open: what their kernels create is there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        given = [one for one in tree_leaves((args, kwargs or {})) if isinstance(one, Tensor)]
        places = {place_of(one) for one in given if one.ndim} or {place_of(one) for one in given}
        on_gpu = GPU in places
        self._gpu.kernels += on_gpu
        if on_gpu and name == "copy_" and place_of(args[0]) != place_of(args[1]):
            self._gpu.note("copy_ between memories")
        elif on_gpu and name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            indices = [one for one in args[1] if one is not None]
            if any(one.dtype == torch.bool for one in indices):
                self._gpu.note("indexing by a mask")
            if any(place_of(one) != GPU for one in indices):
                self._gpu.note("indexing by a tensor of the CPU")
        elif on_gpu and places != {GPU} and name not in _TAKE_LENGTHS:
            raise MixedPlacesError(f"{func} on tensors of {', '.join(sorted(places))}")
        if on_gpu and name in _SIZED_BY_DATA:
            self._gpu.note(name)
        result = func(*args, **(kwargs or {}))
        place = GPU if on_gpu else self.calls[-1] if self.calls and not given else CPU
        if place == GPU:
            for index, made in enumerate(tree_leaves(result)):
                if isinstance(made, Tensor) and not (name == "_pack_padded_sequence" and index):
                    put(made, GPU)
        return result


class _Calls(TorchFunctionMode):
    """Answers questions about devices, and moves tensors between pretended memories."""

    def __init__(self, gpu: PretendedGpu, kernels: _Kernels) -> None:
        super().__init__()
        self._gpu, self._kernels = gpu, kernels

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        tensor = args[0] if args and isinstance(args[0], Tensor) else None
        here = CPU if tensor is None else place_of(tensor)
        if func == Tensor.device.__get__:
            return DEVICE if here == GPU else torch.device("cpu")
        if func == IS_CUDA.__get__:
            return here == GPU
        if func in (Tensor.is_pinned, Tensor.pin_memory):
            return here == PINNED if func is Tensor.is_pinned else self._pinned(tensor)
        if func in (Tensor.to, Tensor.cpu, Tensor.cuda):
            return self._moved(func, here, args, kwargs)
        if func in _READS and here == GPU:
            self._gpu.note(f"{getattr(func, '__name__', func)}()")
        if func is Tensor.numpy and here == GPU:
            raise MixedPlacesError("numpy() of a tensor of the GPU")
        if func in _FROM_HOST or func in _FACTORIES:
            wanted = _wanted(kwargs.pop("device", None)) or (here if tensor is not None else CPU)
            if wanted == GPU and func in _FROM_HOST:
                self._gpu.note(f"torch.{func.__name__} on a device")
            return put(self._inside(wanted, func, args, kwargs), wanted)
        if func is torch.autograd.backward:
            return self._backward(args[0], kwargs.get("grad_tensors"))
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        places = {place_of(one) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        return self._inside(GPU if GPU in places else CPU, func, args, kwargs)

    def _inside(self, place: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._kernels.calls.append(place)
        try:
            return func(*args, **kwargs)
        finally:
            self._kernels.calls.pop()

    def _backward(self, roots: tuple[Tensor, ...], gradients: Sequence[Tensor] | None) -> None:
        """The backward pass with this mode on, which torch's own function would run without it."""
        upstream = tuple(gradients or [put(torch.ones_like(root), place_of(root)) for root in roots])
        engine = torch.autograd.Variable._execution_engine
        self._kernels.calls.append(place_of(roots[0]))
        try:
            with self:
                engine.run_backward(roots, upstream, False, False, (), allow_unreachable=True, accumulate_grad=True)
        finally:
            self._kernels.calls.pop()

    def _pinned(self, tensor: Tensor | None) -> Tensor:
        assert tensor is not None
        assert place_of(tensor) != GPU, "only memory of the CPU can be pinned"
        return tensor if place_of(tensor) == PINNED else put(tensor.clone(), PINNED)

    def _moved(self, func: Callable[..., Any], here: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        tensor, *rest = args
        wanted = {Tensor.cpu: CPU, Tensor.cuda: GPU}.get(func)
        kept: list[Any] = []
        for given in rest:
            if isinstance(given, Tensor):
                wanted = wanted or place_of(given)
                kwargs["dtype"] = given.dtype
            elif isinstance(given, torch.device | str | int) and not isinstance(given, bool):
                wanted = wanted or _wanted(given)
            elif isinstance(given, torch.dtype):
                kwargs["dtype"] = given
            elif isinstance(given, bool):
                kwargs["non_blocking"] = given
            elif given is not None:
                kept.append(given)
        wanted = _wanted(kwargs.pop("device", None)) or wanted or here
        blocking = not kwargs.pop("non_blocking", False)
        on_gpu = wanted == GPU
        if on_gpu == (here == GPU):
            return put(self._inside(here, Tensor.to, (tensor, *kept), kwargs), here)
        if blocking or (on_gpu and here != PINNED):
            how = "to the CPU" if not on_gpu else "to the device" if blocking else "of unpinned memory to the device"
            self._gpu.note(f"copy {how}")
        made = put(tensor.detach().clone(), GPU if on_gpu else CPU)
        made = self._inside(wanted, Tensor.to, (made, *kept), kwargs) if kept or kwargs else made
        return put(made.requires_grad_(tensor.requires_grad), GPU if on_gpu else CPU)


def _wanted(device: object) -> str | None:
    if device is None:
        return None
    return GPU if torch.device(device).type == "cuda" else CPU  # type: ignore[call-overload]  # any of its forms


@contextmanager
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendedGpu]:
    """Within the block `cuda` is the pretended GPU."""
    gpu = PretendedGpu()
    kernels = _Kernels(gpu)
    with monkeypatch.context() as patch:
        _patch_cuda(patch)
        patch.setattr(torch.cuda, "Event", lambda: Event(gpu))
        with kernels, _Calls(gpu, kernels):
            yield gpu


def _grouped(lists: Any, with_indices: bool = False) -> Any:
    found = _foreach_utils._group_tensors_by_device_and_dtype(lists, with_indices)
    return {(DEVICE, dtype): group for (_, dtype), group in found.items()}


def _patch_cuda(patch: pytest.MonkeyPatch) -> None:
    """Let torch's questions about CUDA be answered, and its autocast on CUDA be that of the CPU."""
    autocast, enabled, dtype = torch.autocast, torch.is_autocast_enabled, torch.get_autocast_dtype
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "empty_cache": lambda: None,
        "is_current_stream_capturing": lambda: False,
        "get_device_capability": lambda device=None: (9, 0),
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda state, device=None: None,
        "manual_seed_all": lambda seed: None,
    }
    for name, answer in answers.items():
        patch.setattr(torch.cuda, name, answer)
    patch.setattr(torch.nn.RNNBase, "flatten_parameters", lambda self: None)  # which calls cuDNN
    # What torch's own code learns of devices below Python is that of the CPU.
    for where in (clip_grad, optimizer):
        patch.setattr(where, "_group_tensors_by_device_and_dtype", _grouped)
    patch.setitem(checkpoint._allowed_determinism_checks_to_fns, "default", lambda tensor: tensor.shape)
    stream = SimpleNamespace(is_capturing=lambda: False)
    patch.setattr(torch.accelerator, "current_stream", lambda device=None: stream)  # asked by the optimiser
    for module in (torch, torch.amp, torch.amp.autocast_mode):
        patch.setattr(module, "autocast", lambda device_type="cpu", *args, **kwargs: autocast("cpu", *args, **kwargs))
    patch.setattr(torch, "is_autocast_enabled", lambda device_type="cpu": enabled("cpu"))
    patch.setattr(torch, "get_autocast_dtype", lambda device_type="cpu": dtype("cpu"))
