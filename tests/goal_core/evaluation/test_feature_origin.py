import json
import re
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data.config import KarpathyConfig, PrecompConfig
from goal_sweep.goal_core.evaluation.feature_files import check_origin


def origin(root: Path | str, *names: str) -> None:
    check_origin(PrecompConfig(name="mine", root=str(root)), names)


def describe(folder: Path, content: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "features.json").write_text(content)


def test_the_shipped_features_have_the_name_of_their_backbone_only() -> None:
    origin("shipped:emoji_precomp", "tf_efficientnet_lite0")
    with pytest.raises(DataError, match=r"those of tf_efficientnet_lite0 .* --set model\.backbones\.0\.name=tf_eff"):
        origin("shipped:emoji_precomp", "resnet152")


@pytest.mark.parametrize("inner", [".", "precomp"])
def test_the_name_must_be_that_of_features_json_up_to_the_tag_of_the_weights(tmp_path: Path, inner: str) -> None:
    describe(tmp_path / inner, json.dumps({"backbone": "resnet152.tv_in1k"}))
    origin(tmp_path, "resnet152.tv_in1k")
    origin(tmp_path, "resnet152")
    for name in ("resnet152.a1_in1k", "resnet50", "precomputed", "tf_efficientnet_lite0"):
        with pytest.raises(DataError, match=f"but the tables would call them {re.escape(name)}"):
            origin(tmp_path, name)
    with pytest.raises(DataError, match=r"model\.backbones\.1\.name=resnet152\.tv_in1k"):
        origin(tmp_path, "resnet152", "vgg19")


def test_without_features_json_any_name_is_taken_but_that_of_shipped_features(tmp_path: Path) -> None:
    origin(tmp_path, "vgg19")
    origin(tmp_path, "precomputed")
    with pytest.raises(DataError, match=r"has no features\.json, .* --set model\.backbones\.0\.name=NAME") as caught:
        origin(tmp_path, "tf_efficientnet_lite0")
    assert "\n" not in str(caught.value)
    describe(tmp_path, re.findall(r"write (\{.*\}) to", str(caught.value))[0])
    origin(tmp_path, "tf_efficientnet_lite0")


def test_a_damaged_description_is_an_error_and_images_need_none(tmp_path: Path) -> None:
    describe(tmp_path, "{")
    with pytest.raises(DataError, match=r"features\.json"):
        origin(tmp_path, "vgg19")
    check_origin(KarpathyConfig(name="mine", root=str(tmp_path)), ["tf_efficientnet_lite0"])
