"""What every part does alike on a device: copy to it without waiting, set its arithmetic, and watch its memory."""

import errno
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from goal_sweep.goal_core.basics.errors import first_line, warn

_FULL = (
    "out of memory",  # of CUDA's allocator, its driver ("CUDA error: out of memory") and NCCL
    "_STATUS_ALLOC_FAILED",  # of cuBLAS, cuDNN, cuSOLVER and cuSPARSE
    "_STATUS_NOT_INITIALIZED",  # what cuBLAS and cuDNN say where their handle finds no memory
    "unable to find an engine",  # what torch says where no convolution of cuDNN finds its workspace
    "DefaultCPUAllocator",
)

_HALF = {"bf16": torch.bfloat16}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of a device or of the machine is full, whatever library says it."""
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _FULL)


def peak_resident_mb() -> float | None:
    """The most main memory in megabytes that this process has held; None where the system does not tell."""
    with suppress(OSError):  # Linux alone tells
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return None


class ProcessLoad:
    """What this process takes of its machine. It is counted by the system, so that nothing polls."""

    def __init__(self) -> None:
        self._before = (time.perf_counter(), time.process_time())

    def metrics(self) -> dict[str, float]:
        """By the names that MLflow shows as a run's system metrics.

        `system/cpu_cores`: how many were busy on average since the last call, with all threads, without processes of
        its own. `system/memory_mb`, `system/gpu_memory_mb`: the peaks so far, where they are known; the second is what
        torch has reserved, to which the CUDA context and libraries add some hundreds of megabytes.
        """
        before, self._before = self._before, (time.perf_counter(), time.process_time())
        passed, busy = (now - then for now, then in zip(self._before, before, strict=True))
        on_gpu = torch.cuda.max_memory_reserved() / 1e6  # 0 where none is used
        peaks = {"system/memory_mb": peak_resident_mb(), "system/gpu_memory_mb": on_gpu}
        return {"system/cpu_cores": busy / passed, **{name: peak for name, peak in peaks.items() if peak}}


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor from the CPU to a device, without waiting for the work that is queued on the device.

    That needs pinned memory, which is copied to first where the tensor is not in it. A tensor that is on the device
    already stays as it is.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def fetched(tensor: Tensor) -> Callable[[], Tensor]:
    """Begin to copy a tensor to the CPU. What is returned waits for the copy alone, and gives it."""
    copy = tensor.to("cpu", non_blocking=True)
    if tensor.device.type != "cuda":
        return lambda: copy
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record()

    def wait() -> Tensor:
        done.synchronize()
        return copy

    return wait


def set_arithmetic(precision: str) -> None:
    """Set the arithmetic of this process's products and convolutions of float32 numbers on a GPU.

    `tf32` rounds their factors to 10 bits; all other precisions keep the 23 bits of IEEE float32, in cuDNN's
    convolutions and GRUs too, which torch would round otherwise. (The older of torch's two ways to say so: up to torch
    2.11, compiled code refuses to run after the newer one.)
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Please use the new API settings", UserWarning)  # torch 2.9 to 2.11
        _set_products("high" if precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = precision == "tf32"


def set_arithmetic_of(module: nn.Module, precision: str, *, compiles: bool = False) -> None:
    """Have the backbones and text encoders in a module compute in bfloat16, or as their weights are, or compiled."""
    for part in module.modules():
        part.compute_dtype, part.compiles = _HALF.get(precision), compiles  # type: ignore[assignment]  # no parameters


def computing(module: nn.Module, device: torch.device) -> AbstractContextManager[Any]:
    """The context for a forward pass of a backbone or a text encoder, by `set_arithmetic_of`."""
    dtype = getattr(module, "compute_dtype", None)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


def compiled(function: Callable[..., Tensor], what: str, *, graph: bool | None = None) -> Callable[..., Tensor]:
    """A function as one program of `torch.compile`; where that fails the function as it is, with a warning.

    The program draws the random numbers that the function would.

    Args:
        what: what the function is, for the warning.
        graph: whether it is launched as one CUDA graph, without which a GPU waits for the launches; None where shapes
            change, which then take no new program.
    """
    options: dict[str, Any] = {"fallback_random": True, "triton.cudagraphs": bool(graph)}
    options["efficient_conv_bn_eval_fx_passes"] = True  # fixed batch norms inside convolutions, for less memory traffic
    program: Callable[..., Tensor] | None = torch.compile(
        function, dynamic=None if graph is None else False, options=options
    )

    def run(*given: Any) -> Tensor:
        nonlocal program
        if program is not None:
            try:
                result = program(*given)
                return result.clone() if graph else result  # the next run writes over a graph's own
            except Exception as error:  # compilers raise errors of many kinds; a fault of the function shows below
                if is_out_of_memory(error):
                    raise
                warn(f"the {what} is not compiled: {first_line(error)}")
                program = None
        return function(*given)

    return run


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """The arithmetic of a precision (`set_arithmetic`), and afterwards the one before."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    set_arithmetic(precision)
    try:
        yield
    finally:
        _set_products(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Products in IEEE float32: neither autocast nor TF32, which would turn near neighbours into ties."""
    before = torch.get_float32_matmul_precision()
    _set_products("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        _set_products(before)


def _set_products(precision: str) -> None:
    if torch.get_float32_matmul_precision() != precision:
        torch.set_float32_matmul_precision(precision)
