"""Processes of a gloo group write one model together: the same files as one process writes, or none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import proto_schema as ps
import purexport
from proto_schema.numpy_helper import to_array
from purexport.distributed.parts import Part
from purexport.weights import open_weights
from purexport.weights.boxes import Box, assembled, run_starts, why_incomplete
from tests.distributed import worker
from tests.proto_schema.decoys import used_by

pytestmark = pytest.mark.usefixtures("signals_end")

# name of the scenario, options that one process would save with
GOOD: list[tuple[str, dict[str, Any]]] = [
    ("dtensors", {}),
    ("dtensors_by_hand", {"location": "w.bin"}),
    ("in_files_of_a_size", {"shard_size": 100_000, "alignment": 64}),
    ("parts", {}),
    ("names_dealt_out", {}),
    ("in_a_group", {}),
    ("over_another_model", {}),
    ("fsdp", {}),
]
# ... and what the first two processes say
BAD = [
    ("a_partial_sum", "nothing was written, because of\nprocess 1", "'rows' cannot be taken: its placement"),
    ("a_missing_part", "elements are held", "elements are held"),
    ("an_overlap", "parts that overlap", "parts that overlap"),
    ("a_disagreement", "disagree on what it is: int32", "disagree on what it is: int32"),
    ("a_name_that_no_one_holds", "WeightsError: the processes do not hold 1 tensor", "because of process 0"),
    ("another_size", "1000 bytes in the processes, and 50001", "because of process 0"),
    ("a_list", "give a tensor, a DTensor", "give a tensor, a DTensor"),
    ("no_program", "ValueError: this model cannot", "because of process 0: ValueError: this model cannot"),
    ("no_model", "give an ONNXProgram", "because of process 0"),
    ("no_folder", "absent does not exist", "because of process 0"),
    ("full_disk_here", "No space left", "process 0 of"),
    ("full_disk_there", "process 1 of", "No space left"),
    ("no_sync_there", "process 1 of", "No space left"),
    ("no_space_to_reserve", "cannot save: No space left", "because of process 0"),
    ("no_commit", "cannot save: No space left", "because of process 0"),
    ("a_single_process", "purexport.distributed.save", "purexport.distributed.save"),
]


Results = list["dict[str, str] | None"]


def together(folder: Path, worlds: dict[int, list[str]]) -> dict[int, Results]:
    """What the scenarios gave in each process of worlds of these sizes; None for a process that is gone."""
    wanted = [f"{size}:{','.join(names)}" for size, names in worlds.items()]
    command = [sys.executable, "-m", "tests.distributed.worker", str(folder), *wanted]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return {size: [_read(folder / f"{size}-{rank}.json") for rank in range(size)] for size in worlds}


def _read(path: Path) -> dict[str, str] | None:
    return json.loads(path.read_text()) if path.exists() else None


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def alone(name: str, options: dict[str, Any], folder: Path) -> dict[str, bytes]:
    """What one process writes."""
    folder.mkdir()
    if name.startswith("fsdp"):
        model = worker.net()
        purexport.export(model, (torch.zeros(2, 150),), folder / "net.onnx", capture="export", external_data=True)
    else:
        ps.save(worker.whole_model(), folder / "m.onnx", external_data=True, **options)
    return files(folder)


CHECKPOINTS = [(2, "checkpoint_of_fsdp"), (3, "checkpoint_of_fsdp"), (4, "checkpoint_of_a_grid")]


@pytest.mark.full
def test_checkpoints_of_groups(tmp_path: Path) -> None:
    """What FSDP, also over tensor parallelism, writes by torch.distributed.checkpoint gives the file of one process."""
    found = together(tmp_path, {world: [name] for world, name in CHECKPOINTS})
    model, args = worker.net(), (torch.zeros(2, 150),)
    (tmp_path / "alone").mkdir()
    purexport.export(model, args, tmp_path / "alone" / "n.onnx", weights=dict(model.state_dict()), external_data=True)
    for world, name in CHECKPOINTS:
        assert [result and result[name] for result in found[world]] == [""] * world
        folder = tmp_path / f"{world}-{name}" / "c"
        assert len(list(folder.glob("*.distcp"))) == world
        assert set(open_weights(folder)) == set(model.state_dict())
        made = tmp_path / f"{world} made"
        made.mkdir()
        with torch.device("meta"):
            hollow = worker.Net().eval()
        purexport.export(hollow, args, made / "n.onnx", weights=folder, external_data=True)
        assert files(made) == files(tmp_path / "alone")


# (size of a world; by size, others in which a process is killed)
WORLDS = [
    pytest.param(3, {2: "killed_second", 1: "terminated_first"}, marks=pytest.mark.full),
    pytest.param(2, {3: "killed_first", 1: "hung_up_first"}, marks=pytest.mark.sweep),
    pytest.param(4, {2: "terminated_first", 3: "killed_first"}, marks=pytest.mark.sweep),
]


@pytest.mark.parametrize(("world", "others"), WORLDS)
def test_all_write_what_one_would(world: int, others: dict[int, str], tmp_path: Path) -> None:
    good = [*GOOD, ("fsdp_over_tensor_parallel", {})] if world == 4 else GOOD
    names = [name for name, *_ in [*good, *BAD]]
    found = together(tmp_path, {world: [*names, "groups_at_once"], **{size: [name] for size, name in others.items()}})
    wrong = []
    for name, options in good:
        said = [result and result[name] for result in found[world]]
        if any(said):
            wrong.append(f"{name}: {said}")
        elif files(tmp_path / f"{world}-{name}") != alone(name, options, tmp_path / f"{name} alone"):
            wrong.append(f"{name}: other bytes than those of one process")
    for name, *parts in BAD:
        for rank, part in enumerate(parts):
            result = found[world][rank]
            if result is None or part not in result[name]:
                wrong.append(f"{name}, process {rank}: {result and result[name]!r} has no {part!r}")
        if left := list(files(tmp_path / f"{world}-{name}")):
            wrong.append(f"{name}: {left} is left behind")
    assert not wrong, "\n".join(wrong)
    check_at_once(found[world], tmp_path / f"{world}-groups_at_once")
    for size, name in others.items():
        check_killed(name, found[size], tmp_path / f"{size}-{name}")


def check_at_once(results: Results, folder: Path) -> None:
    """One of the models, whole, and nothing else."""
    assert [result and result["groups_at_once"] for result in results] == ["" for _ in results]
    graph = ps.load(folder / "m.onnx").graph
    assert graph is not None
    values = {int(value) for tensor in graph.initializer for value in np.unique(to_array(tensor).astype(np.float32))}
    assert values in [{rank} if rank < 2 else {rank, 1} for rank in range(len(results))]  # a mask says 0 or 1
    assert set(files(folder)) == used_by(folder / "m.onnx")


def check_killed(name: str, results: Results, folder: Path) -> None:
    """The others do not wait. Only the first process can clean up: where it is killed, the next save does."""
    gone = int(name.endswith("_second"))
    left = list(files(folder))
    for rank, result in enumerate(results):
        assert result is None if rank == gone else result is not None and result[name]
    assert all(item.startswith(".") for item in left) if gone == 0 else not left
    ps.save(worker.of_rank(1), folder / "m.onnx", external_data=True)
    assert set(files(folder)) == used_by(folder / "m.onnx")


def test_without_a_group() -> None:
    with pytest.raises(ValueError, match="init_process_group"):
        purexport.distributed.save(worker.by_hand(), "m.onnx", {})


# ---- boxes

SHAPE = (4, 3, 5)
# box, bytes of a run, number of runs: elements of two bytes
RUNS = [
    (Box((0, 0, 0), (4, 3, 5)), 120, 1),
    (Box((1, 0, 0), (2, 3, 5)), 60, 1),
    (Box((1, 1, 0), (2, 2, 5)), 20, 2),
    (Box((1, 0, 2), (2, 3, 2)), 4, 6),
    (Box((3, 2, 4), (1, 1, 1)), 2, 1),
    (Box((0, 0, 1), (4, 3, 1)), 2, 12),
    (Box((0, 0, 0), (0, 3, 5)), 0, 1),
]


@pytest.mark.parametrize(("box", "run", "count"), RUNS)
def test_runs(box: Box, run: int, count: int) -> None:
    whole = torch.arange(60, dtype=torch.int16).reshape(SHAPE)
    part = whole[tuple(slice(at, at + size) for at, size in zip(box.offsets, box.sizes, strict=True))]
    size, starts = run_starts(SHAPE, box, 2)
    found = list(starts)
    assert (size, len(found)) == (run, count)
    data, memory = part.contiguous().numpy().tobytes(), whole.numpy().tobytes()
    assert b"".join(memory[start : start + run] for start in found) == data
    if part.numel():
        made = assembled(SHAPE, 2, [(box, data)])
        assert [made[start : start + run] for start in found] == [memory[start : start + run] for start in found]


COVERS = [
    ([Box((0, 0), (2, 3))], ""),
    ([Box((0, 0), (2, 1)), Box((0, 1), (2, 2))], ""),
    ([Box((0, 0), (2, 1)), Box((0, 1), (1, 2)), Box((1, 1), (1, 2)), Box((2, 0), (0, 3))], ""),
    ([], "only 0 of its 6"),
    ([Box((0, 0), (2, 1)), Box((0, 2), (2, 1))], "only 4 of its 6"),
    ([Box((0, 0), (2, 2)), Box((0, 1), (2, 2))], "overlap"),
    ([Box((0, 0), (2, 2)), Box((0, 0), (1, 2))], "overlap"),
]


@pytest.mark.parametrize(("boxes", "reason"), COVERS)
def test_covering(boxes: list[Box], reason: str) -> None:
    found = why_incomplete((2, 3), boxes)
    assert reason in found and bool(reason) == bool(found)


@pytest.mark.parametrize("offsets", [(0,), (3, 0), (-1, 0), (0, 2)])
def test_a_part_outside(offsets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="does not lie in"):
        Part(torch.zeros(2, 2), offsets, (4, 3))
