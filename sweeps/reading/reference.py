"""The reference of all settings, from the schema: JSON schema for editors, and a page to read."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics import plugins
from goal_sweep.goal_core.data import config as data_config
from goal_sweep.goal_core.models import config as model_config
from goal_sweep.goal_core.training import config as training_config
from goal_sweep.goal_core.training.config import OF_ONE_TRAINING
from goal_sweep.sweeps import schema
from goal_sweep.sweeps.identity import is_in_id
from goal_sweep.sweeps.reading.validation import Schema, schema_of
from goal_sweep.sweeps.schema import SweepConfig
from goal_sweep.sweeps.tuning import block

_CONFIGS = (plugins, data_config, model_config, training_config, schema, block)
"""The modules that define settings."""


def editor_schema() -> dict[str, Any]:
    """The JSON schema of a sweep file as it may be written: with abbreviations, and with lists that make axes."""
    schema: dict[str, Any] = json.loads(json.dumps(schema_of(SweepConfig)))
    defs = schema["$defs"]
    for name, of in [*defs.items(), ("SweepConfig", schema)]:
        of["additionalProperties"] = False
        of.pop("required", None)  # what is missing may stand in the file that is extended
        for key, setting in of["properties"].items():
            setting.setdefault("description", " ".join(_texts().get(name, {}).get(key, "").split()))
            setting.pop("title", None)
    stage, objectives = defs["StageConfig"]["properties"], defs["SweepObjectives"]["properties"]
    for of, keys in ((stage, OF_ONE_TRAINING), (objectives, ("variant",))):
        of.update({key: _or_several(of[key]) for key in keys})
    params = objectives["params"]
    params["additionalProperties"] = _or_several(params["additionalProperties"])
    for key in ("pair", "triplet"):
        objectives[key] = {"anyOf": [{"const": "all"}, objectives[key]], "description": objectives[key]["description"]}
    backbones = defs["SweepModel"]["properties"]["backbones"]
    backbones["items"] = {"anyOf": [{"type": "string"}, backbones["items"]]}
    schema["properties"]["plugins"]["items"] = {"type": "string"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "A sweep file of goal-sweep"}


def _or_several(setting: Schema) -> dict[str, Any]:
    return {"anyOf": [setting, {"type": "array", "items": setting}], "description": setting.get("description", "")}


def settings_page() -> str:
    """Tables of every key: what it may be, its default, and whether it is part of an id, with its description."""
    lines = [
        "# Settings",
        "",
        "Every key of a sweep file, as `goal-sweep schema --markdown` writes it. *id*: another value is another model.",
        "`goal-sweep schema` writes a JSON schema, from which editors complete keys and values.",
    ]
    tables: dict[str, list[str]] = {"The sweep": []}
    whole = schema_of(SweepConfig)
    for key, setting, text in _keys(whole, whole, "SweepConfig", ""):
        values, default = _values(setting), json.dumps(setting["default"]) if "default" in setting else ""
        row = f"| `{key}` | {values} | {default and f'`{default}`'} | {'yes' if is_in_id(key) else ''} | {text} |"
        tables.setdefault(key.split(".")[0] if "." in key else "The sweep", []).append(row)
    head = ["| key | values | default | id | meaning |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*lines, *(line for part in tables for line in ("", f"## {part}", "", *head, *tables[part]))])


def _keys(of: Schema, whole: Schema, name: str, prefix: str) -> Iterator[tuple[str, Schema, str]]:
    """Every key below a schema, dotted, with its own schema and what the code says of it."""
    for key, setting in of["properties"].items():
        text = " ".join(_texts().get(name, {}).get(key, setting.get("description", "")).split()).replace("|", "\\|")
        refs = [part["$ref"] for part in (setting, *_alternatives(setting), setting.get("items", {})) if "$ref" in part]
        if not refs or key == "plugins":
            yield f"{prefix}{key}", setting, text
        for ref in refs if key != "plugins" else ():
            below = ref.rpartition("/")[2]
            kind = whole["$defs"][below]["properties"].get("format", {}).get("const", "")
            path = f"{prefix}{key}[{kind}]." if kind else f"{prefix}{key}."
            yield from _keys(whole["$defs"][below], whole, below, path)


def _alternatives(setting: Schema) -> list[Schema]:
    return [*setting.get("anyOf", ()), *setting.get("oneOf", ())]


def _values(setting: Schema) -> str:
    """What a setting may be, in words."""
    if several := _alternatives(setting):
        return " or ".join(dict.fromkeys(map(_values, several)))
    if "enum" in setting or "const" in setting:
        return ", ".join(f"`{value}`" for value in setting.get("enum", [setting.get("const")]))
    kind = setting.get("type", "mapping")
    words = {
        "integer": "whole number",
        "array": "list",
        "object": "mapping",
        "string": "text",
        "boolean": "truth value",
    }
    limits = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    range_ = [f"{word} {setting[key]:g}" for key, word in limits.items() if key in setting]
    return " ".join([str(words.get(kind, kind)), *range_])


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    """The docstring of every setting, by class and field."""
    found: dict[str, dict[str, str]] = {}
    for module in _CONFIGS:
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        for of in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            own = found[of.name] = {}
            for base in (base.id for base in of.bases if isinstance(base, ast.Name)):
                own |= found.get(base, {})
            for field, text in zip(of.body, of.body[1:], strict=False):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(words))):
                        own[key] = words
    return found
