"""The live view: on a real pseudo-terminal of 80 columns, without colour, through a pipe, and in plain ASCII."""

import functools
import io
import os
import re
import sys
from dataclasses import replace

import pexpect
import pytest
from rich.console import Console

from goal_sweep.runners.launch.view import LiveView, SweepProgress, block_grid, overview
from tests.helpers.few import few
from tests.helpers.paths import ROOT
from tests.helpers.progress_cases import half_done, printed, status
from tests.helpers.sweep_cases import resolved

CSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(3[0-7]|4[0-7]|9[0-7]|38|48)\b[0-9;]*m")

SCRIPT = """
import time
from rich.console import Console
from goal_sweep.runners.launch.view import LiveView
from tests.helpers.progress_cases import half_done
progress = half_done()
console = Console(highlight=False)
with LiveView(progress, "quickstart", console, str) as view:
    view.note("frozen: 45 of 45 cells to train")
    time.sleep(1.2)
    first = progress.trainings[3]
    progress.running(first, 2, 250.0)
    view.epoch(first, 250.0)
    time.sleep(1.2)
print("the end")
"""


@functools.cache
def on_terminal(rows: int, **environment: str) -> str:
    """The output of the script on a pseudo-terminal of 80 columns."""
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
    settings = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    child = pexpect.spawn(
        sys.executable, ["-c", SCRIPT], cwd=str(ROOT), env=clean | settings | environment, dimensions=(rows, 80),
        encoding="utf-8", timeout=120,
    )  # fmt: skip
    child.expect("the end")
    written = str(child.before)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    return written


def lines_of(written: str) -> list[str]:
    return [line.rstrip() for line in re.split(r"[\r\n]+", CSI.sub("", written))]


@pytest.mark.slow
@pytest.mark.parametrize("rows", few([24, 60]))
def test_on_a_terminal_of_80_columns_the_grid_is_whole_and_redrawn_in_place(rows: int) -> None:
    written = on_terminal(rows)
    lines = lines_of(written)
    assert max(map(len, lines)) <= 80
    assert "frozen: 45 of 45 cells to train" in lines
    heads = [line for line in lines if "scenes vsepp test_byobnet frozen: 15 of 45 done, 4 running (epoch 1" in line]
    assert len(heads) >= 2  # redrawn
    assert written.count("\x1b[1A") >= 5  # by going up, not by scrolling
    assert any(line.startswith("con ") and "*309.0 ± 1.0" in line for line in lines)
    assert any("█x█" in line and "███" in line and "██▃" in line for line in lines)
    assert any("▃▃▃" in line for line in lines)


@pytest.mark.slow
def test_without_colour_there_is_no_colour_and_every_mark() -> None:
    written = on_terminal(60, NO_COLOR="1")
    assert not COLOUR.search(written)
    assert COLOUR.search(on_terminal(60))
    lines = lines_of(written)
    assert any("*309.0 ± 1.0" in line for line in lines)
    assert any("· waiting  ▁ to ▇ share of its epochs  █ done  x failed" in line for line in lines)


def test_failures_beyond_those_named_are_counted() -> None:
    progress = half_done()
    for training in progress.trainings[-14:]:
        progress.set(training, status("failed", reason="lost"))
    lines = printed(overview(progress, "quickstart")).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("failed (15):"))
    assert [line.strip() for line in lines[start:]].count("and 5 more") == 1


def test_what_is_damaged_is_named() -> None:
    trainings = resolved().trainings
    damaged = status("waiting", reason="/x/result.json is damaged: cut", damaged=True)
    progress = SweepProgress(trainings, {trainings[0]: damaged})
    said = printed(overview(progress, "quickstart"), 200)
    assert f"{trainings[0].name}  {trainings[0].cell.id}  /x/result.json is damaged: cut" in said


def test_through_a_pipe_it_is_plain_text_of_80_columns() -> None:
    sign, done, third, wait, failed = "±█▃·x"
    lines = (said := printed(overview(half_done(), "quickstart"))).splitlines()
    assert "\x1b" not in said
    assert max(map(len, lines)) <= 80
    assert lines[0] == "quickstart  15 done, 4 running, 25 waiting, 1 failed"
    start = lines.index("scenes vsepp test_byobnet frozen: image -> text R@1")
    words = [" ".join(line.split()) for line in lines[start + 1 : start + 7]]
    assert words == [
        "con nca cir",
        f"con *93.0 {sign} 7.0 87.0 {sign} 11.3 {done}{failed}{done} 84.5 {sign} 4.9 {done}{done}{third}",
        f"lin 90.0 {sign} 7.0 -- {third}{third}{third} 78.0 {sign} 7.0",
        f"sig 90.5 {sign} 4.9 {done}{done}{wait} -- {wait}{wait}{wait} -- {wait}{wait}{wait}",
        *(f"{pair} -- {wait}{wait}{wait} -- {wait}{wait}{wait} -- {wait}{wait}{wait}" for pair in ("lin-ms", "sig-ms")),
    ]


def test_the_best_cell_is_one_whose_seeds_are_all_in() -> None:
    one, other, best, last = resolved("con/con", "con/nca", seeds=(1, 2)).trainings
    progress = SweepProgress([one, other, best, last])
    for training, value in ((one, 10.0), (best, 20.0), (other, 90.0)):
        progress.set(training, status("done", metrics={"test/i2t_r1": value}))
    text = " ".join(printed(block_grid(progress, next(iter(progress.blocks)), "test/i2t_r1")).split())
    assert "*15.0 ± 7.1" in text
    assert "*90" not in text
    assert "90.0 █·" in text
    progress.set(last, status("done", metrics={"test/i2t_r1": -59.96}))  # as high as printed
    assert printed(block_grid(progress, next(iter(progress.blocks)), "test/i2t_r1")).count("*15.0") == 2


def test_marks_do_not_move_decimals_out_of_line() -> None:
    progress = SweepProgress(resolved(seeds=(1, 2)).trainings)
    for number, training in enumerate(progress.trainings):
        if number % 7:
            progress.set(training, status("done", metrics={"test/i2t_r1": 7.0 * number}))
    rows = printed(block_grid(progress, next(iter(progress.blocks)), "test/i2t_r1"), 100).splitlines()[2:]
    points = [[match.start() for match in re.finditer(r"\.\d", row)] for row in rows]
    assert len(rows) == 5
    assert len({at for row in points for at in row}) == 6  # of the mean and the deviation, three times


def test_what_steers_a_terminal_is_not_printed() -> None:
    progress = half_done()
    progress.set(progress.trainings[40], status("failed", reason="no file a\x1b[2Jb\r\x07\u202e.jpg"))
    console = Console(file=io.StringIO(), width=200)
    view = LiveView(progress, "quickstart", console, lambda *words: " ".join(words))
    view.failed(progress.trainings[40])
    view.show_all()
    written = console.file.getvalue()  # type: ignore[attr-defined]  # the StringIO above
    assert written.count("a\ufffd[2Jb\ufffd\ufffd\ufffd.jpg") == 2
    assert not set("\x1b\r\x07\u202e") & set(written)


def test_where_nothing_is_redrawn_events_are_lines() -> None:
    progress = half_done()
    console = Console(file=io.StringIO(), highlight=False)
    running, failed = progress.trainings[8], progress.trainings[4]
    with LiveView(progress, "quickstart", console, lambda verb, cell_id: f"goal-sweep {verb} x.yaml {cell_id}") as view:
        progress.running(running, 2, 250.0)
        view.epoch(running, 250.0)
        view.failed(failed)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # the StringIO above
    assert lines[0] == "con/cir test_byobnet seed 3 (frozen): epoch 2/3, val rsum 250.0"
    assert lines[1].startswith("con/nca test_byobnet seed 2 (frozen): failed, NaN in the gradient")
    assert lines[1].endswith(f"(goal-sweep logs x.yaml {failed.cell.id})")
    assert len(lines) == 2


def test_the_time_left_is_told_by_the_measured_pace() -> None:
    (plain,), now = resolved("con/con").trainings, [0.0]
    training = replace(plain, stage=replace(plain.stage, warmup_epochs=1))
    progress, file = SweepProgress([training]), io.StringIO()
    console = Console(file=file, width=200, get_time=lambda: now[0])
    with LiveView(progress, "quickstart", console, str) as view:
        for epoch in (1, 2):
            now[0] += 60.0
            progress.running(training, epoch, 250.0)
            view.epoch(training, 250.0)
    first, second = file.getvalue().splitlines()
    assert ("(left" in first, second.rpartition("(")[2]) == (False, "left 0:01:00)")
    assert ("(warm-up)" in first, "(warm-up)" in second) == (True, False)
