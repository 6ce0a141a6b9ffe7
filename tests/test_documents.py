"""The documents are true: commands parse, links lead to files, examples run."""

import ast
import re
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest
from typer.main import get_command

from goal_sweep.runners.cli.app import app
from goal_sweep.sweeps.reading.reference import settings_page

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
SWEEPS = sorted((ROOT / "sweeps").glob("*.yaml"))


@pytest.mark.parametrize("path", [*DOCUMENTS, *SWEEPS], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)\)", path.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (path.parent / target).exists(), f"{path.name} points to {target}, which is not there"


@pytest.mark.parametrize("path", [*DOCUMENTS, *SWEEPS], ids=lambda path: path.name)
def test_commands_in_code_parse(path: Path) -> None:
    group = get_command(app)
    blocks = re.findall(r"```\w*\n(.*?)```", path.read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    if path.suffix == ".yaml":
        comment = re.sub(r"\\\n#\s*", " ", path.read_text())
        lines = [line.removeprefix("#").strip() for line in comment.splitlines() if line.startswith("#   ")]
    parsed = 0
    for line in lines:
        found = re.search(r"(?:^|[\s/])goal-sweep (.*)", line)
        if found is None:
            continue
        name, *arguments = takewhile(lambda word: word != ">", shlex.split(found.group(1), comments=True))
        command = group.commands[name]  # type: ignore[attr-defined]
        command.make_context(name, arguments)  # raises on an option or argument that does not exist
        parsed += 1
    assert parsed or path.suffix != ".yaml", f"{path.name} does not open with the command that runs it"


def test_the_page_of_commands_names_every_command() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    lacking = [name for name in get_command(app).commands if f"`{name}" not in page]  # type: ignore[attr-defined]
    assert not lacking


def test_the_readme_examples_run() -> None:
    """In a process of their own, because one of them registers an objective."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    check = 'assert GradientObjective(pair="con", triplet="soft")'
    subprocess.run([sys.executable, "-c", "\n".join([*blocks, check])], cwd=ROOT, check=True)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_settings_page_is_that_of_the_schema() -> None:
    """`goal-sweep schema --markdown > docs/settings.md` writes it."""
    assert (ROOT / "docs" / "settings.md").read_text() == f"{settings_page()}\n"


def test_the_documents_are_short() -> None:
    written = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert sum(len(path.read_text().split()) for path in written) <= 19_000


def test_a_module_can_be_read_in_one_go() -> None:
    long = [
        f"{path}: {lines}"
        for room in ("sweeps", "goal_core", "runners", "analysis", "benchmarks", "goal_sweep")
        for path in (ROOT / room).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 400
    ]
    assert not long


def test_the_architecture_page_names_what_is_there() -> None:
    text = " ".join((ROOT / "docs" / "architecture.md").read_text().split())
    named = re.findall(r"`((?:goal_sweep|goal_core|sweeps|runners|analysis)/[\w/]+(?:\.py)?)(?:: ([\w.]+))?`", text)
    assert len(named) > 30
    for place, name in named:
        path = ROOT / place
        assert path.exists(), f"{place} is not there"
        scope = ast.parse(path.read_text()).body if name else []
        for part in name.split(".") if name else []:
            found = [node for node in scope if part in _defined(node)]
            assert found, f"{place} defines no {name}"
            scope = getattr(found[0], "body", [])


def _defined(node: ast.stmt) -> list[str | None]:
    """The name of a class or function, or the names that an assignment binds."""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return [getattr(node, "name", None), *(getattr(target, "id", None) for target in targets)]
