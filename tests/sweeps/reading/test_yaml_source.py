from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from sweeps.reading.yaml_source import MAX_BYTES, MAX_DEPTH, MAX_VALUES, Problem, parse_yaml


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


def test_aliases_work_and_may_not_contain_themselves() -> None:
    assert parse("a: &x [1, 2]\nb: *x\n") == ({"a": [1, 2], "b": [1, 2]}, [])
    _, problems = parse("a: &x\n  b: *x\n")
    assert problems == ["f.yaml:2: a.b: an alias may not contain itself"]


def test_all_structural_problems_are_reported_together() -> None:
    _, problems = parse("a: 1\na: 2\nb: {c: 1, c: 2}\n3: x\nd: !!python/name:os.system x\n<<: {e: 1}\n[1, 2]: y\n")
    assert problems == [
        "f.yaml:2: a: duplicate key, first given at f.yaml:1",
        "f.yaml:3: b.c: duplicate key, first given at f.yaml:3",
        "f.yaml:4: a key must be text, got 3",
        "f.yaml:5: d: the tag 'python/name:os.system' is not allowed here",
        "f.yaml:6: merge keys (<<) are not supported; use `extends`",
        "f.yaml:7: a key must be text, got a list or mapping",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n\tb: 1\n", "f.yaml:2: not valid YAML: indented with a tab; use spaces"),
        ("a: b: c\n", "f.yaml:1: not valid YAML: mapping values are not allowed here"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: not valid YAML: a file holds one document, but '---' starts a second one"),
        ("a: *b\n", "f.yaml:1: not valid YAML: found undefined alias 'b'"),
        ("a: 'x\n", "f.yaml:2: not valid YAML: found unexpected end of stream while scanning a quoted scalar"),
        ("a: \x00\n", "f.yaml: not valid YAML: unacceptable character #x0000: special characters are not allowed"),
    ],
)
def test_broken_yaml_is_one_clear_line(text: str, message: str) -> None:
    assert parse(text) == (None, [message])


def test_unclosed_bracket_names_a_line() -> None:
    value, problems = parse("a: 1\nb: [1, 2\nc: 3\n")
    assert value is None
    assert len(problems) == 1
    assert problems[0].startswith("f.yaml:")
    assert "not valid YAML" in problems[0]


def bomb(levels: int, width: int = 9) -> str:
    """Lists of aliases to the list before: `width` to the power of `levels` values in a few hundred bytes."""
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_aliases_cost_no_more_than_the_limit_however_many_levels_they_have() -> None:
    tracemalloc.start()
    for levels in (6, 7, 30):
        value, problems = parse(bomb(levels))
        assert value is None
        assert problems == [f"f.yaml:5: holds more than {MAX_VALUES} values; an alias counts as all that it stands for"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert parse(bomb(4))[1] == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x: " + "[" * 20_000, 1),
        ("a: 1\nx: " + "[" * 20_000 + "]" * 20_000, 2),
        ("x: " + "{a: " * 20_000, 1),
        ("x: " + "{a: " * 20_000 + "}" * 20_000, 1),
        ("- " * 20_000, 1),
        ("? " * 20_000, 1),
        ("\n".join(f"{' ' * depth}a:" for depth in range(500)), MAX_DEPTH),
    ],
    ids=["list", "closed list", "mapping", "closed mapping", "block list", "block key", "block mapping"],
)
def test_deep_nesting_is_one_clear_line(text: str, line: int) -> None:
    assert parse(text) == (None, [f"f.yaml:{line}: is nested deeper than {MAX_DEPTH} levels"])


def test_depth_is_counted_through_aliases() -> None:
    half = "[" * (MAX_DEPTH // 2 + 1) + "]" * (MAX_DEPTH // 2 + 1)
    assert parse(f"a: &a {half}\nb: {half.replace('[]', '[*a]')}\n") == (
        None,
        [f"f.yaml:2: is nested deeper than {MAX_DEPTH} levels"],
    )
    whole = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert parse(f"a: &a {whole}\nb: *a\n")[1] == []


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("a: &a [*a]", ["f.yaml:1: a.0: an alias may not contain itself"]),
        (
            "&a {b: &b [*a, *b], c: *b}",
            [f"f.yaml:1: {path}: an alias may not contain itself" for path in ("b.0", "b.1", "c.0", "c.1")],
        ),
        ("? &a [*a]\n: 1", ["f.yaml:1: a key must be text, got a list or mapping"]),
    ],
)
def test_an_alias_of_what_holds_it_is_reported_where_it_stands(text: str, problems: list[str]) -> None:
    assert parse(text)[1] == problems


def test_an_anchor_may_be_used_again() -> None:
    assert parse("a: &x [1, 2]\nb: {c: *x, d: *x}\ne: &x 3\nf: [*x, *x]\n") == (
        {"a": [1, 2], "b": {"c": [1, 2], "d": [1, 2]}, "e": 3, "f": [3, 3]},
        [],
    )


def test_size_and_number_of_values_are_limited() -> None:
    assert parse("#" * (MAX_BYTES + 1)) == (None, ["f.yaml: is larger than 256 KiB"])
    assert parse("#" + "é" * (MAX_BYTES // 2)) == (None, ["f.yaml: is larger than 256 KiB"])
    assert parse(f"#{'x' * (MAX_BYTES - 10)}\na: 1") == ({"a": 1}, [])
    assert parse("".join(f"k{n}: 1\n" for n in range(20_000))) == (
        None,
        [f"f.yaml:{MAX_VALUES // 2}: holds more than {MAX_VALUES} values"],
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('a: "\\U99999999"', "f.yaml: not valid YAML: an escape names no character"),
        ('a: "\\ud800"', "f.yaml:1: a text may not hold the character U+D800"),
        ('"a\\0": 1', "f.yaml:1: a text may not hold the character U+0000"),
        ("a: 0x" + "f" * 10_000, "f.yaml:1: a: a number may have at most 100 digits"),
    ],
)
def test_what_python_cannot_hold_is_refused(text: str, problem: str) -> None:
    assert parse(text)[1] == [problem]
