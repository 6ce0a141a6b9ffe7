from __future__ import annotations

from pathlib import Path

import numpy as np
from goal_sweep.runners.store.trainings.files import is_whole_zip


def test_whichever_bit_flips_is_told_and_never_an_error(tmp_path: Path) -> None:
    path = tmp_path / "ranks.npz"
    np.savez_compressed(path, counts=np.arange(200) % 7)
    assert is_whole_zip(path)
    content = path.read_bytes()
    told = 0
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 16
        path.write_bytes(damaged)
        told += not is_whole_zip(path)
    assert told > len(content) / 2  # the rest are times and sizes that no checksum covers
    path.unlink()
    assert is_whole_zip(path)
