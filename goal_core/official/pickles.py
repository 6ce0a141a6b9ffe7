"""Read the pickles inside published checkpoints without running their code.

A pickle is a program: it can name any function of any module and call it. The readers here allow a short list of
names that published checkpoints contain, and stop at the first other name, before it is looked up.
"""

from __future__ import annotations

import json
import pickle
import re
import warnings
from argparse import Namespace
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goal_sweep.goal_core.basics.errors import DataError, WeightsError, first_line
from goal_sweep.goal_core.data.text import SPECIAL_WORDS, Vocabulary

_SAFE: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    Namespace,  # the training options, saved with the weights
    # Recalls computed with numpy are saved as its scalars; by its old and its new module name.
    (np._core.multiarray.scalar, "numpy.core.multiarray.scalar"),  # type: ignore[attr-defined]  # numpy's own pickles
    (np._core.multiarray.scalar, "numpy._core.multiarray.scalar"),  # type: ignore[attr-defined]  # name it
    np.dtype,
    np.dtypes.Float64DType,
    np.dtypes.Float32DType,
    np.dtypes.Int64DType,
]
"""What is allowed beyond the tensors, storages and containers of torch's own weights-only list."""


def read_torch_file(path: Path) -> dict[str, Any]:
    """Read a ``.pth.tar``, ``.pth`` or ``.th`` file: torch's zip format, the older one, or a pickle of Python 2."""
    if not path.is_file():
        raise WeightsError(f"no checkpoint at {path}")
    try:
        with torch.serialization.safe_globals(_SAFE), warnings.catch_warnings():
            # Torch warns that the encoding has no effect here, although it has one.
            warnings.filterwarnings("ignore", message="pickle_load_args")
            stored = torch.load(path, map_location="cpu", weights_only=True, encoding="latin1")
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))  # of many lines, which end in bad advice
        why = (
            f"its pickle asks for {asked[1]}, which no such checkpoint needs" if asked else "it holds more than tensors"
        )
        raise WeightsError(f"{path} is refused: {why}; nothing in it was run") from error
    except Exception as error:  # a damaged file can fail in any way inside the reader
        raise WeightsError(f"cannot read {path}: {first_line(error)}") from error
    if not isinstance(stored, dict):
        raise WeightsError(f"{path} contains a {type(stored).__name__}, not a mapping as in published checkpoints")
    return stored


def tensors_of(stored: object, where: str) -> dict[str, Tensor]:
    """Check that an object is a state dict, and return it."""
    if not isinstance(stored, dict) or not stored:
        raise WeightsError(f"{where} is not a state dict")
    if strange := [name for name, value in stored.items() if not (isinstance(name, str) and isinstance(value, Tensor))]:
        raise WeightsError(f"{where} contains {str(strange[0])!r}, which is not a tensor")
    return dict(stored)


def read_vocabulary(path: Path) -> Vocabulary:
    """Read VSE++'s pickled vocabulary (Python 2 or 3), or its JSON form (``word2idx``).

    The order of its words is the order of the rows of a checkpoint's word embedding, and is recorded nowhere else.
    """
    if not path.is_file():
        raise DataError(f"no vocabulary at {path}")
    content = path.read_bytes()
    try:
        unpickler = _VocabularyUnpickler(BytesIO(content), encoding="latin1")
        stored = json.loads(content) if content[:1] == b"{" else unpickler.load()
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(f"cannot read the vocabulary {path}: {type(error).__name__}: {error}") from error
    ids = (stored if isinstance(stored, dict) else getattr(stored, "__dict__", {})).get("word2idx")
    if not isinstance(ids, dict) or not all(isinstance(w, str) and isinstance(i, int) for w, i in ids.items()):
        raise DataError(f"{path} does not contain a vocabulary: it has no mapping word2idx from words to numbers")
    words = sorted(ids, key=ids.__getitem__)
    if [ids[word] for word in words] != list(range(len(words))) or tuple(words[:4]) != SPECIAL_WORDS:
        raise DataError(f"{path}: ids must be 0, 1, 2, ... and begin with {' '.join(SPECIAL_WORDS)}")
    return Vocabulary(tuple(words[4:]))


class _StoredVocabulary:
    """Stands in for the class ``Vocabulary`` of the published code; has its attributes."""


class _VocabularyUnpickler(pickle.Unpickler):
    """Allows one class and no function."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "Vocabulary" and module in ("vocab", "__main__", "data.vocab", "lib.vocab"):
            return _StoredVocabulary
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no vocabulary needs; nothing in it was run")
