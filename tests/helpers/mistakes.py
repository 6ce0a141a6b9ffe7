"""Compare the problems that are reported of a sweep with what they must say, whatever the wording."""

from collections.abc import Sequence


def check_mistakes(lines: Sequence[str], *expected: str) -> None:
    """Check the lines of an error, in their order, such as ``a.yaml:4 | data.num_trian | 'num_train'``.

    Expected is of each its place, its key (may be empty), and facts that its message has: values, names, nearest keys.
    """
    assert len(lines) == len(expected), "\n".join(lines)
    for line, stated in zip(lines, expected, strict=True):
        place, key, *facts = stated.split(" | ")
        head = f"{place}: " if not key or place == f"--set {key}" else f"{place}: {key}: "
        assert line.startswith(head), f"{line}\nis not about\n{head}"
        for fact in facts:
            assert fact in line.removeprefix(head), f"{line}\nlacks {fact}"
