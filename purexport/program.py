"""The program that an export returns: it can be run, verified and saved, with methods named as in torch.onnx."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

import proto_schema as ps
from proto_schema.files.saveplan import SavePlan
from proto_schema.notebook import as_html, as_line
from purexport.frontends.core.structures import Path, StructureStep, apart, joined, number_tensor
from purexport.graph.build import raw_tensor
from purexport.progress import Progress
from purexport.progress.bar import shown
from purexport.runtime import forms, sessions
from purexport.runtime.ir_models import IrModel
from purexport.runtime.report import Report

if TYPE_CHECKING:
    import os

    from typing_extensions import Unpack

    from proto_schema.external.meter import Progress as SaveProgress
    from proto_schema.files.saving import SaveOptions, Writable


# what the stages and comparisons of this package ask of a program, and what completion does not offer
_INTERNAL = ("constants", "feed", "made_from", "recording", "source", "tensors")


class ONNXProgram:
    """An exported model: the message, how it was made, and methods to run and save it.

    `state` holds the tensors that the file takes after the model's arguments: with `mutated_state="io"` the first
    values of buffers, with `export_params=False` the model's parameters and buffers.  `written` names the inputs and
    buffers whose new values the file returns after the model's results.  `constants` is None where Python numbers among
    the arguments are no inputs.  Otherwise it has those that are none, by their positions among all tensors and
    numbers, and None for a number without an effect.  `source()` is the model, as long as somebody else keeps it.
    """

    def __init__(
        self,
        model_proto: ps.ModelProto,
        report: Report | None = None,
        state: Mapping[str, torch.Tensor] | None = None,
        written: Sequence[str] = (),
        constants: Mapping[int, Any] | None = None,
    ) -> None:
        self._proto = model_proto
        self._ir: IrModel | None = None
        self._sessions = sessions.Sessions()
        self.report = report or Report()
        self.report.measure(model_proto)
        self.state = dict(state or {})
        self.written = list(written)
        self.constants = constants
        self.source: Callable[[], Any] = lambda: None
        self.recording: Callable[[], torch.export.ExportedProgram | None] | None = None
        self._exported_program: torch.export.ExportedProgram | None = None

    def made_from(self, model: object, recorded: torch.export.ExportedProgram | None) -> ONNXProgram:
        """The program itself, which knows what it was made from."""
        self._exported_program = recorded
        with contextlib.suppress(TypeError):  # of what there is no weak reference
            self.source = weakref.ref(model)
        return self

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_") and name not in _INTERNAL]

    def __repr__(self) -> str:
        return f"ONNXProgram({as_line(self.model_proto)})"

    def _repr_html_(self) -> str:
        """The same in a notebook, as tables, with the report."""
        return as_html(self.model_proto, "ONNXProgram", self.report._repr_html_())

    # The model ---------------------------------------------------------------------------------------------------

    @property
    def model_proto(self) -> ps.ModelProto:
        """The model as a message.  After a change of the message `release` has a later call use it."""
        return self._proto if self._ir is None else self._ir.message()

    @model_proto.setter
    def model_proto(self, model: ps.ModelProto) -> None:
        self._proto, self._ir = model, None
        self.report.measure(model)
        self.release()

    @property
    def exported_program(self) -> torch.export.ExportedProgram | None:
        """The program of torch.export that the file was made of; None where the model was traced or scripted.

        Where `dynamo=True` asked for one, a traced model is recorded by torch.export when this is first read.
        """
        if self._exported_program is None and self.recording is not None:
            self._exported_program, self.recording = self.recording(), None
        return self._exported_program

    @property
    def model(self) -> Any:
        """The model as an `onnx_ir.Model`; what is changed in it is changed in the program, and it can be replaced.

        Raises ImportError where onnx_ir is not installed.
        """
        if self._ir is None:
            self._ir = IrModel.of(self._proto)
        return self._ir.model

    @model.setter
    def model(self, model: Any) -> None:
        self._ir = IrModel(model)
        self.release()

    def optimize(self) -> None:
        """Does nothing, since constants were folded at the export; for code that calls it on torch.onnx's program."""

    def rename_axes(self, rename_mapping: Mapping[Any, str]) -> None:
        """Give dynamic axes other names, everywhere in the file: `{"n": "batch"}` makes `2*batch` of `2*n`.

        A key is a name, the text of an expression, or a dimension of `model`.  A name of no axis is a warning.
        Raises ValueError for a key that is no name.
        """
        names = {_axis(key): new for key, new in rename_mapping.items()}
        proto = self.model_proto
        found = list(forms.dimensions(proto))
        sizes = forms.sizes_of([dim.dim_param or "" for dim in found])
        known = sizes.keys() | {name for size in sizes.values() for name in size.symbols}
        for name in [name for name in names if name not in known]:
            warnings.warn(f"rename_axes: no axis is called {name!r}", UserWarning, stacklevel=2)
        changes = forms.renamed(sizes, names)
        for dim in found:
            dim.dim_param = changes[dim.dim_param or ""]
        for axes in self.report.dynamic.values():
            axes.update({axis: changes.get(text, text) for axis, text in axes.items()})
        self.model_proto = proto

    def apply_weights(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Replace initializers, and values of `state`, by tensors of the same names.  The tensors are not copied.

        A name that the file does not hold is a warning, as in torch.onnx.
        Raises ValueError for a tensor of another shape or dtype.
        """
        proto = self.model_proto
        held = {item.name: place for place, item in enumerate(proto.graph.initializer)}
        for name, tensor in state_dict.items():
            if name not in held and name not in self.state:
                text = f"apply_weights: the file holds no {name!r}, which is left out"
                warnings.warn(text, UserWarning, stacklevel=2)
                continue
            if name in self.state:
                _refuse_unlike(name, tensor, self.state[name].dtype, self.state[name].shape)
                self.state[name] = tensor.detach()
            if name in held:
                made = raw_tensor(sessions.as_real(tensor.detach()))
                before = proto.graph.initializer[held[name]]
                _refuse_unlike(name, made, before.data_type, before.dims)
                made.name = name
                proto.graph.initializer[held[name]] = made
        self.model_proto = proto

    # Writing -----------------------------------------------------------------------------------------------------

    def save(
        self,
        destination: str | os.PathLike[str] | Writable,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        progress: bool | SaveProgress | None = None,
        **options: Unpack[SaveOptions],
    ) -> None:
        """Write the model to a path or binary file; `options` are those of `proto_schema.save`.

        The first two options are those of torch.onnx: initializers can be left out of the file, or become its inputs.
        `progress` is a function of (done, total), in bytes.  By default a save that takes longer than two seconds has a
        line at a terminal or in a notebook; False: none; True: the log.
        """
        proto = self._as_asked(include_initializers, keep_initializers_as_inputs)
        if callable(progress):
            ps.save(proto, destination, progress=progress, **options)
            return
        with shown(progress) as told:
            stages = Progress(told, ("save",))
            stages.at("save")
            ps.save(proto, destination, progress=stages.bytes, **options)

    def plan(
        self,
        destination: str | os.PathLike[str] | Writable,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        **options: Unpack[SaveOptions],
    ) -> SavePlan:
        """What `save` with the same arguments would write: files, tensors, disk space, memory.  Writes nothing."""
        return ps.plan(self._as_asked(include_initializers, keep_initializers_as_inputs), destination, **options)

    def _as_asked(self, kept: bool, inputs: bool) -> ps.ModelProto:
        proto = self.model_proto
        return forms.with_initializers(proto, kept=kept, as_inputs=inputs) if inputs or not kept else proto

    # Running -----------------------------------------------------------------------------------------------------

    def __call__(self, *args: object, **kwargs: object) -> tuple[Any, ...]:
        """Run the model in onnxruntime on arguments as the model takes them; returns the outputs as tensors.

        Complex tensors are passed and returned in the form of `torch.view_as_real`; a sequence is a list of tensors.
        State that the file takes after the arguments may be left out; then it has its values from the export.
        The session stays for the next call, until `release`.
        Raises ImportError when onnxruntime is not installed, ValueError for a number other than the one in the file.
        """
        proto = self.model_proto
        return tuple(sessions.run(self._sessions.of(proto), self.feed(proto, args, kwargs)))

    def call_reference(self, *args: object, **kwargs: object) -> tuple[Any, ...]:
        """The same by onnx's reference evaluator.  Raises ImportError when onnx is not installed."""
        proto = self.model_proto
        return tuple(sessions.run_reference(proto, self.feed(proto, args, kwargs)))

    def compute_values(
        self, value_names: Sequence[str], args: Iterable[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> tuple[Any, ...]:
        """The values of these names in the file, of inputs, initializers and nodes, for the arguments of a call.

        Raises ValueError for a name that no value has, ImportError without onnxruntime.
        """
        proto = forms.with_outputs(self.model_proto, value_names)
        with sessions.Sessions() as opened:
            return tuple(sessions.run(opened.open(proto), self.feed(proto, args, kwargs or {})))

    def initialize_inference_session(self, initializer: Callable[[str | bytes], object] | None = None) -> None:
        """Make the session that calls use: `initializer` makes it of the model's bytes, or of a path where it is large.

        Without one it is a session on the CPU.
        """
        self._sessions.open(self.model_proto, initializer)

    def release(self) -> None:
        """Let go of the session of onnxruntime; the next call makes a new one."""
        self._sessions.close()

    def feed(
        self, proto: ps.ModelProto, args: Iterable[object], kwargs: Mapping[str, object]
    ) -> dict[str, torch.Tensor]:
        """The inputs of `proto` by name, for the arguments of a call; `proto` is the program's message, or like it.

        Raises ValueError for too few or too many of them.
        """
        held = {item.name for item in proto.graph.initializer}
        types = {item.name or "": item.type for item in proto.graph.input if item.name not in held}
        given = self._given((tuple(args), kwargs))
        feed = {name: leaf for path, leaf in given if (name := _keyword(path)) in types}
        others = iter([name for name in types if name not in feed])
        feed |= {next(others, "a tensor too many"): leaf for path, leaf in given if _keyword(path) not in types}
        feed = {**self.state, **feed}
        if feed.keys() - self.state.keys() - types.keys() or types.keys() - feed.keys():
            raise ValueError(f"the file takes {len(types)} tensors, {', '.join(types)}, and {len(given)} were given")
        return {name: sessions.as_real(_tensor(feed[name], type_).detach()) for name, type_ in types.items()}

    def tensors(self, arguments: tuple[tuple[Any, ...], Mapping[str, Any]]) -> list[torch.Tensor]:
        """The tensors that the file takes for these arguments; a number that is an input has no axes.

        Raises ValueError for a number that the file has as a constant, and that is another one here.
        """
        types = [item.type for item in self.model_proto.graph.input]
        return [_tensor(leaf, type_) for (_, leaf), type_ in zip(self._given(arguments), types, strict=False)]

    def _given(self, arguments: tuple[tuple[Any, ...], Mapping[str, Any]]) -> list[tuple[Path, Any]]:
        """The tensors and numbers among the arguments that the file takes, with their paths.  Raises as `tensors`."""
        tree = apart((arguments[0], dict(arguments[1])))
        pairs = zip(tree.leaves(), tree.numbers(), strict=True)
        if self.constants is None:
            return [pair for pair, _ in pairs if isinstance(pair[1], torch.Tensor)]
        leaves = [pair for pair, number in pairs if number or isinstance(pair[1], torch.Tensor)]
        for place, number in self.constants.items():
            if number is not None and place < len(leaves) and leaves[place][1] != number:
                raise ValueError(f"the file was exported for the number {number!r}, and {leaves[place][1]!r} was given")
        return [pair for place, pair in enumerate(leaves) if place not in self.constants]


def _tensor(leaf: Any, type_: ps.TypeProto | None) -> torch.Tensor:
    """A tensor or number as a tensor, for an input of this type."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    kind = type_.tensor_type if type_ is not None else None
    return number_tensor(float(leaf) if kind is not None and kind.elem_type == ps.TensorProto.DOUBLE else leaf)


def _keyword(path: Path) -> str:
    """The name of the input that a keyword argument gives; none for an argument by position."""
    return joined((StructureStep(path[1].text), *path[2:])) if path[0].text == "1" else ""


def _axis(key: Any) -> str:
    """The name of a key of `rename_axes`: a text, or a dimension of onnx_ir, which has it as its value."""
    name = getattr(key, "value", key)
    if not isinstance(name, str):
        raise ValueError(f"rename_axes takes names of axes and dimensions that have one, not {key!r}")
    return name


def _refuse_unlike(name: str, tensor: Any, dtype: Any, shape: Sequence[int]) -> None:
    """Raise ValueError for a tensor that does not fit in the place of another."""
    given = (
        (tensor.dtype, tuple(tensor.shape))
        if isinstance(tensor, torch.Tensor)
        else (tensor.data_type, tuple(tensor.dims))
    )
    if given != (dtype, tuple(shape)):
        raise ValueError(
            f"apply_weights: {name!r} has dtype and shape {given}, and the file holds {(dtype, tuple(shape))}"
        )


def run_in_onnxruntime(model: ps.ModelProto, tensors: Sequence[torch.Tensor]) -> list[Any]:
    """The outputs of `model` on its inputs in order, sequences as lists.  Raises ImportError without onnxruntime."""
    return list(ONNXProgram(model)(*tensors))
