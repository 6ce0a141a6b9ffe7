"""Build step: a wheel carries the commit and the uncommitted changes of the checkout that it was built from."""

import json
import os
import runpy
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuiltFrom(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own class has an untyped parameter
    """Adds the record that `runners.store.provenance` reads where the code does not run from a checkout."""

    def initialize(self, version: str, build_data: dict[str, dict[str, str]]) -> None:
        """Write the record into the wheel. An editable install needs none: it runs from the checkout."""
        if version == "editable":
            return
        source = Path(self.root, "goal_sweep/runners/store/provenance.py").resolve()
        provenance = runpy.run_path(str(source))  # not imported: the package around it needs torch
        folders = [str(Path(self.root, package)) for package in provenance["SOURCE"]]
        commit, diff = provenance["checkout_state"](source, folders)
        commit = commit or os.environ.get("GOAL_GIT_COMMIT", "")
        if not commit:
            return
        name = provenance["BUILT_FROM"]
        self._folder = tempfile.TemporaryDirectory()
        record = Path(self._folder.name, name)
        record.write_text(json.dumps({"git_commit": commit, "git_diff": diff}), encoding="utf-8")
        build_data["force_include"][str(record)] = f"goal_sweep/runners/store/{name}"
