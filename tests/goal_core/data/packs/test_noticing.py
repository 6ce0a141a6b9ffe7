"""Damage and changed images are noticed; packing again mends damage."""

from pathlib import Path

import pytest

from goal_sweep.goal_core.data.packs import open_packed, plan_pack
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.packs import CROPS, opened, packed, same, seen

# Python 3.12 warns when a process with threads forks, which torch's worker processes do.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


@pytest.mark.parametrize("name", ["train-00001.zip", "val-00000.zip", "pack.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "rows", "end", "remove"])
def test_a_damaged_pack_is_not_used_and_packing_again_mends_it(
    tmp_path: Path, name: str, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    root, packs = write_dataset(tmp_path / "data"), tmp_path / "packs"
    expected = seen(packed(root, CROPS, packs), CROPS)
    dataset = opened(root, CROPS)
    plan = plan_pack(dataset, CROPS, packs)
    path = plan.folder / name
    content = bytearray(path.read_bytes())
    content[{"flip": len(content) // 2, "rows": -20, "end": -7}.get(damage, 0)] ^= damage != "cut"
    path.write_bytes(content[:-9] if damage == "cut" else content)
    if damage == "remove":
        path.unlink()
    if (name, damage) == ("pack.json", "remove"):
        assert "no whole pack" in open_packed(dataset, CROPS, packs)[1]
    else:
        used, _ = open_packed(dataset, CROPS, packs)
        assert same(expected, seen(used, CROPS))  # the images come from their files
        (line,) = {line for line in capfd.readouterr().err.splitlines() if name in line}
        assert "goal-sweep data pack" in line
        assert "no whole pack" in open_packed(dataset, CROPS, packs)[1]  # nobody else uses it
    assert same(expected, seen(packed(root, CROPS, packs), CROPS))
