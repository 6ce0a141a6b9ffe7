"""What the store writes down of a training beside its files: attempts, their provenance, results."""

from runners.store.records.attempts import Attempt, AttemptFolder, Outcome, charged_failures, was_cut_off
from runners.store.records.provenance import Provenance, gather
from runners.store.records.result_content import METRICS, RESULT, is_count, is_metric, is_time, parse_result

__all__ = [
    "METRICS",
    "RESULT",
    "Attempt",
    "AttemptFolder",
    "Outcome",
    "Provenance",
    "charged_failures",
    "gather",
    "is_count",
    "is_metric",
    "is_time",
    "parse_result",
    "was_cut_off",
]
