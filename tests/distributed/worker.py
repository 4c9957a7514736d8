"""Processes of a gloo group that save models together; run by test_distributed.py.

    python -m tests.distributed.worker FOLDER SIZE:SCENARIO,SCENARIO,... SIZE:SCENARIO

torch is imported once, then the processes of each world are forked, one world after the other. Each writes
FOLDER/SIZE-RANK.json: what became of each scenario, whose files lie in FOLDER/SIZE-SCENARIO.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import save as save_state
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import proto_schema as ps
import purexport
from purexport import distributed, dtypes
from purexport.distributed import Part
from purexport.graph.payloads import payload

Scenario = Callable[[int, int, Path], None]


def full(dtype: torch.dtype = torch.float32, *shape: int, seed: int = 0) -> torch.Tensor:
    made = torch.randint(-99, 99, shape, generator=torch.Generator().manual_seed(seed))
    return made > 0 if dtype == torch.bool else made.to(dtype)


# (name, dtype, shape): large and small, whole and odd
WHOLE = {
    "rows": full(torch.float32, 301, 100, seed=1),
    "columns": full(torch.bfloat16, 130, 257, seed=2),
    "both": full(torch.float32, 64, 3, 130, seed=3),
    "bias": full(torch.float32, 7, seed=4),
    "scalar": full(torch.int64, seed=5),
    "mask": full(torch.bool, 50_001, seed=6),
    "copies": full(torch.float16, 33_000, seed=7),
    "tiny": full(torch.int8, 2, seed=8),
}


def model_of(payloads: dict[str, Any]) -> ps.ModelProto:
    tensors = [
        ps.TensorProto(
            name=name, data_type=dtypes.onnx_code(whole.dtype), dims=list(whole.shape), raw_data=payloads[name]
        )
        for name, whole in WHOLE.items()
    ]
    return ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors))


def whole_model() -> ps.ModelProto:
    """What one process would save."""
    return model_of({name: payload(tensor) for name, tensor in WHOLE.items()})


def outlined(weights: dict[str, Any]) -> ps.ModelProto:
    return model_of({name: weights[name].payload for name in WHOLE})


def by_hand() -> ps.ModelProto:
    """Without outline: no process has values of any tensor."""
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in WHOLE.items()}
    return model_of({name: distributed.HeldByRanks(name, size) for name, size in sizes.items()})


def placed(world: int, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """As DTensors."""
    mesh = init_device_mesh("cpu", (world,))
    placements: dict[str, Any] = {"rows": Shard(0), "columns": Shard(1), "both": Shard(2), "mask": Shard(0)}
    placements.update(changes or {})
    return {
        name: distribute_tensor(tensor, mesh, [placements.get(name, Replicate())]) for name, tensor in WHOLE.items()
    }


def dtensors(rank: int, world: int, folder: Path) -> None:
    state = placed(world)
    weights = distributed.outline(state)
    distributed.save(lambda: outlined(weights), folder / "m.onnx", state)


def dtensors_by_hand(rank: int, world: int, folder: Path) -> None:
    distributed.save(by_hand() if rank == 0 else None, folder / "m.onnx", placed(world), location="w.bin")


def in_files_of_a_size(rank: int, world: int, folder: Path) -> None:
    heard: list[tuple[int, int]] = []
    distributed.save(
        by_hand(),
        folder / "m.onnx",
        placed(world),
        shard_size=100_000,
        alignment=64,
        progress=lambda *at: heard.append(at),
    )
    assert (heard[-1][0] == heard[-1][1] > 100_000) if rank == 0 else not heard


def parts(rank: int, world: int, folder: Path) -> None:
    """Explicit parts: a grid of boxes, dealt out to the processes, none to the first; strided ones too."""
    state: dict[str, Any] = {}
    number = 0
    for name, tensor in WHOLE.items():
        rows = [tensor] if tensor.dim() == 0 else list(tensor.split(max(tensor.shape[0] // 3, 1)))
        at, mine = 0, []
        for row in rows:
            pieces = list(row.split(50, dim=-1)) if row.dim() > 1 else [row]
            left = 0
            for piece in pieces:
                number += 1
                if number % (world - 1) + 1 == rank:
                    offsets = [0] * tensor.dim()
                    if offsets:
                        offsets[0] = at
                    if tensor.dim() > 1:
                        offsets[-1] = left
                    mine.append(Part(piece, tuple(offsets), tuple(tensor.shape)))
                left += piece.shape[-1] if piece.dim() > 1 else 0
            at += row.shape[0] if row.dim() else 0
        if mine:
            state[name] = mine
    weights = distributed.outline(state)
    distributed.save(outlined(weights), folder / "m.onnx", state)


def names_dealt_out(rank: int, world: int, folder: Path) -> None:
    """As in a pipeline: each process has some tensors, whole."""
    state = {name: tensor for number, (name, tensor) in enumerate(WHOLE.items()) if number % world == rank}
    weights = distributed.outline(state)
    distributed.save(outlined(weights), folder / "m.onnx", state)


def in_a_group(rank: int, world: int, folder: Path) -> None:
    """All but the first process of the world."""
    members = list(range(1, world))
    group = dist.new_group(members)
    if rank in members:
        state = {
            name: tensor for number, (name, tensor) in enumerate(WHOLE.items()) if number % (world - 1) + 1 == rank
        }
        distributed.save(outlined(distributed.outline(state, group=group)), folder / "m.onnx", state, group=group)
    dist.barrier()


def over_another_model(rank: int, world: int, folder: Path) -> None:
    if rank == 0:
        ps.save(model_of({name: bytes(t.numel() * t.element_size()) for name, t in WHOLE.items()}), folder / "m.onnx",
                external_data=True)  # fmt: skip
    dist.barrier()
    dtensors(rank, world, folder)


def groups_at_once(rank: int, world: int, folder: Path) -> None:
    """Each process is a group of its own, and all save to one path, each another model: as where every rank exports."""
    groups = [dist.new_group([member]) for member in range(world)]
    for _ in range(8):
        dist.barrier()
        distributed.save(of_rank(rank), folder / "m.onnx", {}, group=groups[rank])


def of_rank(rank: int) -> ps.ModelProto:
    return model_of({name: payload((tensor * 0 + rank).to(tensor.dtype)) for name, tensor in WHOLE.items()})


class Net(torch.nn.Module):
    """Its weights come from the processes; the small table and a computed constant do not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(150, 301)
        self.second = torch.nn.Linear(301, 130)
        self.table: torch.Tensor
        self.register_buffer("table", torch.arange(130.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(torch.relu(self.first(x))) + self.table
        return result


def net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net().eval()


def fsdp(rank: int, world: int, folder: Path) -> None:
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    save_net(model, folder)


def fsdp_over_tensor_parallel(rank: int, world: int, folder: Path) -> None:
    model = net()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"first": ColwiseParallel(), "second": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    save_net(model, folder)


def checkpoint_of_fsdp(rank: int, world: int, folder: Path) -> None:
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    save_checkpoint(model, folder)


def checkpoint_of_a_grid(rank: int, world: int, folder: Path) -> None:
    model = net()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"first": ColwiseParallel(), "second": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    save_checkpoint(model, folder)


def save_checkpoint(model: torch.nn.Module, folder: Path) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    save_state(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, checkpoint_id=folder / "c"
    )


def save_net(model: torch.nn.Module, folder: Path) -> None:
    state = model.state_dict()
    weights = distributed.outline(state)

    def program() -> Any:
        with torch.device("meta"):
            hollow = Net().eval()
        return purexport.export(hollow, (torch.zeros(2, 150),), weights=weights)

    distributed.save(program, folder / "net.onnx", state)


# ---- what must fail, in every process, and leave the folder as it was


def a_partial_sum(rank: int, world: int, folder: Path) -> None:
    from torch.distributed.tensor import DTensor

    mesh = init_device_mesh("cpu", (world,))
    state: dict[str, Any] = dict(WHOLE)
    if rank == 1:
        state["rows"] = DTensor.from_local(WHOLE["rows"], mesh, [Partial()])
    distributed.save(by_hand(), folder / "m.onnx", state)


def a_missing_part(rank: int, world: int, folder: Path) -> None:
    whole = WHOLE["rows"]
    state: dict[str, Any] = {**WHOLE, "rows": Part(whole[rank : rank + 1], (rank, 0), tuple(whole.shape))}
    distributed.save(by_hand(), folder / "m.onnx", state)


def an_overlap(rank: int, world: int, folder: Path) -> None:
    whole = WHOLE["rows"]
    state: dict[str, Any] = {**WHOLE, "rows": Part(whole[rank:], (rank, 0), tuple(whole.shape))}
    distributed.save(by_hand(), folder / "m.onnx", state)


def a_disagreement(rank: int, world: int, folder: Path) -> None:
    distributed.save(
        by_hand(), folder / "m.onnx", {**WHOLE, "rows": WHOLE["rows"].to([torch.int32, torch.int64][rank % 2])}
    )


def a_name_that_no_one_holds(rank: int, world: int, folder: Path) -> None:
    distributed.save(by_hand(), folder / "m.onnx", {name: t for name, t in WHOLE.items() if name != "mask"})


def another_size(rank: int, world: int, folder: Path) -> None:
    distributed.save(by_hand(), folder / "m.onnx", {**WHOLE, "mask": WHOLE["mask"][:1000]})


def a_list(rank: int, world: int, folder: Path) -> None:
    distributed.save(by_hand(), folder / "m.onnx", {**WHOLE, "tiny": [1, 2]})


def no_program(rank: int, world: int, folder: Path) -> None:
    def program() -> ps.ModelProto:
        raise ValueError("this model cannot be exported")

    distributed.save(program, folder / "m.onnx", WHOLE)


def no_model(rank: int, world: int, folder: Path) -> None:
    distributed.save("m.onnx", folder / "m.onnx", WHOLE)


def no_folder(rank: int, world: int, folder: Path) -> None:
    distributed.save(by_hand(), folder / "absent" / "m.onnx", WHOLE)


def a_single_process(rank: int, world: int, folder: Path) -> None:
    """A model whose weights the processes hold cannot be saved by one of them."""
    ps.save(by_hand(), folder / "m.onnx", external_data=True)


def full_disk(on: int, call: str) -> Scenario:
    def scenario(rank: int, world: int, folder: Path) -> None:
        real = getattr(os, call)

        def fails(*args: Any, **kwargs: Any) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        try:
            if rank == on:
                setattr(os, call, fails)
            distributed.save(by_hand(), folder / "m.onnx", placed(world))
        finally:
            setattr(os, call, real)

    return scenario


def killed(on: int, by: signal.Signals = signal.SIGKILL) -> Scenario:
    def scenario(rank: int, world: int, folder: Path) -> None:
        if rank == on:
            os.write = lambda *_: os.kill(os.getpid(), by)  # type: ignore[assignment]
        distributed.save(by_hand(), folder / "m.onnx", placed(world))

    return scenario


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        dtensors,
        dtensors_by_hand,
        in_files_of_a_size,
        parts,
        names_dealt_out,
        in_a_group,
        over_another_model,
        groups_at_once,
        fsdp,
        fsdp_over_tensor_parallel,
        checkpoint_of_fsdp,
        checkpoint_of_a_grid,
        a_partial_sum,
        a_missing_part,
        an_overlap,
        a_disagreement,
        a_name_that_no_one_holds,
        another_size,
        a_list,
        no_program,
        no_model,
        no_folder,
        a_single_process,
    )
}
SCENARIOS |= {
    "full_disk_here": full_disk(0, "write"),
    "full_disk_there": full_disk(1, "write"),
    "no_sync_there": full_disk(1, "fsync"),
    "no_space_to_reserve": full_disk(0, "posix_fallocate"),
    "no_commit": full_disk(0, "replace"),
    "killed_first": killed(0),
    "killed_second": killed(1),
    "terminated_first": killed(0, signal.SIGTERM),
    "hung_up_first": killed(0, signal.SIGHUP),
}


def run(rank: int, world: int, folder: Path, names: list[str]) -> None:
    store = torch._C._distributed_c10d.FileStore(str(folder / f"{world}-store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    results = {}
    for name in names:
        place = folder / f"{world}-{name}"
        place.mkdir(exist_ok=True)
        try:
            SCENARIOS[name](rank, world, place)
            results[name] = ""
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
        if not name.endswith(("_first", "_second")):
            dist.barrier()
    (folder / f"{world}-{rank}.json").write_text(json.dumps(results))


def main(world: int, folder: Path, names: list[str]) -> None:
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            try:
                run(rank, world, folder, names)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for argument in sys.argv[2:]:
        size, _, listed = argument.partition(":")
        main(int(size), Path(sys.argv[1]), listed.split(","))
