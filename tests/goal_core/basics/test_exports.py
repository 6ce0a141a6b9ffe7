from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

from goal_sweep.goal_core.basics.exports import exports

ROOMS = ("checkpoints", "data", "data.text", "models", "objectives", "training")


@pytest.mark.parametrize("room", ROOMS)
def test_every_export_is_there_and_none_hides_behind_a_module_of_its_name(room: str) -> None:
    package = importlib.import_module(f"goal_sweep.goal_core.{room}")

    names = exports(package.__name__, str(package.__file__))
    assert names
    assert not [name for name in names if isinstance(getattr(package, name), ModuleType)]


def test_an_export_is_the_object_that_its_module_defines() -> None:
    from goal_sweep.goal_core import models
    from goal_sweep.goal_core.models.heads import Encoder

    assert models.Encoder is Encoder
    assert "Encoder" in vars(models)  # imported once


def test_a_name_that_is_not_exported_is_an_ordinary_mistake() -> None:
    from goal_sweep.goal_core import models

    with pytest.raises(AttributeError, match=r"module 'goal_sweep\.goal_core\.models' has no attribute 'nothing'"):
        _ = models.nothing  # type: ignore[attr-defined]


def test_settings_load_without_torch() -> None:
    code = "import sys\nfrom goal_sweep import sweeps\n"
    code += "from goal_sweep.goal_core import data, models, objectives, training\n"
    code += "from goal_sweep.goal_core.models import BackboneConfig, NAMED_WEIGHTS\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
