"""Print what a project and one of its extras require, for a layer of the image that outlives changes to the code."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]


def required(extra: str) -> list[str]:
    """The requirements of an extra, those of the extras that it names in their place."""
    named = {f"{project['name']}[{other}]": other for other in extras}
    return [line for one in extras[extra] for line in (required(named[one]) if one in named else [one])]


print("\n".join([*project["dependencies"], *required(sys.argv[2])]))
