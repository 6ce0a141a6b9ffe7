import re
from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.goal_core.data.config import ImageConfig, ScenesConfig
from goal_sweep.goal_core.models.config import BackboneConfig
from goal_sweep.sweeps import SweepError, load_sweep
from tests.helpers.mistakes import check_mistakes

Write = Callable[..., Path]
Errors = Callable[..., list[str]]


def test_mappings_merge_and_lists_replace(write: Write) -> None:
    write("base.yaml")
    path = write("over.yaml", "extends: base.yaml\nname: over\ndata: {num_val: 7}\nseeds: [5]\n")
    config = load_sweep(path)
    assert config.name == "over"
    assert config.data == ScenesConfig(num_train=20, num_val=7)
    assert config.seeds == (5,)
    assert config.model == load_sweep("base.yaml").model


@pytest.mark.parametrize(
    ("file", "name"), [("over.yaml", "over"), ("My Photos.yaml", "my-photos"), ("over_2.v1.yaml", "over_2.v1")]
)
def test_a_sweep_without_a_name_has_that_of_its_own_file(write: Write, file: str, name: str) -> None:
    """With that of the file that it extends it would write over the other's report."""
    write("base.yaml")
    assert load_sweep(write(file, "extends: base.yaml\nseeds: [5]\n")).name == name
    with pytest.raises(SweepError, match=r"name: .*, got the text '猫'"):
        load_sweep(write("猫.yaml", "extends: base.yaml\n"))


def test_data_of_another_format_keep_what_both_have(write: Write) -> None:
    write("base.yaml")
    write("images.yaml", "extends: base.yaml\ndata: {min_word_count: 2, image: {size: 32, resize: 32}, num_val: 9}\n")
    data = "data: {format: source, name: mine, root: ., image: {resize: 40}}"
    found = load_sweep(write("over.yaml", f"extends: images.yaml\n{data}\n")).data
    assert (found.min_word_count, found.image) == (2, ImageConfig(size=32, resize=40))


def test_a_model_of_another_framework_keeps_what_both_have(write: Write) -> None:
    model = "{framework: dual, backbones: [{name: clip, weights: openai/clip-vit-base-patch32}]}"
    found = load_sweep(write("over.yaml", f"extends: own_images\ndata: {{root: .}}\nmodel: {model}\n")).model
    assert (found.framework, found.embed_dim) == ("dual", 128)


def test_stages_merge_by_name_and_new_ones_are_appended(write: Write, small_text: str) -> None:
    write("base.yaml", small_text.split("  - name: finetune")[0])
    path = write(
        "over.yaml",
        """\
        extends: base.yaml
        stages:
          - {name: frozen, batch_size: 32}
          - {name: finetune, epochs: 9, lr: 1e-5}
        """,
    )
    frozen, finetune = load_sweep(path).stages
    assert (frozen.epochs, frozen.lr, frozen.batch_size) == (3, 1e-3, 32)
    assert (finetune.name, finetune.epochs) == ("finetune", 9)


def test_backbones_merge_by_name_and_those_of_the_base_alone_go(write: Write) -> None:
    base = load_sweep(write("base.yaml")).model.backbones
    merged = load_sweep(
        write("a.yaml", "extends: base.yaml\nmodel: {backbones: [{name: resnet10t}, {name: resnet50}]}\n")
    )
    assert merged.model.backbones == (
        BackboneConfig(name="resnet10t", weights="random"),
        BackboneConfig(name="resnet50"),
    )
    assert {one.name for one in base} == {"resnet10t", "resnet18"}
    replaced = load_sweep(write("b.yaml", "extends: base.yaml\nmodel: {backbones: [resnet50]}\n"))
    assert replaced.model.backbones == (BackboneConfig(name="resnet50"),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model:\n  backbones: [{name: resnet18, weights: timm}, {name: resnet18, weights: random}]\n", "model"),
        ("stages:\n- {name: frozen, epochs: 3, lr: 1e-3}\n- {name: frozen, epochs: 7, lr: 1e-3}\n", "stages"),
        ("stages:\n- {name: frozen, epochs: 3}\n- {name: frozen, batch_size: 7}\n", "stages"),
    ],
)
def test_a_name_given_twice_is_refused(write: Write, errors_of: Errors, text: str, told: str) -> None:
    write("base.yaml")
    (line,) = errors_of(write("over.yaml", f"extends: base.yaml\n{text}"))
    assert re.match(rf"over.yaml:[23]: {told}.*: must be distinct", line)


@pytest.mark.parametrize("how", ["above", "absolute", "link"])
def test_a_file_outside_the_folders_of_the_sweep_is_not_read(
    write: Write, errors_of: Errors, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("outside/secret.yaml", "password: hunter2\n")
    outside = tmp_path / "outside" / "secret.yaml"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "linked.yaml").symlink_to(outside)
    named = {"above": "../outside/secret.yaml", "absolute": str(outside), "link": "linked.yaml"}[how]
    write("mine/top.yaml", f"extends: {named}\n")
    monkeypatch.chdir(tmp_path / "mine")
    lines = errors_of("top.yaml")
    check_mistakes(lines, "top.yaml:1 | extends | outside")
    assert "hunter2" not in lines[0]


def test_a_shipped_sweep_can_be_extended(write: Write) -> None:
    for name in ("quickstart", "quickstart.yaml"):
        config = load_sweep(write("a.yaml", f"extends: {name}\nname: mine\nseeds: [8]\n"))
        assert config.seeds == (8,)
        assert config.stages == load_sweep("quickstart").stages


def test_lines_name_the_file_a_value_came_from(write: Write, errors_of: Errors, small_text: str) -> None:
    write(
        "base.yaml", small_text.replace("lr: 1e-4", "lr: low").replace("num_train: 20", "num_train: 0\n  colour: red")
    )
    path = write(
        "over.yaml",
        """\
        extends: base.yaml
        data:
          num_val: -3
        stages:
          - name: finetune
            batch_siz: 3
        """,
    )
    check_mistakes(
        errors_of(path),
        "over.yaml:3 | data.num_val | -3",
        "over.yaml:6 | stages.finetune.batch_siz | 'batch_size'",
        "base.yaml:4 | data.num_train | 0",
        "base.yaml:5 | data.colour",
        "base.yaml:16 | stages.finetune.lr | 'low'",
    )


def test_files_that_extend_each_other_in_a_circle(write: Write, errors_of: Errors) -> None:
    write("a.yaml", "extends: b.yaml\n")
    write("b.yaml", "name: b\nextends: a.yaml\n")
    check_mistakes(errors_of("a.yaml"), "b.yaml:2 | extends | a.yaml and this file")


def test_extended_file_is_missing_or_not_text(write: Write, errors_of: Errors) -> None:
    lines = errors_of(write("a.yaml", "name: a\nextends: quikstart\n"))
    check_mistakes(lines, "a.yaml:2 | extends | 'quikstart' | 'quickstart'")
    check_mistakes(errors_of(write("b.yaml", "extends: [a.yaml]\n")), "b.yaml:1 | extends | path")


def test_missing_key_is_reported_in_the_extending_file(write: Write, errors_of: Errors, small_text: str) -> None:
    lines = [line for line in small_text.splitlines(keepends=True) if "backbones" not in line and "seeds" not in line]
    write("base.yaml", "".join(lines))
    path = write("over.yaml", "extends: base.yaml\nmodel:\n  embed_dim: 32\n")
    check_mistakes(errors_of(path), "over.yaml:1 | seeds | missing", "over.yaml:2 | model.backbones | missing")


def test_values_are_yaml(write: Write) -> None:
    config = load_sweep(
        write(),
        [
            "seeds=[7, 8]",
            "stages.frozen.epochs=5",
            "stages.1.lr=2e-5",
            "stages.finetune.lr_drops=[1]",
            "seeds.0=9",
            "execution.sharing=trunk",
            "data={format: scenes, num_val: 3}",
            "store=./a=b",
        ],
    )
    assert config.seeds == (9, 8)
    assert config.stages[0].epochs == 5
    assert config.stages[1].lr == 2e-5
    assert config.stages[1].lr_drops == (1,)
    assert config.execution.sharing == "trunk"
    assert (config.data.name, config.data.num_val, config.data.num_train) == ("scenes", 3, 1000)  # type: ignore[union-attr]
    assert config.store.endswith("/a=b")


def test_backbones_by_name(write: Write, small_text: str) -> None:
    path = write("a.yaml", small_text.replace("resnet18]", "resnet50.a1_in1k, resnet50]"))
    config = load_sweep(path, ["model.backbones.resnet50.a1_in1k.weights=random"])
    assert [backbone.weights for backbone in config.model.backbones] == ["random", "random", "timm"]
    config = load_sweep(path, ["model.backbones=[resnet34]"])
    assert [backbone.name for backbone in config.model.backbones] == ["resnet34"]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("seeds", "--set seeds |  | key=value"),
        ("=3", "--set = |  | key=value"),
        ("a..b=3", "--set a..b= |  | key=value"),
        ("stages.froze.lr=1", "--set stages.froze.lr |  | stages | 'froze' | 'frozen' | frozen, finetune"),
        ("stages.2.lr=1", "--set stages.2.lr |  | stages | '2' | frozen, finetune"),
        ("seeds.5=1", "--set seeds.5 |  | seeds | '5' | 0, 1"),
        ("name.x=1", "--set name.x |  | name | single value"),
        ("extends=quickstart", "--set extends |  | file"),
        ("data.root=a/b #c", "--set data.root |  | comment | quote the value"),
        ("seeds=[1, 2", "--set seeds |  | not valid YAML"),
        ("data={a: 1, a: 2}", "--set data | a | --set data"),
        ("stages.frozen.epochs=two", "--set stages.frozen.epochs | stages.frozen.epochs | whole number | 'two'"),
        ("stages.frozen.epochs=", "--set stages.frozen.epochs | stages.frozen.epochs | whole number | nothing"),
        ("stages.frozen.epochs=0", "--set stages.frozen.epochs | stages.frozen.epochs | at least 1 | 0"),
        ("seeds=[1, 1]", "--set seeds | seeds | distinct | 1"),
        ("excution.sharing=trunk", "--set excution.sharing | excution | 'execution'"),
        ("stages.frozen.epoch=2", "--set stages.frozen.epoch | stages.frozen.epoch | 'epochs'"),
    ],
)
def test_mistakes_name_the_set(write: Write, errors_of: Errors, override: str, told: str) -> None:
    check_mistakes(errors_of(write(), override), told)
