"""What identifies the weights that a training starts from."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from safetensors import SafetensorError, safe_open

from goal_core.basics.errors import WeightsError
from goal_core.models.config import ModelConfig
from goal_core.models.frameworks import framework_of

_MODEL_PARTS = ("backbone.", "heads.")


def initial_weights_id(model: ModelConfig) -> str:
    """The initial weights' identifier in the cell id, by content and never by path.

    Raises:
        WeightsError: a file is missing, or is not a checkpoint.
    """
    own = framework_of(model).weights_id(model)
    return f"{own} init {init_id(model)}" if model.init_from else own


def init_id(model: ModelConfig) -> str:
    """Hash of the tensors and the tokenizer in `init_from`, 16 hex digits; empty without `init_from`.

    Raises:
        WeightsError: the file is missing, or is not a checkpoint.
    """
    if not model.init_from:
        return ""
    path = existing(model)
    stat = path.stat()
    return _content_hash(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=8)
def _content_hash(path: Path, size: int, mtime_ns: int) -> str:
    from goal_core.checkpoints.description import description_of  # with torch, as the next line

    digest = hashlib.sha256()
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {}).get("state", "{}"))
            digest.update(description_of(path, state)["vocabulary"].encode())
            for name in sorted(name for name in file.keys() if name.startswith(_MODEL_PARTS)):
                tensor = file.get_tensor(name)
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.numpy().tobytes())
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise WeightsError(f"cannot read init_from {path}: {error}") from error
    return digest.hexdigest()[:16]


def existing(model: ModelConfig) -> Path:
    """The checkpoint that `init_from` names.

    Raises:
        WeightsError: the file is missing.
    """
    path = Path(model.init_from)
    if not path.is_file():
        raise WeightsError(f"no checkpoint at {path}, which init_from names")
    return path
