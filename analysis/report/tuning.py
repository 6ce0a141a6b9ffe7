"""The sections of a tuned sweep: the default against the tuned grid, and what was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.blocks import (
    Block,
    BlockKey,
    Difference,
    Objective,
    count_text,
    file_stem,
    list_text,
    mean_text,
    name_text,
    p_text,
    seeds_text,
)
from analysis.figures import FigureWriter, draw_tuned
from analysis.report.answer import signed
from analysis.report.document import ReportFolder, Section
from analysis.report.drawing import linked_figure
from analysis.report.latex import text_table_to_latex
from analysis.report.survival import survival_lead
from analysis.report.tables import TextTable
from analysis.run_schema import GRID_TUNED, MAIN_METRICS, MEASURES, Metric, measure_slug
from analysis.statistics import BlockPair, Gain, Survival, block_pairs, counted, gains, gains_frame, tuning_progress
from analysis.tracking import SweepRuns
from analysis.tuning import EDGE, Candidate, Dimension, Trail, TunedBlock, Tuning, Value, is_number

_GAIN_HEAD = ("objective", "default", "tuned", "gain", "95 % interval", "spread", "p", "more than noise")
_GAIN_NOTE = (
    "Test recall, mean ± standard deviation (ddof = 1) over seeds. The gain is tuned minus default, of runs with the "
    "same seed; its spread is the standard deviation of these differences. Intervals and p are by the one rule of this "
    "report, corrected for the objectives of the block. Where the choice was the default, both are one training."
)
_WORDS = {"grid": "grid", "random": "random search", "tpe": "TPE"}


def tuning_notes(sweep: SweepRuns) -> list[str]:
    """What a reader must know of a tuned sweep before any number."""
    if not sweep.grids:
        return []
    tuning = sweep.tuning
    if tuning is None:
        return ["STILL TUNING: nothing is chosen yet, so there is no tuned grid. No candidate is in any table."]
    speak = "tuned grid" if sweep.main_grid == GRID_TUNED else "default grid, for the tuned one has no number yet"
    return [
        f"TUNED: each objective had a budget of {count_text(tuning.budget, 'candidate')} ({_WORDS[tuning.search]}, "
        f"search seed {tuning.search_seed}) over {', '.join(tuning.dimensions)}, scored by {tuning.metric} with "
        f"{seeds_text(tuning.seeds)}. The answer is given for both grids; curves and statistics over blocks are those "
        f"of the {speak}. No candidate is in any table, and none has a test number."
    ]


def tuning_answer(sweep: SweepRuns, found: Sequence[Survival]) -> tuple[str, ...]:
    """Of a tuned sweep whether the ranking survives tuning, or how far it is; empty for others."""
    if sweep.grids and sweep.tuning is None:
        return (still_tuning(sweep),)
    return tuple(said for measure in (MEASURES[0], MEASURES[-1]) if (said := survival_lead(found, measure)))


def still_tuning(sweep: SweepRuns) -> str:
    """For example "Still tuning: 12 of 16 candidates per objective; no reporting cell yet."."""
    progress = tuning_progress(sweep)
    how_far = progress.text if progress else "no candidate has begun"
    done = len(counted(sweep))
    cells = f"{count_text(done, 'reporting run')} done" if done else "no reporting cell yet"
    return f"Still tuning: {how_far}; {cells}."


def tuned_section(
    sweep: SweepRuns,
    blocks: Sequence[Block],
    colours: Mapping[BlockKey, str],
    folder: ReportFolder,
    figures: FigureWriter,
) -> Section | None:
    """Both grids side by side with the gain of each objective; None unless both have a number.

    Files: ``tuning.csv``, ``tuning/BLOCK-MEASURE.{png,pdf}``, ``tables/tuned-BLOCK-METRIC.tex``.

    Args:
        sweep: the sweep and its runs.
        blocks: the blocks of both grids.
        colours: the full colour of each block.
        folder: the report's folder.
        figures: writes the figures to it.
    """
    found = {
        pair: {grid.metric: gains(sweep, pair, grid.metric) for grid in pair.default.grids.values()}
        for pair in block_pairs(blocks)
    }
    if not found:
        return None
    folder.write("tuning.csv", gains_frame(found).to_csv(index=False, lineterminator="\n"))
    links, tables, said = [], [], []
    for pair, by_metric in found.items():
        stem = pair.tuned.slug.removesuffix(f"-{GRID_TUNED}")
        for measure in dict.fromkeys(metric.name for metric in MAIN_METRICS):
            shown = {metric: gained for metric, gained in by_metric.items() if metric.name == measure}
            name = f"tuning/{stem}-{measure_slug(measure)}"
            title = f"Default, tuned and gain, {measure}: {pair.title}"
            arguments = pair, shown, colours[pair.default.key], pair.title
            links.append(linked_figure(folder, figures, name, title, draw_tuned, *arguments))
        for metric in MAIN_METRICS:
            table = _gain_table(pair, metric, by_metric[metric])
            tables.append(table)
            words = (stem, *(() if metric.direction == "both" else (metric.direction,)), measure_slug(metric.name))
            label = f"tuned-{'-'.join(words)}"
            folder.write(f"tables/{label}.tex", text_table_to_latex(table, label))
            said.append(f"{table.title}: {gain_sentence(by_metric[metric])}")
    return Section(
        anchor="tuned",
        title="Default against tuned",
        paragraphs=tuple(said),
        figures=tuple(links),
        tables=tuple(tables),
    )


def gain_sentence(found: Mapping[Objective, Gain]) -> str:
    """For example "Tuning raises 9 of 15 objectives and lowers 1 by more than noise; ..."."""
    known = {key: gain for key, gain in found.items() if gain.difference is not None}
    judged = {key: gain.difference for key, gain in known.items() if gain.difference and gain.difference.p is not None}
    same = sum(gain.same for gain in known.values())
    kept = f" For {count_text(same, 'objective')} the choice was the default." if same else ""
    if not judged:
        return f"No gain can be judged, because no objective has two seeds in both grids.{kept}"
    raised = sum(change.told_apart and change.estimate > 0 for change in judged.values())
    lowered = sum(change.told_apart and change.estimate < 0 for change in judged.values())
    most = max(judged, key=lambda key: judged[key].estimate)
    return (
        f"Tuning raises {raised} of {count_text(len(judged), 'objective')} by more than noise and lowers {lowered}; "
        f"the largest gain is that of {'/'.join(most)}, {signed(judged[most].estimate)} points.{kept}"
    )


def _gain_table(pair: BlockPair, metric: Metric, found: Mapping[Objective, Gain]) -> TextTable:
    rows = [
        (
            "/".join(key),
            *(
                "--" if cell.mean is None else mean_text(cell.mean, cell.std) + (f" (n={cell.n})" if cell.gaps else "")
                for cell in (gain.default, gain.tuned)
            ),
            *_gain_numbers(gain),
        )
        for key, gain in found.items()
    ]
    return TextTable(title=f"{metric.title}, {pair.title}", head=_GAIN_HEAD, rows=tuple(rows), note=_GAIN_NOTE)


def _gain_numbers(gain: Gain) -> tuple[str, ...]:
    change = gain.difference
    if gain.same:
        return "0", "--", "--", "--", "the default was chosen"
    if change is None:
        return "--", "--", "--", "--", "a grid has no number"
    spread = "--" if gain.spread is None else f"{gain.spread:.2f}"
    if change.low is None or change.high is None or change.p is None:
        return f"{change.estimate:+.2f}", "--", spread, "--", "not judged: single runs"
    interval = f"{change.low:+.2f} to {change.high:+.2f}"
    return f"{change.estimate:+.2f}", interval, spread, p_text(change.p), _said(change)


def _said(change: Difference) -> str:
    if not change.told_apart:
        return "no"
    return "yes, a gain" if change.estimate > 0 else "yes, a loss"


def choices_section(sweep: SweepRuns, folder: ReportFolder) -> Section | None:
    """What was chosen for each objective and where it lies in its range; None before anything was chosen.

    Files: ``tables/chosen-BLOCK.tex``.
    """
    tuning = sweep.tuning
    if tuning is None:
        return None
    tables = []
    for block in tuning.blocks:
        table = _choice_table(tuning, block)
        tables.append(table)
        label = f"chosen-{file_stem(block.dataset, block.framework, block.backbone)}"
        folder.write(f"tables/{label}.tex", text_table_to_latex(table, label))
    return Section(
        anchor="chosen",
        title="What was chosen, and where it lies in its range",
        warnings=tuple(_edge_warnings(tuning)),
        paragraphs=(*_trail_paragraphs(tuning), f"Searched: {'; '.join(map(range_text, tuning.space))}."),
        tables=tuple(tables),
    )


def range_text(dimension: Dimension) -> str:
    """A dimension with its range: ``tau from 1 to 20, in powers``."""
    if dimension.values is not None:
        return f"{dimension.name} among {', '.join(map(value_text, dimension.values))}"
    powers = ", in powers" if dimension.is_log else ""
    return f"{dimension.name} from {value_text(dimension.low)} to {value_text(dimension.high)}{powers}"


def value_text(value: Value) -> str:
    """A value with at most four digits."""
    return f"{value:.4g}" if is_number(value) else str(value)


def block_text(block: TunedBlock) -> str:
    """A block's name for a reader."""
    return f"{name_text(block.dataset)}, {name_text(block.framework)} ({block.backbone})"


def _choice_table(tuning: Tuning, block: TunedBlock) -> TextTable:
    rows = []
    for trail in block.objectives:
        places = [_place_text(trail, dimension) for dimension in tuning.space]
        default = None if trail.default is None else trail.default.score
        chosen = None if trail.choice is None else trail.choice.score
        gain = "--" if default is None or chosen is None else f"{chosen - default:+.1f}"
        scores = ["--" if score is None else f"{score:.1f}" for score in (default, chosen)]
        scored = sum(one.score is not None for one in trail.candidates)
        which = "nothing" if trail.choice is None else "the default" if trail.choice.default else f"no. {trail.chosen}"
        rows.append(("/".join(trail.objective), which, *places, *scores, gain, str(scored)))
    head = (
        *(
            "objective",
            "chosen",
            *tuning.dimensions,
            f"{tuning.metric} of the default",
            f"{tuning.metric} of the choice",
        ),
        *("gain on val", "candidates with a score"),
    )
    return TextTable(
        title=f"Chosen settings, {block_text(block)}",
        head=head,
        rows=tuple(rows),
        words=2 + len(tuning.space),
        note="In brackets the place in the range, from 0 % at its lower to 100 % at its upper end, on the scale that "
        f"was searched. Within {100 * EDGE:.0f} % of an end, or at the end of a list of three or more, it is on the "
        "edge. --: the objective does not have the setting. The score of the choice is the highest of several, so its "
        "gain flatters; the gain on test does not.",
    )


def _place_text(trail: Trail, dimension: Dimension) -> str:
    if trail.choice is None or dimension.name not in trail.names:
        return "--"
    value = trail.choice.values[dimension.name]
    at, edge = dimension.position(value), dimension.edge(value)
    place = (
        f" ({', '.join([*([] if 'range' in edge else [f'{100 * at:.0f} %']), *([edge] if edge else [])])})"
        if at is not None
        else ""
    )
    return f"{value_text(value)}{place}"


def _edge_warnings(tuning: Tuning) -> list[str]:
    """A sentence for each setting of which choices lie on an edge, with the objectives."""
    found: dict[tuple[str, str], list[str]] = {}
    for block in tuning.blocks:
        for trail in block.objectives:
            for name in trail.names if trail.choice is not None else ():
                value = (trail.choice or trail.candidates[0]).values[name]
                if edge := tuning.dimensions[name].edge(value):
                    of_block = "" if len(tuning.blocks) == 1 else f" of {block_text(block)}"
                    found.setdefault((name, edge), []).append(
                        f"{'/'.join(trail.objective)}{of_block} ({value_text(value)})"
                    )
    return [
        f"ON THE EDGE: the choice of {name} lies {f'on the {edge} of its range' if 'edge' in edge else edge} for "
        f"{list_text(which)}. A better value may lie beyond; widen the range before you call it the optimum."
        for (name, edge), which in found.items()
    ]


def _trail_paragraphs(tuning: Tuning) -> list[str]:
    """What happened to the candidates, in sentences."""
    candidates: list[Candidate] = [
        one for block in tuning.blocks for trail in block.objectives for one in trail.candidates
    ]
    failed = sum(one.failed is not None for one in candidates)
    stopped = sum(one.stopped for one in candidates)
    text = f"{len(candidates)} candidates were trained, {sum(one.epochs for one in candidates)} epochs in all"
    text += f"; {stopped} were stopped early" if tuning.stop_early is not None else "; none was to be stopped early"
    text += f"; {failed} failed and have no score." if failed else "."
    few = [
        f"{'/'.join(trail.objective)} ({len(trail.candidates)})"
        for block in tuning.blocks
        for trail in block.objectives
        if len(trail.candidates) < tuning.budget
    ]
    short = f"Fewer than {tuning.budget} different candidates exist for {list_text(few)}."
    return [text, *([short] if few else [])]
