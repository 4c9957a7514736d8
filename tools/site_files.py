"""A hook of mkdocs: the site shows files of the repository that lie outside of docs/ and that pages link to.

A page in docs/ links to `../CONTRIBUTING.md`, as a reader of the repository needs it.
The site has such files too: Markdown as a page, code and text as a page that shows it. Their own links are followed
in turn, back into docs/ as well. A link to a file that is not there is left alone, and mkdocs complains about it.
"""

from __future__ import annotations

import os
import posixpath
import re
from functools import partial
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FOLDER = "repository"
"""Where the site has what lies outside of docs/."""

LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
NAMED = re.compile(r"\[(?:docs/)?(?:[\w-]+/)*[\w-]+\.md\](?=\(([^)#\s:]+))(\()")
"""A link whose text is the name of a file, as `[limits.md](limits.md)`."""
ELSEWHERE = re.compile(r'<(?:script|img|iframe|source|link)[^>]*\s(?:src|href)="?(?:https?:)?//[^>]*>')
"""What a browser loads by itself from another host."""
TITLE = re.compile(r"# (.+)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([\w/.-]+)\.(png|svg)\)")
"""A picture; it has a dark form if there is a file `NAME-dark` beside it."""
LANGUAGES = {".py": "python", ".txt": "text", "": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each file outside of docs/ that a page links to, also over other such files."""
    known = {file.src_uri for file in files}
    waiting = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    while waiting:
        uri, text = waiting.pop()
        for link in (match[2] for match in LINK.finditer(text)):
            target = in_repository(uri, link)
            place = in_site(target)
            if place is None or place in known or not (ROOT / target).exists():
                continue
            known.add(place)
            content = shown(target)
            files.append(File.generated(config, place, content=content))
            waiting.append((place, content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The links of a page as they are in the site: between docs/ and the rest, and with titles for names of files."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # it has no neighbours

    def mended(match: re.Match[str]) -> str:
        place = in_site(in_repository(page.file.src_uri, match[2]))
        if place is None or files.get_file_from_path(place) is None:
            return match[0]
        return match[1] + posixpath.relpath(place, posixpath.dirname(page.file.src_uri)) + match[3]

    def titled(match: re.Match[str]) -> str:
        file = files.get_file_from_path(
            posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), match[1]))
        )
        title = TITLE.match(file.content_string) if file is not None else None
        return match[0] if title is None else f"[{title[1]}]{match[2]}"

    return PICTURE.sub(partial(_both_forms, page), NAMED.sub(titled, LINK.sub(mended, markdown)))


def _both_forms(page: Page, match: re.Match[str]) -> str:
    """The picture for light and the one for dark colors, of which the theme shows one."""
    dark = f"{match[1]}-dark.{match[2]}"
    if not (ROOT / "docs" / posixpath.dirname(page.file.src_uri) / dark).exists():
        return match[0]
    light = f"{match[1]}.{match[2]}"
    return match[0].replace(light, f"{light}#only-light") + "\n" + match[0].replace(light, f"{dark}#only-dark")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> None:
    """Stops the build where a page would load something from elsewhere."""
    found = ELSEWHERE.search(output)
    if found is not None:
        raise PluginError(f"{page.file.src_uri} loads from elsewhere: {found[0]}")


def in_repository(uri: str, link: str) -> str:
    """The path from the root of the repository that a link of a page of the site means."""
    outside = uri.startswith(f"{FOLDER}/")
    source = uri.removeprefix(f"{FOLDER}/").removesuffix(".shown.md") if outside else f"docs/{uri}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def in_site(path: str) -> str | None:
    """Where the site has a file of the repository; None for what it does not have."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    suffix = os.path.splitext(path)[1]
    if path.startswith("..") or (suffix != ".md" and suffix not in LANGUAGES):
        return None
    return f"{FOLDER}/{path}" if suffix == ".md" else f"{FOLDER}/{path}.shown.md"


def shown(path: str) -> str:
    """The text of a page for a file or folder of the repository."""
    if (ROOT / path).is_dir():
        names = sorted(file.name for file in (ROOT / path).iterdir() if file.suffix in LANGUAGES and file.is_file())
        return f"# {path}\n\n" + "".join(f"- [{name}]({path}/{name})\n" for name in names)
    text = (ROOT / path).read_text()
    suffix = os.path.splitext(path)[1]
    return text if suffix == ".md" else f"# {path}\n\n````{LANGUAGES[suffix]}\n{text}\n````\n"
