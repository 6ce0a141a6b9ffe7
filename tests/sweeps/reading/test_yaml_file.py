from __future__ import annotations

from typing import Any

import pytest

from goal_sweep.sweeps import Problem
from goal_sweep.sweeps.reading.yaml_file import MAX_BYTES, MAX_DEPTH, parse_yaml
from tests.helpers.mistakes import check_mistakes


def parse(text: str) -> tuple[Any, list[str]]:
    problems: list[Problem] = []
    node = parse_yaml(text, "f.yaml", problems)
    return (None if node is None else node.plain()), [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("True", True),
        ("false", False),
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("-.5", -0.5),
        (".inf", float("inf")),
        ("012", 12),
        ("0x1F", 31),
        ("-0o17", -15),
        ("+5", 5),
        ("113_000", 113000),
        ("'12'", "12"),
        ("2026-11-01", "2026-11-01"),
        ("12:30:45", "12:30:45"),
        ("~", None),
        ("", None),
        ("'#1'", "#1"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    parsed, problems = parse(f"key: {text}\n")
    assert problems == []
    assert parsed == {"key": value}
    assert type(parsed["key"]) is type(value)


def test_every_key_and_item_knows_its_line() -> None:
    node = parse_yaml("a: 1\nb:\n  # comment\n  c:\n    - x\n    - {d: 2,\n       e: 3}\n", "f.yaml", [])
    assert node is not None
    assert isinstance(node.value, dict)
    b = node.value["b"]
    assert isinstance(b.value, dict)
    c = b.value["c"]
    assert isinstance(c.value, list)
    first, second = c.value
    assert isinstance(second.value, dict)
    lines = [item.where.line for item in (node.value["a"], b, c, first, second, second.value["e"])]
    assert lines == [1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: &x [1, 2]\nb: *x\n", ["f.yaml:1 | a", "f.yaml:2 | b"]),
        ("a: 1\nb: *x\n", ["f.yaml:2 | "]),
        ("a: &x 1\n", ["f.yaml:1 | a"]),
    ],
)
def test_anchors_and_aliases_are_refused(text: str, told: list[str]) -> None:
    check_mistakes(parse(text)[1], *(f"{place} | aliases | extends" for place in told))


def test_all_structural_problems_are_reported_together() -> None:
    _, problems = parse("a: 1\na: 2\nb: {c: 1, c: 2}\n3: x\nd: !!python/name:os.system x\n<<: {e: 1}\n[1, 2]: y\n")
    check_mistakes(
        problems,
        "f.yaml:2 | a | duplicate | f.yaml:1",
        "f.yaml:3 | b.c | duplicate | f.yaml:3",
        "f.yaml:4 |  | text | 3",
        "f.yaml:5 | d | 'python/name:os.system'",
        "f.yaml:6 |  | << | extends",
        "f.yaml:7 |  | text | a list or mapping",
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n\tb: 1\n", "f.yaml:2 |  | tab | spaces"),
        ("a: b: c\n", "f.yaml:1 |  | not valid YAML"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2 |  | '---'"),
        ("a: 'x\n", "f.yaml:2 |  | not valid YAML | quoted"),
        ("a: 1\nb: [1, 2\nc: 3\n", "f.yaml:3 |  | not valid YAML"),
        ("a: \x00\n", "f.yaml |  | not valid YAML | #x0000"),
        ('a: "\\U99999999"', "f.yaml |  | not valid YAML | escape"),
    ],
)
def test_broken_yaml_is_one_line(text: str, told: str) -> None:
    value, problems = parse(text)
    assert value is None
    check_mistakes(problems, told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('a: "\\ud800"', "f.yaml:1 | a | U+D800"),
        ('"a\\0": 1', "f.yaml:1 |  | U+0000"),
        ("a: 0x" + "f" * 10_000, "f.yaml:1 | a | 100 digits"),
        ("a: !!int x", "f.yaml:1 | a | 'int'"),
        ("a: !!bool perhaps", "f.yaml:1 | a | 'bool'"),
        ("a: !!str [1]", "f.yaml:1 | a | 'str'"),
    ],
)
def test_a_value_that_is_none_is_named_by_its_key(text: str, told: str) -> None:
    check_mistakes(parse(text)[1], told)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("x: " + "[" * 2_000, "f.yaml"),
        ("a: 1\nx: " + "[" * 2_000 + "]" * 2_000, "f.yaml"),
        ("x: " + "{a: " * 2_000 + "}" * 2_000, "f.yaml"),
        ("? " * 2_000, "f.yaml"),
        ("a: 1\nx: " + "[" * 40 + "]" * 40, "f.yaml:2"),
        ("\n".join(f"{' ' * depth}a:" for depth in range(40)), f"f.yaml:{MAX_DEPTH}"),
    ],
    ids=["list", "closed list", "mapping", "block key", "40 lists", "40 mappings"],
)
def test_deep_nesting_is_one_line(text: str, place: str) -> None:
    check_mistakes(parse(text)[1], f"{place} |  | {MAX_DEPTH} levels")


def test_what_is_as_deep_as_may_be_is_read() -> None:
    assert parse("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))[1] == []


def test_the_size_is_limited() -> None:
    for text in ("#" * (MAX_BYTES + 1), "#" + "é" * (MAX_BYTES // 2)):
        check_mistakes(parse(text)[1], "f.yaml |  | 256 KiB")
    assert parse(f"#{'x' * (MAX_BYTES - 10)}\na: 1") == ({"a": 1}, [])
