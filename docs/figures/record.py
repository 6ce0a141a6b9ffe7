"""Records a launch of the quickstart, in a folder of its own, as launch.svg: python docs/figures/record.py.

Needs asciinema and, of npm, svg-term-cli.
"""

import json
import subprocess
import tempfile
from pathlib import Path

FRAMES, SHOWN_S, LAST_S = 20, 0.6, 6.0
"""Pictures of the launch, and seconds for which each and the last are shown."""


def thinned(lines: list[str]) -> list[str]:
    """A recording, in asciicast's second version, with few frames, each shown equally long."""
    header, events = json.loads(lines[0]), [json.loads(line) for line in lines[1:]]
    length, frames = events[-1][0] + 1e-6, [""] * FRAMES
    for seconds, _, text in events:
        frames[int(seconds / length * FRAMES)] += text
    shown = [[number * SHOWN_S, "o", text] for number, text in enumerate(frames)]
    return [json.dumps(line) for line in (header, *shown, [FRAMES * SHOWN_S + LAST_S, "o", ""])]


with tempfile.TemporaryDirectory() as folder:
    cast = Path(folder, "launch.cast")
    size = ["--cols", "80", "--rows", "30"]
    command = ["asciinema", "rec", "--quiet", *size, "--command", "goal-sweep launch quickstart.yaml", str(cast)]
    subprocess.run(command, cwd=folder, check=True)
    cast.write_text("\n".join(thinned(cast.read_text().replace(f"{folder}/", "").splitlines())))
    picture = Path(__file__).with_name("launch.svg")
    subprocess.run(["svg-term", "--in", str(cast), "--out", str(picture), "--window", "--no-cursor"], check=True)
