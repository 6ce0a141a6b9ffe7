"""The reference of all settings, from pydantic's JSON schema: the schema for editors, and a page to read."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics import registry
from goal_sweep.goal_core.data import config as data_config
from goal_sweep.goal_core.models import config as model_config
from goal_sweep.goal_core.training import config as training_config
from goal_sweep.goal_core.training.config import OF_ONE_TRAINING
from goal_sweep.sweeps import schema, tuning
from goal_sweep.sweeps.identity import is_in_id
from goal_sweep.sweeps.reading.validation import Schema, schema_of

_CONFIGS = (registry, data_config, model_config, training_config, schema, tuning)
_WORDS = {"integer": "whole number", "array": "list", "object": "mapping", "string": "text", "boolean": "truth value"}
_LIMITS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
_HEAD = """# Settings

Every key of a sweep file, as `goal-sweep schema --markdown` writes it. *id*: yes where
another value makes another model, which is trained anew.
`goal-sweep schema` writes a JSON schema, from which editors complete keys and values."""


def editor_schema() -> dict[str, Any]:
    """The JSON schema of a sweep file as it may be written: with abbreviations, and with lists that make axes."""
    whole: dict[str, Any] = json.loads(json.dumps(schema_of(schema.SweepConfig)))
    defs, texts = whole["$defs"], _texts()
    for name, of in [*defs.items(), ("SweepConfig", whole)]:
        of["additionalProperties"] = False
        of.pop("required", None)  # what is missing may stand in the file that is extended
        for key, setting in of["properties"].items():
            setting.setdefault("description", texts.get(name, {}).get(key, ""))
            setting.pop("title", None)
    stage, objectives = defs["StageConfig"]["properties"], defs["SweepObjectives"]["properties"]
    of_params, backbones = objectives["params"], defs["SweepModel"]["properties"]["backbones"]
    several = [*((stage, key) for key in OF_ONE_TRAINING), (objectives, "variant"), (of_params, "additionalProperties")]
    for of, key in several:
        of[key] = _either(of[key], {"type": "array", "items": of[key]})
    for key in ("pair", "triplet"):
        objectives[key] = _either(objectives[key], {"const": "all"})
    backbones["items"] = _either(backbones["items"], {"type": "string"})
    whole["properties"]["tracking"] = _either(whole["properties"]["tracking"], {"type": "string"})
    whole["properties"]["plugins"]["items"] = {"type": "string"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "title": "A sweep file of goal-sweep"}


def _either(setting: Schema, other: Schema) -> dict[str, Any]:
    return {"anyOf": [setting, other], **{key: setting[key] for key in ("description", "default") if key in setting}}


def settings_page() -> str:
    """Tables of every key: what it may be, its default, and whether it is part of an id, with its description."""
    whole = editor_schema()
    kinds = list(whole["properties"]["data"]["discriminator"]["mapping"])
    rows: dict[tuple[str, ...], list[str]] = {}
    for key, kind, setting in _keys(whole, whole, ""):
        default = f"`{json.dumps(setting['default'])}`" if "default" in setting else ""
        rows.setdefault((key, _values(setting), default, setting.get("description", "")), []).append(kind)
    of_data = f"| `data.format` | `{'`, `'.join(kinds)}` | | | The kind of the data (docs/data.md). |"
    tables: dict[str, list[str]] = {"The sweep": [], "data": [of_data]}
    for (key, values, default, text), own in rows.items():
        only = f"Of {', '.join(own)}. " if any(own) and len(own) < len(kinds) else ""
        row = f"| `{key}` | {values} | {default} | {'yes' if is_in_id(key) else ''} | {only}{text} |"
        tables.setdefault(key.split(".")[0] if "." in key else "The sweep", []).append(row)
    head = ["| key | values | default | id | meaning |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([_HEAD, *(line for part in tables for line in ("", f"## {part}", "", *head, *tables[part]))])


def _keys(of: Schema, whole: Schema, prefix: str) -> Iterator[tuple[str, str, Schema]]:
    """Every key below a schema, dotted, with the format of data that it is of, and its own schema."""
    for key, setting in of["properties"].items():
        items = setting.get("items", {})
        several = (setting, *setting.get("anyOf", ()), *setting.get("oneOf", ()), items, *items.get("anyOf", ()))
        refs = [part["$ref"].rpartition("/")[2] for part in several if "$ref" in part and key != "plugins"]
        if not refs and not (key == "format" and "const" in setting):
            yield f"{prefix}{key}", "", setting
        for below in (whole["$defs"][ref] for ref in refs):
            kind = below["properties"].get("format", {}).get("const", "")
            yield from ((path, kind or inner, found) for path, inner, found in _keys(below, whole, f"{prefix}{key}."))


def _values(setting: Schema) -> str:
    if several := [*setting.get("anyOf", ()), *setting.get("oneOf", ())]:
        return " or ".join(dict.fromkeys(map(_values, several)))
    if "enum" in setting or "const" in setting:
        return ", ".join(f"`{value}`" for value in setting.get("enum", [setting.get("const")]))
    kind = setting.get("type", "mapping")
    return " ".join(
        [_WORDS.get(kind, str(kind)), *(f"{_LIMITS[key]} {setting[key]:g}" for key in _LIMITS if key in setting)]
    )


def _texts() -> dict[str, dict[str, str]]:
    """The docstring of every setting, by class and field, in one line."""
    found: dict[str, dict[str, str]] = {}
    for tree in (ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")) for module in _CONFIGS):
        for of in (one for one in tree.body if isinstance(one, ast.ClassDef)):
            own = found[of.name] = {}
            for base in (base.id for base in of.bases if isinstance(base, ast.Name)):
                own |= found.get(base, {})
            for field, text in zip(of.body, of.body[1:], strict=False):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(words))):
                        own[key] = " ".join(words.split()).replace("|", "\\|")
    return found
