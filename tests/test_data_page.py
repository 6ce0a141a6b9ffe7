"""The examples of docs/data.md, one after the other in one folder, and the sweep of docs/tutorial.md."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]
from PIL import Image
from pydantic import TypeAdapter

from goal_sweep.goal_core.data import DataConfig
from goal_sweep.goal_core.data.formats.opening import check_data
from goal_sweep.runners.launch.opened import open_sweep
from goal_sweep.sweeps import load_sweep
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


def test_the_sweep_of_the_tutorial_opens_on_pictures_and_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/tutorial.md").read_text()
    Path("photos/pictures").mkdir(parents=True)
    rows = ["image,caption", *(f"pictures/{n:04}.png,thing {n % 2}" for n in range(40))]
    assert rows[0] in page.splitlines()
    Path("photos/captions.csv").write_text("\n".join(rows))
    for n in range(40):
        Image.new("RGB", (16, 16), (6 * n, 0, 0)).save(f"photos/pictures/{n:04}.png")
    (text,) = (text for language, text in FENCED.findall(page) if language == "yaml")
    Path("photos.yaml").write_text(text)
    sweep = open_sweep(load_sweep("photos.yaml", ["model.backbones.0.weights=random"]))
    sweep.check_trainable()
    assert len(sweep.trainings) == 45
    assert all(sweep.dataset.splits[split].captions for split in ("train", "val", "test"))
