"""What every part does alike on a device, and with an error."""

import errno

import pytest
import torch

from goal_sweep.goal_core.basics.devices import full_precision, is_out_of_memory, set_arithmetic
from goal_sweep.goal_core.basics.errors import first_line
from goal_sweep.goal_core.training.plan import failure_kind

FULL: list[Exception] = [
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    torch.AcceleratorError("CUDA error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("GET was unable to find an engine to execute this computation"),
    torch.distributed.DistBackendError("NCCL error: unhandled cuda error. Last error: Cuda failure 2 'out of memory'"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    MemoryError(),
]
OTHER: list[tuple[Exception, str]] = [
    (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), "device"),
    (RuntimeError("shapes differ"), "error"),
    (OSError(errno.ENOSPC, "No space left on device"), "storage"),
    (ValueError("out of memory"), "error"),
]


@pytest.mark.parametrize("error", FULL, ids=str)
def test_full_memory_is_recognised_whoever_says_it(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert failure_kind(error) == "memory"


@pytest.mark.parametrize(("error", "kind"), OTHER)
def test_other_errors_are_something_else(error: Exception, kind: str) -> None:
    assert not is_out_of_memory(error)
    assert failure_kind(error) == kind


@pytest.mark.parametrize(("precision", "rounds"), [("fp32", False), ("tf32", True), ("bf16", False)])
def test_a_precision_sets_products_and_convolutions_alike(precision: str, rounds: bool) -> None:
    try:
        set_arithmetic(precision)
        assert torch.backends.cuda.matmul.allow_tf32 is rounds
        assert torch.backends.cudnn.allow_tf32 is rounds
        with full_precision(torch.device("cpu")):
            assert not torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cuda.matmul.allow_tf32 is rounds
    finally:
        set_arithmetic("fp32")


@pytest.mark.parametrize(
    ("error", "line"), [(ValueError("\none\ntwo"), "one"), (ValueError(), "ValueError"), (EOFError(" \n"), "EOFError")]
)
def test_every_error_has_a_first_line(error: Exception, line: str) -> None:
    assert first_line(error) == line
