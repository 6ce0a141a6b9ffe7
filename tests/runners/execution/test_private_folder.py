from __future__ import annotations

import os
from pathlib import Path

import pytest

from goal_core.basics.errors import GoalError
from runners.execution.private_folder import private_folder


def test_nobody_else_may_enter(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    path.parent.mkdir()
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    for _ in range(2):
        assert private_folder(path).stat().st_mode & 0o777 == 0o700
    assert private_folder(tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_link_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(GoalError, match="belongs to another user"):
            private_folder(tmp_path / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.mkdir()
    os.chown(path, 65534, 65534)
    with pytest.raises(GoalError, match="belongs to another user"):
        private_folder(path)
