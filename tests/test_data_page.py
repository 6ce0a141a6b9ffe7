"""The examples of docs/data.md, one after the other in one folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]
from PIL import Image
from pydantic import TypeAdapter

from goal_sweep.goal_core.data import DataConfig, check_data
from tests.helpers.paths import ROOT

FENCED = re.compile(r"^```(python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_example_writes_data_that_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/data.md").read_text()
    monkeypatch.chdir(tmp_path)
    seen = set()
    for language, text in FENCED.findall(page.partition("## Examples")[2].partition("\n## ")[0]):
        if language == "python":
            exec(text, {"json": json, "np": np, "Path": Path, "Image": Image})
            continue
        for line in text.splitlines():
            config = TypeAdapter(DataConfig).validate_python(yaml.safe_load(line)["data"])
            report = check_data(config)
            assert report.complete, (line, report.findings)
            seen.add(config.format)
    assert seen == {"karpathy", "source", "xvlm_json", "id_mapping", "precomp", "regions", "embeddings"}
