"""What is opened is known with its stamp."""

from __future__ import annotations

from pathlib import Path

from goal_sweep.goal_core.basics.user_files import all_opened, content_of, stamp_of


def test_the_files_that_are_opened_are_known_with_the_stamps_they_had(tmp_path: Path) -> None:
    right, wrong, link = (tmp_path / name for name in ("right", "wrong", "link"))
    right.write_bytes(b"right")
    wrong.write_bytes(b"wrong one")
    content_of(right)
    with all_opened() as files:
        link.symlink_to(wrong)
        assert content_of(link) == b"wrong one"
        link.unlink()
        link.symlink_to(right)
        content_of(right)
    content_of(wrong)
    assert files == [[str(link), *stamp_of(str(wrong))], [str(right), *stamp_of(str(right))]]
