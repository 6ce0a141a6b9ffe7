"""The schema of sweep files. `goal_core` defines the settings of data, model parts and stages."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic.json_schema import SkipJsonSchema

from goal_sweep.goal_core.basics.errors import UnknownNameError, nearest, warn
from goal_sweep.goal_core.basics.ranges import Range
from goal_sweep.goal_core.basics.registry import Plugin
from goal_sweep.goal_core.data.config import DataConfig
from goal_sweep.goal_core.data.dataset import importers
from goal_sweep.goal_core.models.config import ModelConfig, ModelParts
from goal_sweep.goal_core.models.frameworks import brings_tokenizer, frameworks
from goal_sweep.goal_core.objectives.config import ObjectiveConfig
from goal_sweep.goal_core.objectives.variants import LOSS, Variant, accepted_parameters
from goal_sweep.goal_core.objectives.weights import Value, baselines, pair_weights, triplet_weights
from goal_sweep.goal_core.training.config import Compile, Precision, Sharing, StageConfig
from goal_sweep.sweeps import checks
from goal_sweep.sweeps.axes import PRECISION, Axis, Configuration, check_axes, combinations, settings_at
from goal_sweep.sweeps.checks import Settings, distinct, failures, registered
from goal_sweep.sweeps.trackers import BuiltIn
from goal_sweep.sweeps.tuning import TuneConfig, check_tune

_Pairs = Annotated[tuple[Annotated[str, AfterValidator(registered(pair_weights))], ...], checks.Some]
_Triplets = Annotated[tuple[Annotated[str, AfterValidator(registered(triplet_weights))], ...], checks.Some]
_Baseline = Annotated[str, AfterValidator(registered(baselines))]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepModel(ModelParts, Settings):
    """The models of a sweep: one for each backbone, equal in everything else."""

    backbones: checks.Backbones
    """Image backbones, names distinct. In YAML an item may be the name alone, for timm's pretrained weights."""

    def problems(self) -> Iterator[str]:
        yield from failures(lambda: self.models)

    @property
    def models(self) -> tuple[ModelConfig, ...]:
        """One model for each backbone, in the order of the sweep file."""
        alike = {item.name: getattr(self, item.name) for item in fields(ModelParts)}
        return tuple(ModelConfig(backbone=backbone, **alike) for backbone in self.backbones)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepObjectives(Settings):
    """The objectives of a sweep: a grid of pair weights x triplet weights, or some of its cells."""

    pair: Annotated[_Pairs, AfterValidator(distinct)] = field(default_factory=lambda: pair_weights.shipped)
    """Pair weights (rows). In YAML, `all` stands for those that come with goal-sweep."""
    triplet: Annotated[_Triplets, AfterValidator(distinct)] = field(default_factory=lambda: triplet_weights.shipped)
    """Triplet weights (columns). In YAML, `all` stands for those that come with goal-sweep."""
    only: checks.Objectives = ()
    """Keep only these objectives of the grid, such as `sig-ms/cir`; empty keeps the whole grid."""
    baselines: Annotated[tuple[_Baseline, ...], AfterValidator(distinct)] = ()
    """Contrastive losses to train beside the grid: `infonce`, `sigmoid` (docs/objectives.md)."""
    variant: Variant = "paper"
    """As in `ObjectiveConfig`. In YAML, a list of values here, or of a parameter, makes an axis (`sweeps.axes`)."""
    params: Mapping[str, Value] = field(default_factory=dict)
    """Parameters that override the variant's defaults. Each applies to the objectives that have it."""

    def problems(self) -> Iterator[str]:
        if outside := {*self.only} - {f"{pair}/{triplet}" for pair in self.pair for triplet in self.triplet}:
            grid = f"pair {', '.join(self.pair)} x triplet {', '.join(self.triplet)}"
            yield f"only: {', '.join(sorted(outside))} not in the grid of {grid}; change only, pair or triplet"
            return
        known = {name: names for names in reversed(self.names) for name in accepted_parameters(*names, self.variant)}
        for name, value in self.params.items():
            if name not in known:
                hint = f"{nearest(name, known)}; known: {', '.join(known) or 'none'}"
                yield f"params.{name}: no objective of this sweep has this parameter (a keyword-only argument){hint}"
            else:
                pair, triplet = known[name]
                build = partial(ObjectiveConfig, pair=pair, triplet=triplet, variant=self.variant, params={name: value})
                yield from (f"params.{name}: {text}" for text in failures(build))

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """(pair, triplet) of each objective, in the order of the table; then (name, `loss`) of each baseline."""
        grid = ((pair, triplet) for pair in pair_weights for triplet in triplet_weights)
        own = [(pair, triplet) for pair, triplet in grid if pair in self.pair and triplet in self.triplet]
        kept = [names for names in own if not self.only or "/".join(names) in self.only]
        return (*kept, *((name, LOSS) for name in self.baselines))

    @property
    def configs(self) -> tuple[ObjectiveConfig, ...]:
        """The objectives, each with the parameters that it accepts, in the order of the table."""
        found = []
        for pair, triplet in self.names:
            accepted = accepted_parameters(pair, triplet, self.variant)
            own = {name: value for name, value in self.params.items() if name in accepted}
            found.append(ObjectiveConfig(pair=pair, triplet=triplet, variant=self.variant, params=own))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionConfig(Settings):
    """How cells share a device and compute. Affects speed and memory; a result only by rounding."""

    sharing: Sharing = "auto"
    """What the cells of a unit share; docs/performance.md."""
    cells_per_unit: Annotated[int | Literal["auto"], Range(at_least=0)] = "auto"
    """Largest number of cells in a unit; 0 means no limit. `auto`: with which each stage ends earliest on the devices
    at hand. A number above 1 needs another sharing than `none`."""
    compile: Compile = "auto"
    """`torch.compile` of image backbones and text encoders: `on`, `off`, or `auto`: on a GPU from 1,000 steps on."""
    deterministic: bool = False
    """On a GPU, only kernels that give the same bits in every run."""
    ray_timeout: Annotated[int, Range(at_least=10)] = 600
    """Seconds that Ray's processes on this machine may take to start and to answer, which a busy machine makes slow."""

    def problems(self) -> Iterator[str]:
        limit = self.cells_per_unit
        if isinstance(limit, int) and limit > 1 and self.sharing == "none":
            yield f"cells_per_unit={limit} needs another sharing than none, with which a unit is one cell"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceConfig(Settings):
    """What one unit may use, and how often a failing cell is tried."""

    cpus: Annotated[int, Range(at_least=1)] = 1
    """CPU cores of one unit."""
    gpus: Annotated[float, Range(at_least=0, at_most=1)] = 0.0
    """GPUs of one unit, which trains on one at most: 0 is the CPU, and with a fraction units share a GPU."""
    accelerator: str = ""
    """Kind of GPU that a unit needs, as Ray names it (`A100`, `H100`); empty takes any. Needs `gpus`."""
    loader_workers: Annotated[int, Range(at_least=0)] = 0
    """Extra processes that decode each unit's images; 0 decodes in the unit's process. Results do not depend on it."""
    max_attempts: Annotated[int, Range(at_least=1)] = 3
    """Attempts in all before a failing cell is given up; lost nodes and pre-emptions do not count."""
    watchdog: Annotated[int, Range(at_least=0)] = 1800
    """Seconds without a step after which a unit counts as hung; 0 disables the check."""

    def problems(self) -> Iterator[str]:
        if self.accelerator and not self.gpus:
            yield f"accelerator: {self.accelerator} needs gpus above 0, such as gpus: 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingConfig(Settings):
    """Where people follow trainings. Part of no id. In YAML, a text in its place is the `uri`."""

    uri: checks.TrackingPlace = "sqlite:///{store}/mlflow.db"
    """MLflow tracking URI; `{store}` is replaced by the store's folder, or for a bucket by one of this machine.
    `tracking: URI` is short for it."""
    also: Annotated[tuple[BuiltIn, ...], AfterValidator(distinct)] = ()
    """`wandb`, `tensorboard`: told what MLflow is told (docs/plugins.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlaces(Settings):
    """Where a sweep's results are: all that a command needs which only reads them."""

    name: checks.Name
    """Name of the sweep and of its MLflow experiment: a-z, 0-9, `_`, `.`, `-`; by default its file's name."""
    store: checks.StorePlace = "./goal-sweep-store"
    """Results folder, by default below the current one, on a local disk or network, or `s3://bucket/prefix`."""
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepData(Settings):
    """The data of a sweep: all that a command needs which evaluates on them."""

    data: Annotated[DataConfig, Field(discriminator="format")]
    """The dataset, of the kind that its `format` names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepConfig(SweepPlaces):
    """One sweep file, complete and checked."""

    FILE_KEYS: ClassVar = {
        "extends": {"type": "string", "description": "Another sweep, by file or shipped name, that this one changes."}
    }
    """Further keys of a sweep file, as JSON schema, which are taken out before it is checked."""

    plugins: tuple[Plugin, ...] = ()
    """Python files of one's own, relative to the sweep file, or modules, which register what the sweep names."""
    data: Annotated[DataConfig, Field(discriminator="format")]
    """The dataset, of the kind that its `format` names."""
    model: SweepModel
    objectives: SweepObjectives = field(default_factory=SweepObjectives)
    seeds: checks.Seeds
    """Seeds of the cells: distinct and not negative."""
    stages: checks.Stages
    """`frozen`, `finetune`, or both in this order."""
    precision: Precision = "fp32"
    """Arithmetic of the training steps. In YAML, a list of values here makes an axis."""
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    resources: ResourceConfig = field(default_factory=ResourceConfig)
    tune: TuneConfig | None = None
    """How each objective's constants are searched first; None trains with the sweep's own alone."""
    axes: SkipJsonSchema[tuple[Axis, ...]] = ()
    """The settings with several values. No key of a sweep file, where they stand as lists in their places."""

    def __post_init__(self) -> None:
        """Check each setting, then all that go together."""
        Settings.__post_init__(self)
        default: Any = {item.name: item.default for item in fields(self.data)}.get("min_word_count")
        given = self.data.min_word_count
        if default and given != default and brings_tokenizer(self.model.models[0]):
            if given > default:  # a smaller one, as of `own_images`, wishes for rare words, which the tokenizer reads
                warn(f"data.min_word_count {given} has no effect: the model brings a tokenizer of its own words")
            object.__setattr__(self, "data", replace(self.data, min_word_count=default))  # so that it is no other model
        check_axes(self)
        check_tune(self)

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Every combination of the values of the axes; one without axes."""
        return tuple(settings_at(self, values) for values in combinations(self.axes))

    def problems(self) -> Iterator[str]:
        if self.model.framework not in frameworks:
            yield f"model.framework: {UnknownNameError('framework', self.model.framework, frameworks)}"
            return
        framework = frameworks[self.model.framework].function()
        for model in self.model.models:
            yield from (f"model: {text}" for text in failures(framework.check, model, self.data))
        for objective in self.objectives.configs if self.objectives.names else ():
            yield from (f"objectives.params: {text}" for text in failures(framework.objective, objective))
        for item in fields(ModelParts):
            if item.name not in framework.uses and item.default_factory is not MISSING:
                if getattr(self.model, item.name) != item.default_factory():
                    yield f"model.{item.name}: framework {self.model.framework} has no such part; leave it out"
        if name := getattr(self.data, "importer", ""):
            yield from (f"data.importer: {text}" for text in failures(importers.__getitem__, name))
        precisions = (self.precision, *(one for axis in self.axes if axis.key == PRECISION for one in axis.values))
        if not self.resources.gpus and "tf32" in precisions:
            yield "precision: tf32 is an arithmetic of GPUs, but resources.gpus is 0; take fp32"
        for index, stage in enumerate(self.stages):
            yield from (f"stages.{index}{text}" for text in self._stage_problems(stage))

    def _stage_problems(self, stage: StageConfig) -> Iterator[str]:
        """What a stage asks for and this model or this data cannot give, each after its key in the stage."""
        data, framework = self.data, self.model.framework
        if data.format == "precomp" and stage.trains_backbone:
            yield f": {stage.name} trains the image backbone, but data.format precomp has only its features"
        if stage.micro_batch and stage.needs_whole_batches(data.format):
            yield f".micro_batch: {stage.micro_batch} cannot split batches that are normalised by their own statistics"
        if stage.bn_mode == "legacy_quirk" and framework != "vsepp":
            yield f".bn_mode: legacy_quirk needs framework vsepp, got {framework}"
        elif stage.bn_mode == "legacy_quirk" and data.format == "precomp":
            yield ".bn_mode: legacy_quirk needs a backbone, but data.format precomp has only features"
