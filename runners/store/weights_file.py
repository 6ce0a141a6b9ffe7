"""Whether a safetensors file is whole, without loading it."""

from __future__ import annotations

import json
from pathlib import Path

_MAX_HEADER = 100_000_000


def check_safetensors(path: Path) -> str:
    """Compare a file's header with its size; a file cut short, or never written, shows.

    Args:
        path: the file. A flipped bit inside a tensor does not show here: that takes the digest in the result.

    Returns:
        What is wrong, in words; empty when nothing is.

    Source: the safetensors format: 8 bytes of header length (little endian), a JSON header with each tensor's
    ``data_offsets``, the data.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= _MAX_HEADER:
                return f"{path} is not a safetensors file"
            header = json.loads(file.read(length))
        size = path.stat().st_size
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except ValueError:
        return f"{path} is damaged: its header is not valid JSON"
    try:
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    except (AttributeError, KeyError, IndexError, TypeError):
        return f"{path} is damaged: its header lists no tensors"
    expected = 8 + length + max(ends, default=0)
    return "" if size == expected else f"{path} is damaged: {size} bytes instead of {expected}"
