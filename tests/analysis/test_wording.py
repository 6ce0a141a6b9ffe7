import pytest

from goal_sweep.analysis.wording import p_equation, signed


@pytest.mark.parametrize(
    ("p", "equation"),
    [
        (0.0, "p < 0.001"),
        (0.0123, "p = 0.012"),
        (float("nan"), "not tested"),
        (0.0497, "p = 0.0497"),
        (0.0503, "p = 0.0503"),
        (1.0, "p = 1.000"),
    ],
)
def test_a_p_value_shows_on_which_side_of_its_level_it_lies(p: float, equation: str) -> None:
    assert p_equation(p) == equation


def test_no_difference_has_no_sign() -> None:
    assert [signed(points) for points in (-0.04, 0.04, -0.0, -0.06)] == ["0.0", "0.0", "0.0", "-0.1"]
