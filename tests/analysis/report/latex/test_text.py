"""Text of any script becomes LaTeX that pdfLaTeX can print, or says what it cannot."""

from __future__ import annotations

import pytest

from goal_sweep.analysis.report.latex.text import latex_text, requirements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & 50 % #1 {y}", r"a\_b \& 50 \% \#1 \{y\}"),
        ("<x> ~ \\", r"\ensuremath{<}x\ensuremath{>} {\textasciitilde} {\textbackslash}"),
        ("two\nlines", "two lines"),
        ("VSE∞ ± →", r"VSE\ensuremath{\infty} \ensuremath{\pm} \ensuremath{\rightarrow}"),
        ("naïve Łódź ß", r"na{\"\i}ve {\L}\'od\'z {\ss}"),
        ("nai\u0308ve", r"na{\"\i}ve"),  # decomposed, as macOS names files
        ("VSEα", r"VSE\ensuremath{\alpha}"),
    ],
)
def test_signs_and_latin_and_greek_letters_need_no_package(text: str, expected: str) -> None:
    assert latex_text(text) == expected
    assert requirements("booktabs", latex_text(text)) == [r"% \usepackage{booktabs}"]


def test_letters_of_another_encoding_name_it() -> None:
    assert requirements("booktabs", latex_text("ą đ"))[1] == r"% \usepackage[T1]{fontenc}"


@pytest.mark.parametrize("text", ["ภาษา", "हिन्दी", "العربية", "🙂", "ế", "表情", "ひらがな", "한국어", "Привет"])
def test_other_scripts_are_code_points_in_pdflatex_and_it_says_so(text: str) -> None:
    found = latex_text(text)
    assert found == "".join(rf"\ifdefined\Umathchar {c}\else\texttt{{U+{ord(c):04X}}}\fi{{}}" for c in text)
    assert any("code points" in line for line in requirements("booktabs", found))
