"""Hook of MkDocs: documents outside docs/ become pages, and links hold on the forge and on the site."""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/RESULTS.md": "measured.md",
    "goal_core/data/shipped/emoji_precomp/LICENSES.md": "licences.md",
}
"""Where each document outside docs/ stands on the site."""

COMMANDS = re.compile(r"^```\n(?=(?:\w+=\S+ )*(?:[\w./]*goal-sweep|docker|export|make|openssl|pip)\b)", re.MULTILINE)
"""The opening of a fence without a language that shows commands."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(Path(config.config_file_path).parent / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links, which are relative to the document's place in the repository, to its place on the site.

    Commands are marked as such, because site.css wraps their lines and leaves those of printed tables.
    """
    here = page.file.src_uri
    source = next((source for source, at in PAGES.items() if at == here), f"docs/{here}")

    def moved(link: re.Match[str]) -> str:
        target = normpath(join(dirname(source), link[1]))
        return f"]({relpath(PAGES.get(target, target.removeprefix('docs/')), dirname(here))}"

    return re.sub(r"\]\((?!https?://)([^)#\s]+)", moved, COMMANDS.sub("```bash\n", markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Take the roles of Sphinx, such as `:class:`, from the names in docstrings."""
    return re.sub(r":(?:attr|class|func|meth):(?=<code>)", "", html)
