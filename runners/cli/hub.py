"""Publishes a sweep's best model with its card on the Hugging Face hub, under the login of `huggingface_hub`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from huggingface_hub import CommitOperationAdd, EvalResult, HfApi, ModelCardData, get_token
from huggingface_hub.errors import RepositoryNotFoundError

from goal_sweep.analysis.report.pages import model_card
from goal_sweep.analysis.results import SweepResults, best_runs
from goal_sweep.goal_core.basics.atomic import scratch_folder
from goal_sweep.goal_core.basics.errors import GoalError, first_line
from goal_sweep.goal_core.checkpoints.file import flat, read_model, write_model
from goal_sweep.goal_core.evaluation.metrics import METRICS
from goal_sweep.goal_core.objectives.variants import objective_name
from goal_sweep.runners.store import Store

_CARD, _MODEL = "README.md", "model.safetensors"
_TITLE = "Upload a model and its card with goal-sweep"
"""Of every commit, by which the next upload knows its own files."""


def push(
    results: SweepResults, store: Store, repository: str, objective: str, *, licence: str, private: bool, force: bool
) -> str:
    """Upload the best model on val, as `best_runs` finds it, and its card. Paths of this machine stay out of both.

    Returns the repository's address. A `GoalError` says what the hub refuses, or what is there and not ours.

    Args:
        repository: ``ORG/NAME``, which is made if it is missing.
        licence: as the hub names it; empty: the card states none.
        force: also replace files that others have written there.
    """
    best = {str(name): value for name, value in best_runs(results, objective).iloc[0].items()}
    trained = read_model(store.weights_of(best))
    text = model_card(results, objective, published=(repository, _MODEL))
    card = f"---\n{_front_matter(best, repository, licence)}\n---\n{text}"
    try:
        if not get_token():
            raise GoalError("no login at the Hugging Face hub; run: hf auth login")
        with scratch_folder() as folder:
            tensors = flat({"heads": trained.heads, "backbone": trained.backbone})
            write_model(folder / _MODEL, tensors, trained.description.without_paths(), epoch=trained.epoch)
            parent = _opened(api := HfApi(), repository, private=private, force=force)
            files = [CommitOperationAdd(_CARD, card.encode()), CommitOperationAdd(_MODEL, folder / _MODEL)]
            api.create_commit(repository, files, commit_message=_TITLE, parent_commit=parent)
    except GoalError:
        raise
    except Exception as error:  # of several libraries of HTTP
        raise GoalError(f"cannot write {repository} on the Hugging Face hub: {first_line(error)}") from error
    return f"{api.endpoint}/{repository}"


def _opened(api: HfApi, repository: str, *, private: bool, force: bool) -> str | None:
    """Make a repository, or check that it may be written. Its newest commit, which must still be that when we write."""
    try:
        found = api.model_info(repository)
    except RepositoryNotFoundError:
        api.create_repo(repository, private=private or None)
        return None
    if private and not found.private:
        raise GoalError(f"{repository} is there and public; make it private on its page, or leave out --private")
    there = api.get_paths_info(repository, [_CARD, _MODEL], expand=True)
    others = [one.path for one in there if one.last_commit is None or one.last_commit.title != _TITLE]
    if others and not force:
        raise GoalError(f"{repository} has {', '.join(others)} of others; give another name, or --force to replace it")
    return found.sha


def _front_matter(best: Mapping[str, Any], repository: str, licence: str) -> str:
    """What the hub reads of a card: the results are those of the uploaded weights, not a mean over seeds."""
    task, data = "image-text-retrieval", best["dataset"]
    result = partial(EvalResult, task, data, data, "recall", dataset_split="test")
    return ModelCardData(
        license=licence or None,
        library_name="goal-sweep",
        pipeline_tag="feature-extraction",  # the hub has no tag for retrieval of images by text
        tags=[task, best["framework"], best["backbone"], objective_name(best["pair"], best["triplet"])],
        model_name=repository.partition("/")[2],
        eval_results=[result(round(float(best[m.test]), 2), metric_name=m.title) for m in METRICS.values()],
        widget=[{"text": "a red flag"}, {"text": "two people on a beach"}],
    ).to_yaml()
