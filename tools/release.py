"""Build a release and try it as a user would: `python -m tools.release` (minutes), `--dry` for what needs no network.

`--undated` does all of it before the changelog has a date.

1. The version has its section in CHANGELOG.md; for a real release that section is not "(not released)" any more.
2. sdist and wheel are built from the files that are committed, and from nothing else that lies in the folder.
3. The wheel is below 2 MB. The sdist has every committed file. No link that PyPI shows is relative.
4. In an empty environment with the wheel and numpy alone, a model is written, shown and checked.
5. The set-up line and the Python of README.md run in the unpacked sdist.

Nothing is uploaded: the last lines say what is left to do. Each step is a function of its own, and tests call them.
"""

from __future__ import annotations

import argparse
import email
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LARGEST_WHEEL = 2_000_000
"""Bytes.  The sources take 1.5 MB, deflated, which is all that wheels may do: 1.1 MB of it is code."""
UNPACKED = {".gitignore", ".pre-commit-config.yaml"}
"""Committed files that only a checkout needs; so are the folders .ci and .github."""
RELATIVE = re.compile(r"\]\((?!https?://|#)([^)]*)\)|<(?:img|a)\b[^>]*(?:src|href)=[\"'](?!https?://|#)([^\"']*)")

SMALL_MODEL = """
import sys, proto_schema as ps
node = ps.helper.make_node("Relu", ["x"], ["y"])
x, y = (ps.helper.make_tensor_value_info(name, ps.TensorProto.FLOAT, [2]) for name in "xy")
ps.save(ps.helper.make_model(ps.helper.make_graph([node], "g", [x], [y])), "m.onnx")
from purexport.cli.main import main
status = main(["show", "m.onnx"]) or main(["check", "m.onnx"]) or main(["run", "m.onnx"])
assert "torch" not in sys.modules
sys.exit(status)
"""


class ReleaseError(Exception):
    """A step found what must not be released."""


def version(root: Path = ROOT) -> str:
    """The version that the sources name."""
    found = re.search(r'^VERSION = "(.+)"$', (root / "proto_schema" / "version.py").read_text(), re.MULTILINE)
    if found is None:
        raise ReleaseError("proto_schema/version.py has no line VERSION = ...")
    return found[1]


def check_changelog(changelog: str, version: str, *, released: bool) -> None:
    """The newest section of the changelog is that of the version."""
    newest = re.search(r"^## (.+)$", changelog, re.MULTILINE)
    title = newest[1] if newest else "nothing"
    if title.partition(" ")[0] != version:
        raise ReleaseError(f"CHANGELOG.md opens with {title}, proto_schema/version.py says {version}")
    if released and "not released" in title:
        raise ReleaseError(f"CHANGELOG.md says {title}: put the date in place of (not released), and commit it")


def check_wheel(wheel: Path, version: str) -> None:
    """Name, size, and links in what PyPI shows."""
    if wheel.name != f"purexport-{version}-py3-none-any.whl":
        raise ReleaseError(f"{wheel.name} is not the wheel of {version}")
    if wheel.stat().st_size >= LARGEST_WHEEL:
        raise ReleaseError(f"{wheel.name} has {wheel.stat().st_size} bytes, {LARGEST_WHEEL} or more")
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        shown = email.message_from_string(archive.read(name).decode("utf-8")).get_payload()
    relative = relative_links(str(shown))
    if relative:
        raise ReleaseError(f"PyPI would show relative links: {', '.join(relative)}")


def relative_links(text: str) -> list[str]:
    """Targets of links and pictures in Markdown that lead nowhere outside of the repository."""
    return [markdown or html for markdown, html in RELATIVE.findall(text)]


def check_sdist(sdist: Path, committed: set[str]) -> None:
    """Each committed file that is not for a checkout alone."""
    with tarfile.open(sdist) as archive:
        packed = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    wanted = {name for name in committed - UNPACKED if not name.startswith((".ci/", ".github/"))}
    if wanted - packed:
        raise ReleaseError(f"not in the sdist: {', '.join(sorted(wanted - packed))} (MANIFEST.in)")


def committed_files() -> set[str]:
    """The files of the commit that is released."""
    return set(run(["git", "ls-tree", "-r", "--name-only", "HEAD"], ROOT).splitlines())


def build(target: Path, work: Path) -> tuple[Path, Path]:
    """sdist, and the wheel built from it, of the committed files."""
    (work / "source").mkdir()
    run(["git", "archive", "--output", str(work / "source.tar"), "HEAD"], ROOT)
    with tarfile.open(work / "source.tar") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.10.12 and 3.11.4
        archive.extractall(work / "source")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(work / "source")], work)
    return next(target.glob("*.tar.gz")), next(target.glob("*.whl"))


def try_wheel(wheel: Path, work: Path) -> None:
    """The wheel with numpy alone, in an environment of its own."""
    venv.create(work / "empty", with_pip=True)
    python = work / "empty" / "bin" / "python"
    run([str(python), "-m", "pip", "install", "--quiet", str(wheel)], work)
    run([str(python), "-c", SMALL_MODEL], work)


def try_readme(sdist: Path, work: Path) -> None:
    """README's set-up line as it stands, and its Python one block after the other, in the unpacked sdist."""
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.10.12 and 3.11.4
        archive.extractall(work / "unpacked")
    folder = next((work / "unpacked").iterdir())
    readme = (folder / "README.md").read_text()
    line = next(line.strip() for line in readme.splitlines() if line.endswith("&& purexport demo"))
    run(["bash", "-c", line], folder)
    blocks = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    run([str(folder / ".venv" / "bin" / "python"), "-c", "\n".join(blocks)], work)


def run(command: list[str], folder: Path) -> str:
    """What the command prints; its failure is an error with the end of that."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command)[:200]} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="build and look only: no network, no date in the changelog")
    parser.add_argument("--undated", action="store_true", help="the changelog may say (not released): a rehearsal")
    parser.add_argument("--outdir", default="dist", metavar="FOLDER", help="where sdist and wheel go (default: dist)")
    args = parser.parse_args()
    target = Path(args.outdir).absolute()
    if target.exists() and any(target.iterdir()):
        parser.error(f"{target} is not empty: name another folder with --outdir")
    try:
        with tempfile.TemporaryDirectory() as work:
            release(target, Path(work), dry=args.dry, released=not (args.dry or args.undated))
    except ReleaseError as error:
        print(f"not to be released: {error}", file=sys.stderr)
        return 1
    return 0


def release(target: Path, work: Path, *, dry: bool, released: bool) -> None:
    now = version()
    if run(["git", "status", "--porcelain", "--untracked-files=no"], ROOT):
        raise ReleaseError("files are changed and not committed; the release is what is committed")
    check_changelog((ROOT / "CHANGELOG.md").read_text(), now, released=released)
    print(f"CHANGELOG.md and the sources say {now}", flush=True)
    sdist, wheel = build(target, work)
    check_wheel(wheel, now)
    check_sdist(sdist, committed_files())
    for file in (wheel, sdist):
        print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB", flush=True)
    if dry:
        return
    try_wheel(wheel, work)
    print("the wheel works with numpy alone", flush=True)
    try_readme(sdist, work)
    print("README's set-up line and Python run", flush=True)
    if not released:
        print("left to do: the date in CHANGELOG.md, and this once more")
        return
    print(f"left to do: git tag v{now} && git push origin v{now} && twine upload {target}/*")


if __name__ == "__main__":
    sys.exit(main())
