"""Plugins: what they register, and each mistake with the plugin and its line."""

import pickle
from pathlib import Path

import pytest
import torch

from goal_sweep.goal_core.basics.registry import Plugin, PluginError, read_plugin
from goal_sweep.goal_core.objectives import ObjectiveConfig, pair_weights
from goal_sweep.goal_core.objectives.trial import try_objective
from goal_sweep.goal_core.training import TrainingFailed

HEAD = "from goal_sweep.goal_core.objectives import PairWeights, pair_weights\n"
SQUARE = f"""{HEAD}
@pair_weights.register("square")
def square(triplets, *, power: float = 2.0):
    return PairWeights((1 - triplets.pos) ** power, triplets.neg ** power)
"""


pytestmark = pytest.mark.usefixtures("without_plugins")


def plugin(text: str) -> Plugin:
    return Plugin(name="own.py", text=text)


def test_a_plugin_that_travelled_registers_the_same_part_with_the_same_id() -> None:
    plugin(SQUARE).run()
    objective = ObjectiveConfig(pair="square", triplet="con", params={"power": 3})
    before = objective.resolved()
    assert (before["power"], before["pair_code"]) == (3.0, plugin(SQUARE).digest)
    assert "square" not in pair_weights.shipped
    pickle.loads(pickle.dumps(plugin(SQUARE))).run()
    assert objective.resolved() == before
    try_objective(objective)


def test_a_name_of_another_plugin_is_taken() -> None:
    plugin(SQUARE).run()
    Plugin(name="copy.py", text=SQUARE).run()  # the same text elsewhere is the same part
    with pytest.raises(PluginError, match=r"plugin other\.py:3: .*'square' is registered twice.* copy\.py"):
        Plugin(name="other.py", text=f"{SQUARE}# mine\n").run()


def test_an_edited_plugin_takes_its_names_anew() -> None:
    plugin(SQUARE).run()
    before = ObjectiveConfig(pair="square", triplet="con").resolved()
    plugin(SQUARE.replace("power: float = 2.0", "power: float = 2.5")).run()
    after = ObjectiveConfig(pair="square", triplet="con").resolved()
    assert (before["power"], after["power"]) == (2.0, 2.5)
    assert before["pair_code"] != after["pair_code"]


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("def f(:", "own.py:1", "invalid syntax"),
        ("x = 1", "own.py", "pair_weights"),
        (SQUARE.replace('"square"', '"con"'), "own.py:3", "'con' is registered twice"),
        (SQUARE + SQUARE, "own.py:8", "'square' is registered twice"),
        (SQUARE.replace('"square"', '"a/b"'), "own.py:3", "'a/b'"),
        (SQUARE.replace('"square"', '"all"'), "own.py:3", "'all'"),
        (SQUARE.replace("2.0", "(1, 2)"), "own.py:3", "'power' needs a number"),
        (SQUARE + "\n1 / 0", "own.py:7", "ZeroDivisionError"),
        (SQUARE + "\nraise SystemExit(0)", "own.py:7", "SystemExit"),
        (SQUARE + "\nimport nowhere_to_be_found", "own.py:7", "nowhere_to_be_found"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, place: str, what: str) -> None:
    with pytest.raises(PluginError) as error:
        plugin(text).run()
    message = str(error.value)
    assert f"plugin {place}: " in message
    assert what in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("triplets.pos", "gives Tensor, not PairWeights"),
        ("PairWeights(triplets.pos[:1], triplets.neg)", "gives (1,)"),
        ("PairWeights(triplets.pos.double(), triplets.neg)", "float64"),
        ("PairWeights(triplets.pos / 0, triplets.neg)", "NaN or infinity"),
        ("PairWeights(triplets.pos.new_tensor(__import__('time').time_ns() % 997).expand(12), triplets.neg)", "again"),
        ("PairWeights(triplets.nothing, triplets.neg)", "nothing"),
        ("exit()", "SystemExit"),
        ("PairWeights(triplets.pos.zero_(), triplets.neg)", "changes the similarities"),
    ],
)
def test_a_weight_that_does_not_work_is_refused_before_training(body: str, what: str) -> None:
    text = SQUARE.replace("PairWeights((1 - triplets.pos) ** power, triplets.neg ** power)", body)
    plugin(text).run()
    with pytest.raises(Exception, match=r"plugin own\.py(:5)?: square") as error:
        try_objective(ObjectiveConfig(pair="square", triplet="con"))
    assert what in str(error.value)


def test_a_plugin_leaves_the_arithmetic_of_other_cells_alone() -> None:
    try:
        with pytest.raises(PluginError, match=r"own\.py: .*changes torch's default dtype"):
            plugin(f"{SQUARE}\nimport torch\ntorch.set_default_dtype(torch.float64)").run()
    finally:
        torch.set_default_dtype(torch.float32)


def test_an_error_of_a_part_names_the_plugin_and_its_line() -> None:
    plugin(SQUARE.replace("return", "1 / 0; return")).run()
    square = pair_weights["square"].function
    with pytest.raises(ZeroDivisionError) as raised:
        square(None)
    assert TrainingFailed.because_of("key", raised.value).reason.startswith("plugin own.py:5: ZeroDivisionError: ")


def test_ends_of_lines_are_no_part_of_an_id(tmp_path: Path) -> None:
    for name, ends in (("unix.py", "\n"), ("dos.py", "\r\n")):
        (tmp_path / name).write_bytes(SQUARE.replace("\n", ends).encode())
    unix, dos = (read_plugin(name, tmp_path) for name in ("unix.py", "dos.py"))
    assert unix.digest == dos.digest


def test_a_file_and_a_module_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights.py").write_text(f"{SQUARE}\nraise SystemExit('it ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = read_plugin("mine/weights.py", tmp_path).text
    assert read_plugin("mine.weights", tmp_path / "elsewhere") == Plugin(name="mine.weights", text=text)
    for missing in ("no.py", "mine.nothing"):
        with pytest.raises(PluginError, match=missing):
            read_plugin(missing, tmp_path)


def test_an_installed_package_names_its_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "weights.py").write_text("# the text")
    metadata = tmp_path / "my_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[goal_sweep.plugins]\nmine = my_package.weights\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert read_plugin("mine", tmp_path / "elsewhere") == Plugin(name="mine", text="# the text")
    with pytest.raises(PluginError, match="yours"):
        read_plugin("yours", tmp_path)
