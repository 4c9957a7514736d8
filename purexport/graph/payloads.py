"""Where an exported tensor's bytes come from: the model's own memory, never a copy of it.

The payload of a contiguous CPU tensor is a view of its memory.  The bytes of any other tensor (strided, or on a device)
are produced in bounded chunks when they are written.  ONNX raw data is little-endian; a big-endian host swaps the bytes
of each chunk.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import torch

from proto_schema.external.payload import CHUNK, Payload

_SWAP = sys.byteorder == "big"


class TensorPayload(Payload):
    """The bytes of a torch tensor in row-major order, little-endian."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()

    @property
    def nbytes(self) -> int:
        """The number of bytes: elements times the size of one."""
        return self.tensor.numel() * self.tensor.element_size()

    @property
    def place(self) -> str:
        """Memory, or the tensor's device."""
        return "memory" if self.tensor.device.type == "cpu" else str(self.tensor.device)

    @property
    def identity(self) -> object:
        """A key that is equal for two tensors that show the same memory in the same way."""
        tensor = self.tensor
        storage = tensor.untyped_storage().data_ptr()
        if not storage:
            return None
        return (storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return tuple(self.tensor.shape)

    def permuted(self, permutation: Sequence[int]) -> TensorPayload:
        """The payload of the tensor with permuted axes."""
        return TensorPayload(self.tensor.permute(tuple(permutation)))

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        """The bytes in chunks of at most `limit` bytes; chunks are copied only for a strided or device tensor."""
        tensor = self.tensor
        if tensor.numel() == 0:
            return
        if tensor.is_contiguous() and tensor.device.type == "cpu":
            view = _memory(tensor)
            for start in range(0, len(view), limit):
                yield view[start : start + limit]
        else:
            yield from self._pieces(limit)

    def _pieces(self, limit: int) -> Iterator[memoryview]:
        size = self.tensor.element_size()
        for piece in _contiguous_pieces(self.tensor, max(limit // size, 1)):
            view = _memory(_in_memory(piece))
            for start in range(0, len(view), limit):
                yield view[start : start + limit]


def _in_memory(piece: torch.Tensor) -> torch.Tensor:
    """A contiguous copy in CPU memory; from CUDA it goes through pinned memory, of which torch keeps a pool."""
    if piece.is_cuda:
        return torch.empty(piece.shape, dtype=piece.dtype, pin_memory=True).copy_(piece)
    return piece.contiguous().cpu()


def _contiguous_pieces(tensor: torch.Tensor, limit: int) -> Iterator[torch.Tensor]:
    """Slices of `tensor` in row-major order, each of at most `limit` elements."""
    if tensor.numel() <= limit or tensor.dim() == 0:
        yield tensor
        return
    row = tensor.numel() // tensor.shape[0]
    if row > limit:
        for item in tensor:
            yield from _contiguous_pieces(item, limit)
        return
    step = max(limit // row, 1)
    for start in range(0, tensor.shape[0], step):
        yield tensor[start : start + step]


def _memory(tensor: torch.Tensor) -> memoryview:
    # an axis of one element may have any stride, and a view as bytes refuses some strides
    flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
    if _SWAP and tensor.element_size() > 1:
        flat = flat.reshape(-1, tensor.element_size()).flip(1).reshape(-1)
    return flat.numpy().data


def payload(tensor: torch.Tensor) -> memoryview | Payload:
    """A tensor's bytes for `TensorProto.raw_data`: a view of its memory if that has the layout of ONNX."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_contiguous() and tensor.device.type == "cpu" and tensor.numel():
        return _memory(tensor)
    return TensorPayload(tensor)
