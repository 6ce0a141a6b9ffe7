"""What a launch still has to do, by the store as it was read and by what has ended since, and how it is packed."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from goal_sweep.goal_core.models.sizes import DataSize
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.launch.signals import STOPPED
from goal_sweep.runners.launch.tuning import describe
from goal_sweep.runners.planning.devices import Devices
from goal_sweep.runners.planning.packing import Speeds, in_store, pack_for
from goal_sweep.runners.store import TrainingStatus, status_of
from goal_sweep.sweeps import Training, Unit, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The options of one launch."""

    address: str | None = None
    """Address of a Ray cluster; None trains on this machine."""
    failed: Literal["keep", "retry", "only"] = "keep"
    """Failed trainings: keep them failed, also retry them, or retry nothing else."""
    fail_fast: bool = False


class Remaining:
    """Which trainings a launch will still try, and which of them can start."""

    def __init__(self, sweep: OpenedSweep, options: LaunchOptions) -> None:
        self.sweep, self.options = sweep, options
        self.progress = sweep.progress()
        self.left: set[Training] = set()
        """Trainings that this launch will not retry; the next may."""
        self.under_way: set[Training] = set()
        """Those whose units wait for a start, or run."""
        self._not_asked: set[Training] = set()
        self._forgiven: dict[Training, int] = {}
        """Counted failures of earlier launches, which do not count for this one."""
        for training in sweep.trainings if options.failed != "keep" else ():
            status = self.progress[training]
            if status.state == "failed":
                self._forgiven[training] = status.failures
                self.progress.waiting(training)
            elif options.failed == "only" and status.state != "done":
                self._not_asked.add(training)

    def read(self, trainings: Iterable[Training]) -> dict[Training, TrainingStatus]:
        """Read the status of trainings from the store, with what this launch forgives."""
        allowed, store = self.sweep.config.resources.max_attempts, self.sweep.store
        return {one: status_of(store.folder(one), allowed + self._forgiven.get(one, 0)) for one in trainings}

    def startable(self, *, ahead: bool = False) -> list[Training]:
        """The trainings that can start and are not under way; `ahead` also those whose stage before is not done."""
        return [one for one in self.sweep.trainings if one not in self.under_way and self._can_start(one, ahead=ahead)]

    def _can_start(self, training: Training, *, ahead: bool) -> bool:
        if training.number is None and self.sweep.is_searching:
            return False  # what reports waits for the choice
        if training in self._not_asked or training in self.left or self.progress[training].state != "waiting":
            return False
        earlier = "done" if training.before is None else self.progress[training.before].state
        return earlier == "done" or (ahead and earlier != "failed" and training.before not in self.left)

    @property
    def held(self) -> list[Training]:
        """The trainings that another launch trains."""
        return [one for one in self._asked() if one not in self.under_way and self.progress[one].state == "running"]

    def search_on(self) -> bool:
        """Ask the search for what follows from the scores by now. Returns whether there is anything new."""
        if not self.sweep.studies or self.options.failed == "only":
            return False
        later = self.sweep.searched()
        if later.studies == self.sweep.studies:
            return False
        self.sweep = later
        known = set(self.progress.trainings)
        self.progress.adopt(later.trainings, self.read(one for one in later.trainings if one not in known))
        self.progress.phase = describe(later)
        return True

    def _asked(self) -> Sequence[Training]:
        """The trainings that the launch is for: while the sweep searches, its candidates."""
        searching = self.sweep.is_searching
        wanted = (one for one in self.sweep.trainings if not searching or one.number is not None)
        return [one for one in wanted if one not in self._not_asked]

    @property
    def exit_status(self) -> int:
        """Exit status of the launch if no signal has stopped it: 0 done, 1 some failed, 75 some are left."""
        counts = self.progress.counts(self._asked())
        if counts["failed"]:
            return 1
        return STOPPED if counts["waiting"] or counts["running"] else 0


class Packer:
    """Packs what can start into units."""

    def __init__(self, remaining: Remaining, devices: Devices, note: Callable[[str], None]) -> None:
        self._remaining, self._devices, self._note = remaining, devices, note
        self._limits: Mapping[str, int] = {}
        self._seconds: Callable[[Unit], float | None] = lambda unit: None
        self._made: set[str] = set()
        """The cached features that units of this launch compute."""

    def look_ahead(self) -> None:
        """Choose how many cells a unit gets, for all that can be trained now or after it, and say so."""
        remaining, sweep = self._remaining, self._remaining.sweep
        if not (todo := remaining.startable(ahead=True)):
            return
        size, known = DataSize.of_dataset(sweep.dataset), in_store(sweep.store, sweep.statuses())
        packing = pack_for(todo, self._devices, Speeds(sweep.config, size, self._devices.gpu, known))
        self._limits, self._seconds = packing.limits, packing.seconds
        for line in (*packing.lines, *self._devices.notes):
            self._note(line)
        units = Counter(unit.stage.name for unit in packing.units)
        cells = Counter(training.stage.name for training in todo)
        begun = Counter(training.stage.name for training in todo if remaining.progress.begun(training))
        for stage in sweep.by_stage:
            if stage and cells[name := stage[0].stage.name]:
                saved = f", {begun[name]} from a saved epoch" if begun[name] else ""
                self._note(f"{name}: {cells[name]} of {len(stage)} cells to train in {units[name]} units{saved}")

    def units(self, chosen: Sequence[Training]) -> list[tuple[tuple[float, ...], Unit]]:
        """Units of trainings that can start now, each with its rank: those of a lower rank start first.

        Earlier stages come first, and of these the longest units. Before all others of its stage comes one that
        computes cached features, so that the others find them there.
        """
        config = self._remaining.sweep.config
        stages = {stage.name: float(number) for number, stage in enumerate(config.stages)}
        packed = pack(chosen, config.execution, self._limits)
        lengths = {unit: self._seconds(unit) or len(unit.trainings) for unit in packed}
        ranked: list[tuple[tuple[float, ...], Unit]] = []
        for unit in sorted(lengths, key=lambda unit: -lengths[unit]):
            is_first = bool(unit.features) and unit.features not in self._made
            self._made.add(unit.features)
            ranked.append(((stages[unit.stage.name], 0.0 if is_first else 1.0, -lengths[unit]), unit))
        return ranked
