"""The wheel, its metadata, and that README, CI and the pins say the same."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "proto_schema", "purexport")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources, so that nothing of an earlier build gets in."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(target.iterdir())


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


@pytest.mark.full
def test_wheel_is_pure_python(wheel: Path) -> None:
    assert re.fullmatch(r"purexport-\d+\.\d+\.\d+-py3-none-any\.whl", wheel.name)


def test_wheel_holds_every_file_of_both_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    listed = subprocess.run(["git", "ls-files", *SOURCES[4:]], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: there is no list of the files that belong to the packages")
    tracked = {name for name in listed.stdout.split() if (ROOT / name).exists()}
    assert {"proto_schema/py.typed", "purexport/py.typed"} <= tracked
    assert tracked <= packed, f"not in the wheel: {sorted(tracked - packed)}"
    assert {name.partition("/")[0] for name in packed} == {"proto_schema", "purexport"}


def test_links_of_the_description_lead_somewhere_on_its_page(wheel: Path) -> None:
    """The description is README.md, in which links are relative."""
    text = str(metadata(wheel).get_payload())
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 20 and "docs/images/page.png)" in text
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_numpy_is_the_only_dependency(wheel: Path) -> None:
    required = metadata(wheel).get_all("Requires-Dist") or []
    assert [entry for entry in required if "extra ==" not in entry] == ["numpy>=1.24"]
    assert set(metadata(wheel).get_all("Provides-Extra") or []) >= {"torch", "cli", "test", "bench"}


def test_version_is_one_fact(wheel: Path) -> None:
    import purexport

    assert metadata(wheel)["Version"] == purexport.__version__


@pytest.mark.full
def test_the_wheel_alone_works(wheel: Path, tmp_path: Path) -> None:
    """Unpacked somewhere, without this checkout: `proto_schema` writes and reads a model, `purexport` shows it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import sys, proto_schema as ps\n"
        "node = ps.helper.make_node('Relu', ['x'], ['y'])\n"
        "x, y = (ps.helper.make_tensor_value_info(name, ps.TensorProto.FLOAT, [2]) for name in 'xy')\n"
        "ps.save(ps.helper.make_model(ps.helper.make_graph([node], 'g', [x], [y])), 'm.onnx')\n"
        "from purexport.cli.main import main\n"
        "status = main(['show', 'm.onnx'])\n"
        "assert 'torch' not in sys.modules\n"
        "sys.exit(status)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Relu" in done.stdout


def test_ci_runs_the_test_command_of_the_readme() -> None:
    lines = [line.strip() for line in (ROOT / "README.md").read_text().splitlines()]
    tests = [line for line in lines if line.endswith("&& pytest")]
    demos = [line for line in lines if line.endswith("&& purexport demo")]
    assert len(tests) == len(demos) == 1
    assert all(line.startswith("python3 -m venv .venv && ") for line in tests + demos)
    assert "grep -m 1 '&& pytest$' README.md" in (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("name", ["torch==2.13.0", "torchvision==0.28.0", "onnx==1.23.2", "onnxruntime==1.31.1"])
def test_tested_versions_are_pinned(name: str) -> None:
    pins = [line.partition(";")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()]
    assert name in pins


def test_pages_install_as_the_constant_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from purexport.errors import requirements
    from tools.install_lines import pages, written

    texts = {page.name: page.read_text() for page in pages()}
    assert [name for name, text in texts.items() if written(text) != text] == [], (
        "python -m tools.install_lines --write"
    )
    monkeypatch.setattr(requirements, "PUREXPORT", "purexport")  # as after the name is published
    changed = [name for name, text in texts.items() if written(text) != text]
    assert {"README.md", "index.md", "minimal-environment.md"} <= set(changed)


def test_lowest_versions_are_those_of_the_extras(wheel: Path) -> None:
    from purexport.errors.requirements import VERSIONS

    required = {entry.partition(";")[0].strip() for entry in metadata(wheel).get_all("Requires-Dist") or []}
    assert set(VERSIONS.values()) <= required


def test_versions_are_the_same_everywhere(wheel: Path) -> None:
    """The Pythons of the classifiers are those that CI runs and README names; the citation has the version."""
    about = metadata(wheel)
    pythons = [found[1] for text in about.get_all("Classifier") or [] if (found := re.search(r":: (3\.\d+)$", text))]
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert re.findall(r'python: "(3\.\d+)"', workflow) == pythons
    assert f"python-{pythons[0]}%20to%20{pythons[-1]}-blue" in (ROOT / "README.md").read_text()
    assert f"\nversion: {about['Version']}\n" in (ROOT / "CITATION.cff").read_text()
