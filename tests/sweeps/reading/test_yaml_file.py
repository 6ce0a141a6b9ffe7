from typing import Any

import pytest

from goal_sweep.sweeps import SweepError
from goal_sweep.sweeps.reading.document import Problem, parse_yaml
from tests.helpers.mistakes import check_mistakes


def parse(text: str) -> tuple[Any, list[str]]:
    problems: list[Problem] = []
    try:
        parsed = parse_yaml(text, "f.yaml", problems)
    except SweepError as error:
        return None, str(error).splitlines()
    return parsed.content, [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("no", "no"), ("on", "on"), ("yes", "yes"), ("True", True), ("false", False), ("~", None), ("", None)),
        *(("1e-4", 1e-4), ("1E5", 1e5), ("-.5", -0.5), (".inf", float("inf")), ("+5", 5), ("012", 12), ("0x1F", 31)),
        *(("-0o17", -15), ("113_000", 113000), ("'12'", "12"), ("2026-11-01", "2026-11-01"), ("12:30:45", "12:30:45")),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    parsed, problems = parse(f"key: {text}\n")
    assert problems == []
    assert parsed == {"key": value}
    assert type(parsed["key"]) is type(value)


def test_every_key_and_item_knows_its_line() -> None:
    root = parse_yaml("a: 1\nb:\n  # comment\n  c:\n    - x\n    - {d: 2,\n       e: 3}\n", "f.yaml", [])
    paths = [("a",), ("b",), ("b", "c"), ("b", "c", 0), ("b", "c", 1), ("b", "c", 1, "e"), ("b", "c", 1, "none")]
    assert [root.place(path).line for path in paths] == [1, 2, 4, 5, 6, 7, 6]


def test_duplicate_keys_are_reported_together() -> None:
    problems = parse("a: 1\na: 2\nb: {c: 1, c: 2}\n")[1]
    check_mistakes(problems, "f.yaml:2 | a | duplicate | f.yaml:1", "f.yaml:3 | b.c | duplicate | f.yaml:3")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n\tb: 1\n", "f.yaml:2 |  | tab | spaces"),
        ("a: b: c\n", "f.yaml:1 |  | not valid YAML"),
        ("a: 1\nb: *x\n", "f.yaml:2 |  | aliases"),
        ("a: 1\nb: &x [1]\nc: *x", "f.yaml:2 |  | aliases | extends"),
        ("3: x", "f.yaml:1 |  | text | 3"),
        ("a: 1\n<<: {e: 1}", "f.yaml:2 |  | << | extends"),
        ("[1, 2]: y", "f.yaml:1 |  | text | a list or mapping"),
        ('"i\\0": 1', "f.yaml:1 |  | 'i\\x00'"),
        ("a: !!python/name:os.system x", "f.yaml:1 |  | python/name:os.system"),
        ("a: !!set {b}", "f.yaml:1 |  | set"),
        ('a: "\\ud800"', "f.yaml:1 |  | ud800"),
        ("a: !!int x", "f.yaml:1 |  | 'x' | int"),
        ("a: !!str [1]", "f.yaml:1 |  | str"),
        ("a: 0x" + "f" * 10_000, "f.yaml:1 |  | 0xfff | int"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2 |  | single document"),
        ("a: 'x\n", "f.yaml:2 |  | not valid YAML | quoted"),
        ("a: 1\nb: [1, 2\nc: 3\n", "f.yaml:3 |  | not valid YAML"),
        ("a: \x00\n", "f.yaml |  | not valid YAML | #x0000"),
        ('a: "\\U99999999"', "f.yaml |  | not valid YAML | escape"),
        ("x: " + "[" * 2_000, "f.yaml |  | nested"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, told: str) -> None:
    check_mistakes(parse(text)[1], told)
