"""Text of any script becomes LaTeX that pdfLaTeX can print, or says what it cannot."""

from __future__ import annotations

import pytest

from analysis.report.latex.text import latex_text, requirements


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


@pytest.mark.parametrize(
    ("text", "font"),
    [("表情数据", "gbsn"), ("體育", "bsmi"), ("ひらがな漢字", "min"), ("カナ", "min"), ("한국어", "mj")],
)
def test_east_asian_scripts_get_the_font_that_has_them(text: str, font: str) -> None:
    found = latex_text(f"x {text}")
    assert rf"\begin{{CJK*}}{{UTF8}}{{{font}}}{text}\end{{CJK*}}" in found
    assert found.startswith(r"x \ifdefined\Umathchar " + text)  # LuaLaTeX and XeLaTeX have fonts of their own
    assert any("CJKutf8" in line for line in requirements("booktabs", found))


def test_a_run_that_no_font_has_whole_is_split() -> None:
    found = latex_text("體国한")
    assert r"{bsmi}體" in found
    assert r"{gbsn}国" in found


def test_cyrillic_needs_its_encoding() -> None:
    found = latex_text("Привет")
    assert r"{\fontencoding{T2A}\selectfont Привет}" in found
    assert any("[T2A,OT1]{fontenc}" in line for line in requirements("booktabs", found))


@pytest.mark.parametrize("text", ["ภาษา", "हिन्दी", "العربية", "🙂", "ế"])
def test_other_scripts_are_code_points_in_pdflatex_and_it_says_so(text: str) -> None:
    found = latex_text(text)
    codes = " ".join(f"U+{ord(character):04X}" for character in text)
    assert found == rf"\ifdefined\Umathchar {text}\else\texttt{{{codes}}}\fi{{}}"
    assert any("code points" in line for line in requirements("booktabs", found))
