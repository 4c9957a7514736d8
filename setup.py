"""What pyproject.toml cannot say: the description that PyPI shows is README.md with absolute links.

A relative link is right in a checkout and leads nowhere on PyPI. The links name the tag of this version, so that the
page of an old release keeps showing the pictures and pages of its time.
"""

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
REPOSITORY = "purexport/purexport"
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<target>[^)\s]+)\)")


def absolute(text: str, version: str) -> str:
    """The Markdown `text` with links to files of the repository, and pictures in it, at the tag of `version`."""
    pages = f"https://github.com/{REPOSITORY}/blob/v{version}/"
    pictures = f"https://raw.githubusercontent.com/{REPOSITORY}/v{version}/"

    def rewritten(link: re.Match[str]) -> str:
        base = pictures if link["image"] else pages
        return f"{link['image']}[{link['text']}]({base}{link['target']})"

    return LINK.sub(rewritten, text)


def version() -> str:
    """Read, not imported: a build needs no numpy."""
    found = re.search(r'^VERSION = "(.+)"$', (ROOT / "proto_schema" / "version.py").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError("proto_schema/version.py has no line VERSION = ...")
    return found[1]


readme = (ROOT / "README.md").read_text(encoding="utf-8")
setup(long_description=absolute(readme, version()), long_description_content_type="text/markdown")
