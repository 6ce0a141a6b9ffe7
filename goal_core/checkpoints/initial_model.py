"""The models that training starts from: a framework's initial weights, or those of the checkpoint `init_from`."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from goal_sweep.goal_core.basics.errors import GoalError, WeightsError, about, first_line, warn
from goal_sweep.goal_core.checkpoints.file import ModelDescription, TrainedModel, check_fits, load_module, read_model
from goal_sweep.goal_core.data import DataConfig, Dataset, Split
from goal_sweep.goal_core.data.inputs import captions_of, warn_of_reading
from goal_sweep.goal_core.data.text import TextVectors, Tokenizer
from goal_sweep.goal_core.models import ModelConfig
from goal_sweep.goal_core.models.backbones import ImageBackbone
from goal_sweep.goal_core.models.frameworks import backbone_setting, brings_tokenizer, framework_of, frameworks
from goal_sweep.goal_core.models.heads import Encoder, Heads, num_features
from goal_sweep.goal_core.models.sizes import backbone_name
from goal_sweep.goal_core.models.weights import file_sha256, image_backbones, text_encoders

_FAR = 1e-3
"""How far the numbers of a unit vector may round where a batch is computed by other kernels."""


class InitialModel:
    """Builds the parts that cells train, with their initial weights, and the tokenizer that goes with them.

    A checkpoint `init_from` brings its own tokenizer, because its words stand for rows of an embedding.

    Args:
        dataset: the same data, opened; None for a given model, which states what it needs of them.
        given: a model that takes the place of `init_from`, and fits.
    """

    def __init__(
        self, model: ModelConfig, data: DataConfig, dataset: Dataset | None, given: TrainedModel | None = None
    ) -> None:
        self.framework = framework_of(model)
        self.framework.check(model, data)
        self._data, self._dataset = data, dataset
        self._given = given or (_read(model) if model.init_from else None)
        self.init_id = file_sha256(Path(model.init_from))[:16] if model.init_from and not given else ""
        """Identifies the content of `init_from`; empty without one."""
        if self._given is not None:  # weights that it would overwrite are not loaded first
            model = replace(model, bert=self._given.description.model.bert)
            model = self.framework.without_backbone_weights(model) if self._given.backbone else model
        self.model = model
        self.tokenizer: Tokenizer
        vectors = None if dataset is None else next(iter(dataset.splits.values())).texts
        if vectors is not None:
            self.tokenizer = TextVectors(vectors.shape[-1])
        elif self._given is not None:
            self.tokenizer = self._given.description.vocabulary
        else:
            assert dataset is not None, "only a given model does without data"
            with about(self.framework.text_setting(model) or backbone_setting(model)):
                self.tokenizer = self.framework.tokenizer(model, dataset.vocabulary_captions, data.min_word_count)

    def backbone(self, seed: int) -> ImageBackbone | None:
        """The image backbone; None where the data already consists of features."""
        with about(backbone_setting(self.model)):
            backbone = self.framework.backbone(self.model, self._data, seed)
        if backbone is not None and self._given is not None and self._given.backbone:
            load_module(backbone, self._given.backbone, self._given.path)
        return backbone

    def heads(self, backbone: ImageBackbone | None, seed: int) -> Heads:
        """Everything else that trains."""
        width = 0 if self._given is None else self._given.description.num_features
        if self._dataset is not None:
            width = num_features(backbone, next(iter(self._dataset.splits.values())))
        elif backbone is not None:
            width = backbone.num_features
        build = partial(self.framework.heads, self.model, num_features=width, tokenizer=self.tokenizer, seed=seed)
        if self._given is None:
            with about(self.framework.text_setting(self.model)):
                return build()
        if self.framework.draws_heads(self.model):
            with torch.device("meta"):  # sizes that a file states take no memory before they are known to fit
                check_fits(build(), self._given.heads, self._given.path)
        load_module(heads := build(), self._given.heads, self._given.path)
        return heads


def check_captions(initial: InitialModel, dataset: Dataset) -> None:
    """Read the captions of every split; a `DataError` names the first that the model cannot read.

    It is warned of captions that are cut or hardly known.
    """
    read = [captions_of(split, initial.tokenizer) for split in dataset.splits.values()]
    warn_of_reading(read, initial.tokenizer, of_these=not brings_tokenizer(initial.model))


def check_initial_weights(model: ModelConfig, data: DataConfig, dataset: Dataset, *, strict: bool = False) -> None:
    """Load the initial weights and discard them, so that a mismatch shows early; a model with own parts is tried.

    Args:
        strict: try any model, and that a gradient reaches its backbone and its text encoder.
    """
    initial = InitialModel(model, data, dataset)
    check_captions(initial, dataset)
    texts = [text_encoders.get(name) for name in (model.bert.weights, model.text.encoder)]
    parts = frameworks[model.framework], image_backbones.get(model.backbone.name), *texts
    own = [f"plugin {part.plugin}: {part.name}" for part in parts if part is not None and part.plugin]
    try:
        encoder = _encoder(initial, 0)
        if own or strict:
            _try(encoder, _reloaded(encoder, initial), initial, data, dataset.splits["train"], strict=strict)
    except (Exception, SystemExit) as error:
        if isinstance(error, GoalError) or not (own or strict):
            raise
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise WeightsError(": ".join(filter(None, (", ".join(own), f"{kind}{first_line(error)}")))) from error
    if (net := encoder.backbone) and net.fit and data.image is not None and (said := net.fit.unlike(data.image)):
        warn(said)


def _encoder(initial: InitialModel, seed: int) -> Encoder:
    backbone = initial.backbone(seed)
    heads = initial.heads(backbone, seed).eval()
    return Encoder(heads=heads, backbone=backbone, precision="fp32", device=torch.device("cpu"))


def _reloaded(encoder: Encoder, initial: InitialModel) -> Encoder:
    """A model of another seed with the same state. A `ValueError` says if its own seed draws other weights."""
    for own, again in _parts(encoder, _encoder(initial, 0)):
        if not all(map(torch.equal, own.parameters(), again.parameters())):
            raise ValueError("the same seed draws other weights; use torch, and in heads torch.manual_seed(seed)")
    for own, part in _parts(encoder, other := _encoder(initial, 1)):
        part.load_state_dict(own.state_dict())
        for buffer, mine in zip(part.buffers(), own.buffers(), strict=True):  # also what is not in the state
            buffer.copy_(mine)
    return other


def _parts(encoder: Encoder, other: Encoder) -> list[tuple[nn.Module, nn.Module]]:
    pairs = [(encoder.heads, other.heads), (encoder.backbone, other.backbone)]
    return [(own, others) for own, others in pairs if own is not None and others is not None]


def _try(
    encoder: Encoder, other: Encoder, initial: InitialModel, data: DataConfig, split: Split, *, strict: bool
) -> None:
    """Encode two pairs, one by one with a model that is to be equal, and eight in a step; else a `ValueError`."""
    heads = encoder.heads
    if encoder.backbone is not None and data.image is not None:
        inputs = torch.randint(256, (2, 3, data.image.size, data.image.size), dtype=torch.uint8)
    else:
        inputs = torch.rand((2, *(split.region_shape or ())))
    captions = captions_of(split, initial.tokenizer)
    ends = captions.lengths.argsort()[[0, -1]]  # the shorter one is padded
    tokens, lengths = captions.batch(ends)
    with torch.set_grad_enabled(strict):
        features, texts = encoder.features(inputs), encoder.text_features(tokens, lengths)
    with torch.no_grad():
        together = heads.encode_images(features), heads.encode_texts(texts, lengths)
        images = [other.images(one) for one in torch.split(inputs, 1)]
        alone = torch.cat(images), torch.cat([other.texts(*captions.batch(one)) for one in ends[:, None]])
    for what, rows, single in zip(("an image", "a caption"), together, alone, strict=True):
        if (far := float((rows - single).abs().max())) > _FAR:
            raise ValueError(f"{what} has another vector alone, or in a model loaded anew, by up to {far:.2g}")
    ids = torch.arange(8) // 2
    pairs = heads.train().forward_pairs(features[ids % 2], None, texts[ids % 2], lengths[ids % 2])
    both = pairs.image_BD, pairs.text_BD
    if both[0].shape != both[1].shape or not all(torch.allclose(rows.norm(dim=1), torch.ones(8)) for rows in both):
        raise ValueError(f"pairs must give unit vectors of one width, no NaN; got {[tuple(one.shape) for one in both]}")
    value = (both[0] * both[1]).sum().abs()  # as the objective's, not negative
    match heads.total_loss(value, pairs, ids):
        case [loss, dict(logged)] if all(isinstance(one, torch.Tensor) for one in (loss, *logged.values())):
            pass
        case _:
            raise ValueError("total_loss must give the loss and a dict of tensors to log")
    passed = torch.autograd.grad(loss, value, allow_unused=True, retain_graph=True)[0]
    if passed is None or passed < 0:
        raise ValueError("total_loss does not pass the gradient of the objective on")
    if strict:
        torch.autograd.backward(loss + both[0].sum() + both[1].sum())
        own = getattr(getattr(heads, "text", None), "encoder", None)
        for what, side in (("backbone", encoder.backbone), ("text encoder", own)):
            weights = [one for one in side.parameters() if one.requires_grad] if side else []
            if weights and not any(one.grad is not None and one.grad.any() for one in weights):
                raise ValueError(f"no gradient reaches the weights of its {what}")


def trained_encoder(
    trained: TrainedModel, description: ModelDescription, device: torch.device, dataset: Dataset | None = None
) -> Encoder:
    """A trained model's parts on a device; its backbone from the checkpoint, or from the weights it was frozen with."""
    model = description.model
    try:
        initial = InitialModel(model, description.data, dataset, given=trained)
        _check_sources(trained, description, initial)
        backbone = initial.backbone(description.seed)
        heads = initial.heads(backbone, description.seed)
    except GoalError as error:
        if str(trained.path) in str(error):
            raise
        raise WeightsError(f"{trained.path}: {error}") from error
    except Exception as error:  # what a file says may fail anywhere
        says = f"does not describe a model that can be built: {first_line(error)}"
        raise WeightsError(f"{trained.path} {says}") from error
    backbone = None if backbone is None else backbone.placed(device, precision=description.precision)
    return Encoder(heads=heads.to(device), backbone=backbone, precision=description.precision, device=device)


def _check_sources(trained: TrainedModel, description: ModelDescription, initial: InitialModel) -> None:
    """Check that what a model reads beside its checkpoint is what it was trained with; else a `WeightsError`.

    That is a frozen backbone's weights. Of a pretrained encoder whose weights the checkpoint has, it is the settings.
    """
    model, known, framework = description.model, description.weights, initial.framework
    if not trained.backbone and model.backbone.weights != "precomputed":
        if (own := framework.weights_id(model)) != known:
            now = f"{model.backbone.weights} is {own}, the cell used {known}"
            raise WeightsError(f"the backbone's weights have changed: {now}")
        return
    for own in framework.ids_of_folders(model):
        part = own.partition(" ")[0] if " " in own else ""  # a converted checkpoint names no text encoder
        if part in known and own not in known:
            raise WeightsError(f"the folder of a pretrained model has changed: it is {own}, the cell used {known}")


def _read(model: ModelConfig) -> TrainedModel:
    """The checkpoint `init_from`. Sizes are compared when its tensors are loaded."""
    given = read_model(Path(model.init_from))
    had, wanted, problem = given.description.model, model.backbone, ""
    if had.framework != model.framework:
        problem = f"its framework is {had.framework}, not {model.framework}"
    elif "precomputed" in (wanted.weights, had.backbone.weights) and wanted.weights != had.backbone.weights:
        problem = f"its backbone weights are {had.backbone.weights}, not {wanted.weights}"
    elif wanted.weights != "precomputed" and backbone_name(model) != backbone_name(had):
        problem = f"its backbone is {had.backbone.name}, not {wanted.name}"
    elif wanted.weights != "precomputed" and not given.backbone:
        both = given.description.weights, framework_of(model).weights_id(model)
        trained_on, own = (weights.split(" ")[0] for weights in both)
        if trained_on != own:
            problem = f"its heads were trained on backbone weights {trained_on}, not {own}"
    if problem:
        raise WeightsError(f"init_from {given.path} does not fit the sweep's model: {problem}")
    return given
