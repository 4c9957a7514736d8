"""Real processes killed by a signal while they save, and real disks that are full: what is then in the folder.

After each kill the next save, with the same options or others, leaves nothing of ours; files of others stay as they
were.

    pytest -m sweep -n 0 tests/proto_schema/test_killed.py

kills at 200 random points for each kind of save, and fills 50 disks of growing size for each. By default a few of one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.usefixtures("signals_end")

# A small process that forks writers: each saves OLD or NEW, and is killed after a while that is drawn at random.
KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
import proto_schema as ps
from tests.proto_schema.decoys import Watched, lay_out

folder, points, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
NEXT = [options, *json.loads(sys.argv[4])]
lay_out(Path(folder), without=("m.onnx.data.partial",))  # a save with resume refuses that one
others = Watched(Path(folder))
path = os.path.join(folder, "m.onnx")
chance = random.Random(1)
SIZES = [1_500_000, 70_000, 900, 2_000_000]

def model(value):
    tensors = [ps.numpy_helper.from_array(np.full(size, value, np.uint8), f"w{i}") for i, size in enumerate(SIZES)]
    return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors))

def found():
    arrays = map(ps.numpy_helper.to_array, ps.load(path).graph.initializer)
    return {int(value) for array in arrays for value in np.unique(array)}

def save(value):
    ps.save(model(value), path, **options)

ps.save(model(0), path, **options)
begin = time.perf_counter()
for _ in range(5):
    save(0)
whole = (time.perf_counter() - begin) / 5
old, results = 0, {"old": 0, "new": 0, "killed": 0, "ended": 0, "wrong": [], "left": [], "kept": [], "touched": []}
for number in range(points):
    new = old % 250 + 1
    started, ready = os.pipe()
    child = os.fork()
    if child == 0:
        made = model(new)
        os.write(ready, b"x")
        try:
            ps.save(made, path, **options)
        finally:
            os._exit(0)
    os.read(started, 1)
    os.close(started)
    os.close(ready)
    time.sleep(chance.uniform(0, whole * 1.2))
    os.kill(child, chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP]))
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    results["killed" if killed else "ended"] += 1
    whole *= 1.05 if killed else 0.95  # so that about half of them come in time, whatever else the machine does
    values = found()
    if values not in ({old}, {new}):
        results["wrong"].append([number, old, new, sorted(values)])
    results["new" if values == {new} else "old"] += 1
    old = max(values)
    results["left"] += others.left("m.onnx")
    if number % 3:
        ps.save(model(old), path, **NEXT[number % len(NEXT)])
        results["kept"] += others.left("m.onnx")
        save(old)
    results["touched"] += others.changes()
save(251)
results["last"] = sorted(found())
results["kept"] += others.left("m.onnx")
print(json.dumps(results))
"""

# Saves NEW over OLD on what disk there is; says how it went.
FILLER = """
import json, os, resource, signal, sys
import numpy as np
import proto_schema as ps

folder, limit, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
path = os.path.join(folder, "m.onnx")

def model(value):
    arrays = [np.full(size, value, np.uint8) for size in (700_000, 90_000, 200_000)]
    tensors = [ps.numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(arrays)]
    return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors))

def found():
    arrays = map(ps.numpy_helper.to_array, ps.load(path).graph.initializer)
    return sorted({int(value) for array in arrays for value in np.unique(array)})

if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
results = []
for size in json.loads(sys.argv[4]):
    if limit:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        ps.save(model(1), path, external_data=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    else:
        os.system(f"mount -t tmpfs -o size={size} tmpfs {folder}")
        try:
            ps.save(model(1), path, external_data=True)
        except OSError:
            pass
    had = os.path.exists(path)
    before = sorted(os.listdir(folder))
    error = ""
    try:
        ps.save(model(2), path, **options)
    except OSError as failure:
        error = str(failure)
    results.append([size, had, error, found() if os.path.exists(path) else None, before, sorted(os.listdir(folder))])
    if not limit:
        os.system(f"umount {folder}")
print(json.dumps(results))
"""

KINDS: dict[str, dict[str, object]] = {
    "inline": {"external_data": False},
    "external": {"external_data": True},
    "shards": {"external_data": True, "shard_size": 1_600_000},
    "resume": {"external_data": True, "resume": True},
}
LEFT = re.compile(r"\.?m\.onnx.*|\.proto_schema-lock")


def rows(few: int, many: int) -> list[Any]:
    """A few of one kind by default, many of all in the sweep."""
    return [("external", few), *(pytest.param(kind, many, marks=pytest.mark.sweep) for kind in KINDS)]


def python(code: str, *argv: object) -> str:
    command = [sys.executable, "-c", code, *(arg if isinstance(arg, str) else json.dumps(arg) for arg in argv)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("kind", "points"), rows(12, 200))
def test_killed_at_random_points(kind: str, points: int, tmp_path: Path) -> None:
    """The old model or the new one, whole; then one may see what the kill left, until the next save."""
    found = json.loads(python(KILLER, str(tmp_path), points, KINDS[kind], list(KINDS.values())))
    assert found["wrong"] == [] and found["last"] == [251]
    assert found["old"] + found["new"] == points
    assert all(LEFT.fullmatch(name) for name in found["left"]), found["left"]
    assert found["kept"] == found["touched"] == []
    if points == 200:
        assert min(found["old"], found["killed"]) > 40, found  # they did come while it was writing


@pytest.fixture
def mountable(tmp_path: Path) -> Iterator[Path]:
    """A folder on which a small file system can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run([mount, "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False).returncode
    ):
        pytest.skip("mounting a tmpfs is not allowed here")
    subprocess.run(["umount", folder], check=True)
    yield folder
    while os.path.ismount(folder):
        subprocess.run(["umount", folder], check=True)


def check_full(results: list[list[object]]) -> None:
    for size, had, error, values, before, after in results:
        if error:
            assert values == ([1] if had else None) and before == after, (size, error, values, after)
            assert "cannot save" in str(error) and "m.onnx" in str(error)
        else:
            assert values == [2], size
    failed = [bool(error) for _, _, error, *_ in results]
    assert failed[0] and not failed[-1], "the sizes do not reach from too small to enough"


@pytest.mark.parametrize(("kind", "count"), rows(4, 50))
def test_full_disks(kind: str, count: int, mountable: Path) -> None:
    """From one that holds nothing to one that holds the old and the new model."""
    sizes = [4096 * (1 + 549 * number // (count - 1)) for number in range(count)]
    check_full(json.loads(python(FILLER, str(mountable), 0, KINDS[kind], sizes)))


@pytest.mark.parametrize(("kind", "count"), rows(4, 50))
def test_files_that_may_not_grow(kind: str, count: int, tmp_path: Path) -> None:
    """A limit on the size of files, which every user can set, in place of the disk's."""
    sizes = [1 + 1_100_000 * number // (count - 1) for number in range(count)]
    check_full(json.loads(python(FILLER, str(tmp_path), 1, KINDS[kind], sizes)))
