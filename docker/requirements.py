"""Print what a project and one of its extras require, for a layer of the image that outlives changes to the code."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
print("\n".join([*project["dependencies"], *project["optional-dependencies"][sys.argv[2]]]))
