"""Write pickles as Python 2 did: text as byte strings, protocol 2, PyTorch's layout before 1.6."""

import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch


class Python2Pickler(pickle._Pickler):  # the one whose opcodes can be replaced
    """Writes text as Python 2's `str`, and modules under their names in Python 2."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)
    write: Callable[[bytes], object]
    memoize: Callable[[object], None]

    def save_str(self, text: str) -> None:
        raw = text.encode("latin1")
        short = len(raw) < 256
        head = pickle.SHORT_BINSTRING + bytes([len(raw)]) if short else pickle.BINSTRING + struct.pack("<i", len(raw))
        self.write(head + raw)
        self.memoize(text)

    dispatch[str] = save_str


def _dump(value: Any, file: Any, protocol: int = 2) -> None:
    Python2Pickler(file, 2).dump(value)


def save_python2_pickle(value: Any, path: Path) -> None:
    """Write a plain pickle, such as VSE++'s vocabulary."""
    with path.open("wb") as file:
        _dump(value, file)


def save_python2_torch(value: Any, path: Path) -> None:
    """Write a file as `torch.save` did in 2017."""
    module = ModuleType("python2_pickle")
    module.Pickler, module.dump = Python2Pickler, _dump  # type: ignore[attr-defined]
    torch.save(value, path, pickle_module=module, _use_new_zipfile_serialization=False)
