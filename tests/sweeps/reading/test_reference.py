"""The reference of settings: every shipped sweep fits the JSON schema, and the page has every key."""

from dataclasses import fields
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.sweeps import find_sweep, list_shipped
from goal_sweep.sweeps.reading.reference import editor_schema, settings_page

VALIDATOR = Draft202012Validator(editor_schema())


def _faults(text: str) -> list[str]:
    sweep: Any = YAML(typ="safe", pure=True).load(text)
    return [".".join(map(str, error.absolute_path)) for error in VALIDATOR.iter_errors(sweep)]


def test_every_shipped_sweep_fits() -> None:
    Draft202012Validator.check_schema(VALIDATOR.schema)
    for name in list_shipped():
        assert _faults(find_sweep(name).read_text()) == [], name


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("stages: [{name: frozen, epochs: 0}]", "stages.0.epochs"),
        ("stages: [{name: frozen, lr: 0}]", "stages.0.lr"),
        ("stages: [{name: frozen, epoch: 3}]", "stages.0"),
        ("precision: fp8", "precision"),
        ("resources: {gpus: -1}", "resources.gpus"),
        ("axes: []", ""),
    ],
)
def test_mistakes_do_not(text: str, fault: str) -> None:
    assert _faults(text) == [fault]


def test_the_page_has_type_default_range_and_id_of_every_setting() -> None:
    rows = {line.split("`")[1]: line for line in settings_page().splitlines() if line.startswith("| `")}
    assert {f"stages.{item.name}" for item in fields(StageConfig)} <= rows.keys()
    assert rows["stages.batch_size"].startswith("| `stages.batch_size` | whole number from 2 | `128` | yes | Image-cap")
    assert rows["stages.checkpoint_every"].startswith(
        "| `stages.checkpoint_every` | whole number from 0 | `0` |  | Steps"
    )
    in_id = {key for key, row in rows.items() if row.split(" | ")[3] == "yes"}
    assert in_id >= {"seeds", "precision", "model.embed_dim", "model.backbones.name", "data.image.size"}
    assert in_id >= {"data.max_captions", "data.val_share", "data.num_train"}
    assert not in_id & {"name", "store", "tracking.also", "resources.cpus", "execution.sharing", "data.root"}
