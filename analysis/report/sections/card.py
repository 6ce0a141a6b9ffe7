"""The model card of a sweep's best model: what it is, and how well its seeds do."""

from __future__ import annotations

from pathlib import Path

from goal_sweep.analysis.blocks import BLOCK_COLUMNS, BlockKey
from goal_sweep.analysis.report.markdown import markdown_text, table_to_markdown
from goal_sweep.analysis.report.parts import TextTable
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import TEST_SELECTION_WARNING, stages_selected_on_test
from goal_sweep.analysis.wording import mean_text, seeds_text
from goal_sweep.goal_core.evaluation.metrics import METRICS, RSUM
from goal_sweep.sweeps.results import ResultsError


def model_card(results: SweepResults) -> str:
    """The card, in Markdown, of the objective, stage and settings whose seeds have the highest mean val rsum.

    The weights that it names are those of the seed with the highest val rsum. Nothing is chosen on the test split.
    Raises `ResultsError` where no training is done that has val's recall.
    """
    runs = results.counted[results.counted[RSUM.val].notna()]
    if runs.empty:
        raise ResultsError("no training is done, so there is no model to describe")
    groups = runs.groupby([*BLOCK_COLUMNS, "pair", "triplet", "configuration", "grid"])
    seeds = groups.get_group(groups[RSUM.val].mean().idxmax()).sort_values("seed")
    best = seeds.sort_values(RSUM.val, ascending=False, kind="stable").iloc[0]
    key = BlockKey(**{name: best[name] for name in BLOCK_COLUMNS}, configuration=best["configuration"])
    weights = str(Path(best["store"], best["checkpoint"]))
    settings = results.settings(seeds).iloc[0]
    facts = {
        "objective": f"{best['pair']}/{best['triplet']}",
        "data": f"{key.dataset}, fingerprint {key.data_fingerprint}",
        "model": f"{key.framework}, {key.backbone}",
        "stage": key.stage,
        "trained": f"{seeds_text(list(seeds['seed']))}, with goal-sweep at commit {best['git_commit'] or 'unknown'}",
        "weights": f"{weights} (seed {best['seed']}, epoch {best['best_epoch']:.0f})",
        **{name: value for name, value in settings.items() if value and name != "seed"},
    }
    described = TextTable(
        title="", head=("what", "value"), rows=tuple((str(a), str(b)) for a, b in facts.items()), words=2
    )
    rows = tuple(
        (split, *(mean_text(seeds[name].mean(), seeds[name].std()) for name in names))
        for split, names in (
            ("val, selected epoch", [metric.val for metric in METRICS.values()]),
            ("test, same weights", [metric.test for metric in METRICS.values()]),
        )
    )
    recalls = TextTable(title="", head=("recall, %", *METRICS), rows=rows)
    warning = f"\nThe epoch was selected on the test split. {TEST_SELECTION_WARNING}\n"
    return (
        f"# {markdown_text(facts['objective'] + ': ' + key.title)}\n\n{table_to_markdown(described)}\n\n"
        f"Mean ± sample standard deviation over {seeds_text(list(seeds['seed']))}:\n\n{table_to_markdown(recalls)}\n"
        f"{warning if stages_selected_on_test(results, key) else ''}"
        f"\n```python\nimport goal_sweep\n\nmodel = goal_sweep.load({weights!r})\n```\n"
    )
