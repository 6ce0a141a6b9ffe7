import re
from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.goal_core.objectives import LOSS, pair_weights, triplet_weights
from goal_sweep.sweeps import ResolvedSweep, SweepError, find_sweep, list_shipped, load_sweep
from goal_sweep.sweeps.reading.load import SweepNotFoundError, placed
from goal_sweep.sweeps.schema import TrackingConfig
from tests.helpers.mistakes import check_mistakes
from tests.helpers.paths import SCENES

Write = Callable[..., Path]
Errors = Callable[..., list[str]]


FORMATS = "'karpathy', 'id_mapping', 'xvlm_json', 'source'"
PAIRS, TRIPLETS = ", ".join(pair_weights), ", ".join(triplet_weights)
ONLY, PARAMS = "objectives.only", "a.yaml:16 | objectives.params"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("name: small", "name: small\nextend: x", "a.yaml:2 | extend | 'extends' | plugins, data, model"),
        ("stages:", "seeds: [3]\nstages:", "a.yaml:9 | seeds | a.yaml:8"),
        ("num_train: 20", "num_train: '20'", "a.yaml:4 | data.num_train | whole number | '20'"),
        ("num_train: 20", "num_train: true", "a.yaml:4 | data.num_train | whole number | true"),
        ("num_train: 20", "num_train:", "a.yaml:4 | data.num_train | whole number | nothing"),
        ("lr: 1e-3", "lr: fast", "a.yaml:12 | stages.frozen.lr | number | 'fast'"),
        ("lr: 1e-3", "lr: .nan", "a.yaml:12 | stages.frozen.lr | finite | NaN"),
        ("name: small", "name: Sm all", "a.yaml:1 | name | a-z | 'Sm all'"),
        ("seeds: [1, 2]", "seeds: [1, 1]", "a.yaml:8 | seeds | distinct | 1"),
        ("seeds: [1, 2]", "seeds: [1, -2]", "a.yaml:8 | seeds.1 | equal to 0 | -2"),
        ("seeds: [1, 2]", f"seeds: [1, {2**63}]", f"a.yaml:8 | seeds.1 | less than {2**63}"),
        ("seeds: [1, 2]", "seeds: [1]\nplugins: [gone.py]", "a.yaml:9 | plugins | gone.py is missing"),
        ("seeds: [1, 2]", "seeds: []", "a.yaml:8 | seeds | at least one"),
        ("format: scenes", "format: scene", f"a.yaml:3 | data.format | {FORMATS}, 'scenes' | 'scene' | (did"),
        ("  format: scenes\n", "", "a.yaml:2 | data.format | missing"),
        ("name: frozen", "name: finetune", "a.yaml:9 | stages | distinct | finetune"),
        ("epochs: 3", "epochs: 0", "a.yaml:11 | stages.frozen.epochs | at least 1 | 0"),
        ("epochs: 3", "epochs: 3\n    drop_last: no", "a.yaml:12 | stages.frozen.drop_last | true or false | 'no'"),
        ("resnet18]", "{name: resnet10t}]", "a.yaml:6 | model.backbones | distinct | resnet10t"),
        ("    lr: 1e-4", "    lr: 1e-4\nprecision: tf32", "a.yaml:16 | precision | tf32 | resources.gpus"),
        ("embed_dim: 64", "text: {word_dim: 0}", "a.yaml:7 | model.text.word_dim | at least 1 | 0"),
    ],
)
def test_one_mistake_is_one_line(write: Write, errors_of: Errors, small_text: str, old: str, new: str, told: str):
    assert old in small_text
    check_mistakes(errors_of(write("a.yaml", small_text.replace(old, new))), told)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("execution: {sharing: trunk, cells_per_unit: -1}", "a.yaml:16 | execution.cells_per_unit | at least 0 | -1"),
        ("execution: {sharing: none, cells_per_unit: 8}", "a.yaml:16 | execution.cells_per_unit | 8 | none"),
        ("resources:\n  gpus: 2", "a.yaml:17 | resources.gpus | at most 1 | 2"),
        ("resources: {accelerator: A100}", "a.yaml:16 | resources.accelerator | gpus above 0"),
        ("objectives: {pair: [lni]}", f"a.yaml:16 | objectives.pair.0 | 'lni' | 'lin' | {PAIRS}"),
        ("objectives:\n  only: [con/ncb]", "a.yaml:17 | objectives.only.0 | 'con/ncb' | 'con/nca' | sig-ms/cir"),
        ("objectives:\n  only: [infonce]", "a.yaml:17 | objectives.only.0 | is a baseline, for objectives.baselines"),
        ("objectives: {pair: [lin], only: [con/con]}", f"a.yaml:16 | {ONLY} | con/con | pair lin | {TRIPLETS}"),
        ("objectives: {pair: [con], params: {alpha: 3}}", f"{PARAMS}.alpha | tau, cir_shift, margin, gate"),
        ("objectives: {params: {tau: {a: 1}}}", f"{PARAMS}.tau | a number or true or false or text | a mapping"),
    ],
)
def test_one_mistake_in_an_optional_section(write: Write, errors_of: Errors, small_text: str, section: str, told: str):
    check_mistakes(errors_of(write("a.yaml", small_text + section + "\n")), told)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("tracking.uri", "http://me:hunter2@host"),
        ("tracking.uri", "https://hunter2@host/x"),
        ("tracking.uri", "postgresql://host/db?password=hunter2"),
        ("store", "s3://key:hunter2@bucket"),
    ],
)
def test_credentials_are_refused_and_not_repeated(
    write: Write, errors_of: Errors, small_text: str, key: str, place: str
) -> None:
    lines = errors_of(write("a.yaml", small_text + f"{key.partition('.')[0]}: {place}\n"))
    check_mistakes(lines, f"a.yaml:16 | {key} | credentials")
    assert "hunter2" not in lines[0]


def test_the_uri_of_one_file_leaves_the_trackers_of_another(write: Write, small_text: str) -> None:
    write("base.yaml", small_text + "tracking: http://base:5000\n")
    child = write("child.yaml", "extends: base.yaml\ntracking: {also: [wandb]}\n")
    assert load_sweep(child).tracking == TrackingConfig(uri="http://base:5000", also=("wandb",))
    there = load_sweep(child, ["tracking.uri=http://host", "tracking.also=[tensorboard, wandb]"]).tracking
    assert there == TrackingConfig(uri="http://host", also=("tensorboard", "wandb"))
    assert load_sweep(child, ["tracking=http://host"]).tracking == TrackingConfig(uri="http://host")


@pytest.mark.parametrize(
    "store",
    [
        *("gs://bucket/x", "s3:/bucket/x", "s3:///x", "s3://", "s3://key@bucket/x", "s3://bucket/../x", "s3://b/x/."),
        *("s3://bucket//x", "s3://bucket/x?endpoint_url=http://127.0.0.1:9"),
    ],
)
def test_stores_elsewhere_are_refused(write: Write, errors_of: Errors, small_text: str, store: str) -> None:
    lines = errors_of(write("a.yaml", small_text + f"store: {store}\n"))
    check_mistakes(lines, f"a.yaml:16 | store | s3://bucket/prefix | {store!r}")


def test_many_mistakes_are_reported_together_in_the_order_of_the_lines(write: Write, errors_of: Errors) -> None:
    path = write(
        "a.yaml",
        """\
        name: Bad Name
        data:
          format: scenes
          num_trian: 5
          num_train: "7"
          image: {size: 4, resize: 300, augment: non}
        model:
          backbones: [resnet18, {name: resnet18, weight: random}]
        objectives:
          pair: [con, lni]
          params: {tau: -1}
        seeds: [1, 1]
        seeds: [2]
        stages:
          - name: finetune
            epochs: ten
            lr_drops: [9]
            lr: 0
          - name: frozen
            epochs: 0
            lr: -1
            lr_drops: [3, x]
        execution: {sharing: trunks, cells_per_unit: 4}
        precision: on
        """,
    )
    found = " ".join(" ".join(line.removeprefix("a.yaml:").split(": ")[:2]) for line in errors_of(path))
    assert found == (
        "1 name 4 data.num_trian 5 data.num_train 6 data.image.augment 6 data.image.size "
        "8 model.backbones.resnet18.weight 8 model.backbones 10 objectives.pair.1 11 objectives.params.tau "
        "12 seeds 13 seeds 16 stages.finetune.epochs 18 stages.finetune.lr 20 stages.frozen.epochs "
        "21 stages.frozen.lr 22 stages.frozen.lr_drops.1 23 execution.sharing 24 precision"
    )


def test_mistake_does_not_cause_others(write: Write, errors_of: Errors, small_text: str) -> None:
    # Without its faulty value, `size` defaults to 64, which exceeds the resize of 32. That is not the user's mistake.
    path = write("a.yaml", small_text.replace("num_train: 20", "image: {size: '32', resize: 32}"))
    check_mistakes(errors_of(path), "a.yaml:4 | data.image.size | '32'")


@pytest.mark.parametrize("name", list_shipped())
def test_shipped_sweep_opens_with_its_command_data_cost_and_result(name: str) -> None:
    text = find_sweep(name).read_text()
    head = text[: re.search(r"^[^#\n]", text, re.MULTILINE).start()]  # type: ignore[union-attr]  # all have keys
    assert f"goal-sweep launch {name}.yaml" in head
    for word in ("Data:", "Cost:", "Expected:"):
        assert word in head


def test_an_existing_file_wins(write: Write) -> None:
    path = write("quickstart.yaml")
    assert load_sweep("quickstart.yaml").name == "small"
    assert load_sweep(path.absolute()).name == "small"
    assert load_sweep("quickstart").name == "quickstart"


@pytest.mark.parametrize("name", ["quikstart.yaml", "some/where/quickstart.yaml", "quickstart.json", "n" * 5000])
def test_not_found_is_one_line_that_names_the_nearest(write: Write, name: str) -> None:
    write()
    said = "did you mean 'quickstart.yaml'" if name.endswith(".yaml") else "emoji_vsepp"
    with pytest.raises(SweepNotFoundError, match=said) as error:
        load_sweep(name)
    assert "\n" not in str(error.value)


def test_baselines_stand_beside_the_grid() -> None:
    settings = ["objectives.baselines=[infonce, sigmoid]", "objectives.pair=[con]"]
    objectives = load_sweep("quickstart", settings).objectives
    assert objectives.names == (("con", "con"), ("con", "nca"), ("con", "cir"), ("infonce", LOSS), ("sigmoid", LOSS))
    assert [config.params for config in objectives.configs[-2:]] == [{}, {}]
    with pytest.raises(SweepError, match="infonce"):
        load_sweep("quickstart", ["objectives.baselines=[infonc]"])


def test_in_dual_baselines_have_the_temperature_of_the_model() -> None:
    """Unless the sweep gives a number; in other frameworks there is none to ask for."""
    dual = [
        *("objectives.baselines=[infonce, sigmoid]", "objectives.pair=[con]", "model.framework=dual"),
        "model.backbones=[{name: tiny, weights: openai/tiny}]",
        "model.text.word_dim=300",
    ]

    def params(*settings: str) -> list[dict[str, object]]:
        config = load_sweep(SCENES, [*dual, *settings])
        cells = ResolvedSweep(config=config, data_fingerprint="f", weights={"tiny": "w"}).cells[2:5]
        return [dict(cell.objective.params) for cell in cells]

    assert params() == [{}, {"temperature": "model"}, {"temperature": "model", "bias": "model"}]
    assert params("objectives.params.temperature=0.1")[1:] == [
        {"temperature": 0.1},
        {"temperature": 0.1, "bias": "model"},
    ]
    with pytest.raises(SweepError, match="dual"):
        load_sweep(SCENES, [dual[0], "objectives.params.temperature=model"])


def test_a_mistake_in_a_shipped_sweep_names_the_file_that_extends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GOAL_WEIGHTS", raising=False)
    photos = tmp_path / "photos.yaml"
    photos.write_text(f"extends: emoji_vsepp\nname: photos\ndata: {{root: {tmp_path}}}\n")
    with pytest.raises(SweepError) as error:
        load_sweep(photos)
    assert str(error.value).startswith(f"{photos}: model.backbones.tf_efficientnet_lite0.weights: the environment")
    assert str(error.value).endswith(
        f"{photos} needs: model: {{backbones: [{{name: tf_efficientnet_lite0, weights: ...}}]}}"
    )
    told = placed(str(photos), ["model.backbones.0.weights=timm"], "stages.frozen.batch_size", "is too large")
    assert told.endswith(f"is too large; {photos} needs: stages: [{{name: frozen, batch_size: ...}}]")


def test_more_seeds_than_a_file_names_continue_its_numbers(write: Write, errors_of: Errors) -> None:
    assert load_sweep(write(), ["seeds=+3"]).seeds == (1, 2, 3, 4, 5)
    assert load_sweep(write(), ["seeds=[40, 7]", "seeds=+2"]).seeds == (40, 7, 41, 42)
    assert load_sweep("small.yaml+smoke", ["seeds=+1"]).seeds == (1, 2)
    for wrong in ("3", "[]", "[a]"):
        assert "more seeds follow those of the sweep file" in errors_of("small.yaml", f"seeds={wrong}", "seeds=+1")[0]


def test_a_word_count_changes_nothing_where_the_model_brings_a_tokenizer(
    write: Write, small_text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    count = "data.min_word_count=7"
    assert load_sweep(write(), [count]).data.min_word_count == 7
    brings = [count, "model.text={encoder: distilbert}"]
    assert load_sweep(write(), brings) == load_sweep(write(), brings[1:])
    assert capfd.readouterr().err.count("data.min_word_count 7 has no effect") == 1


def test_a_file_of_the_folder_is_suggested(write: Write) -> None:
    write("mine.yaml")
    for asked in ("mine", "mien.yaml"):
        with pytest.raises(SweepNotFoundError, match=r"did you mean '?mine.yaml'?\?\)$"):
            load_sweep(asked)
