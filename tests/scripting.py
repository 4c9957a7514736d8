"""Scripts of operator rows: what torch.jit.script makes of a row's model.

A module is scripted as it is.  A function of torch, a `functools.partial` and a lambda or function of a test file are
written anew as a function that torch.jit.script can read: the same expressions, with the types of the row's inputs as
annotations, `*x` written out, and what the function takes from around it put in its place:

    lambda *x, way=way: loss(*x, reduction=way)     def row(x0: Tensor, x1: Tensor):
                                                        return loss_0(x0, x1, reduction='mean')

Numbers, texts and dtypes become literals; modules and functions of torch become globals; tensors and modules become
attributes of a module whose `forward` the function is; functions of test files are written anew in turn, for the
arguments of each call.  The text is kept in `linecache`, where torch.jit.script and tracebacks find it.

The script is not trusted: each row compares what its file computes with the row's own model.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import inspect
import itertools
import linecache
import math
import sys
import types
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, List, Optional, Tuple  # noqa: UP035  annotations of a script

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

TESTS = Path(__file__).parent
NAMESPACE = {
    "__name__": "tests.scripting.rows",
    "torch": torch,
    "Tensor": Tensor,
    "List": List,  # noqa: UP006
    "Optional": Optional,
    "Tuple": Tuple,  # noqa: UP006
}


class CannotBeWrittenError(Exception):
    """No script can be written of this model, for a reason that is in the model or its inputs."""


def scripted(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What torch.jit.script makes of a model that takes these arguments.

    Raises CannotBeWrittenError, or whatever torch.jit.script raises.
    """
    if isinstance(model, torch.jit.ScriptFunction):
        return model
    # a module that torch.jit.script gives several forms of forward has none of its own: a function calls it then
    if isinstance(model, nn.Module) and hasattr(script := torch.jit.script(model), "forward"):
        return script
    writer = Writer()
    script = torch.jit.script(writer.written(model, args, kwargs))
    for overload in writer.overloads:
        _refuse_another(script, overload)
    return script


def _refuse_another(script: Any, overload: torch._ops.OpOverload) -> None:
    """torch.jit.script chooses the overload by the arguments: it must be the one that the row names."""
    graph = script.inlined_graph  # its nodes live as long
    schema = overload._schema
    called = [torch._C.parse_schema(node.schema()) for node in graph.findAllNodes(schema.name)]
    # an operator that is not there goes by another name: torch.jit.script writes mul for multiply
    if called and not any(found.overload_name == schema.overload_name for found in called):
        raise CannotBeWrittenError(f"torch.jit.script takes another overload than {overload}")


def traced(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Tensor, ...], dict[str, Any]]:
    """A trace that is a script, and its arguments: of those given the tensors.  All its results are tensors."""
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        new_args, new_kwargs = pytree.tree_unflatten(given, spec)
        results = pytree.tree_leaves(model(*new_args, **new_kwargs))
        return tuple(torch.as_tensor(result) for result in results if result is not None)

    tensors = tuple(leaves[place] for place in places)
    target = _Flat(model, flat) if isinstance(model, nn.Module) else flat
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(target, copy.deepcopy(tensors), check_trace=False), tensors, {}


class _Flat(nn.Module):
    """A module whose arguments are tensors only."""

    def __init__(self, model: nn.Module, flat: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self.flat = flat

    def forward(self, *tensors: Tensor) -> Any:
        return self.flat(*tensors)


class Writer:
    """Writes a function and those that it calls, each for the arguments of its call."""

    def __init__(self) -> None:
        self.globals: dict[str, Any] = dict(NAMESPACE)
        self.owned: dict[str, Any] = {}  # tensors and modules, attributes of the module
        self.overloads: set[torch._ops.OpOverload] = set()  # that torch.jit.script has to choose by the arguments
        self.number = itertools.count()

    def written(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A function, or a module, that computes the same."""
        definition = self.definition("row", function, args, kwargs)
        if not self.owned:
            return self.made(definition)
        definition.name = "forward"
        definition.args.args.insert(0, ast.arg("self"))
        module = type("Row", (nn.Module,), {"forward": self.made(definition)})()
        for name, owned in self.owned.items():
            setattr(module, name, owned)
        return module.eval()

    def made(self, definition: ast.FunctionDef) -> Callable[..., Any]:
        """The function of a definition, which is a global from then on."""
        text = ast.unparse(ast.fix_missing_locations(definition)) + "\n"
        name = f"<script of a row, {zlib.crc32(text.encode()):x}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), self.globals)
        made: Callable[..., Any] = self.globals[definition.name]
        return made

    def definition(self, name: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ast.FunctionDef:
        """A function as one that takes just these arguments."""
        write = self._rewritten if _is_of_tests(function) else self._calling
        return write(name, function, args, kwargs)

    def stands_for(self, name: str, value: Any) -> ast.expr:
        """The expression for a value from around the function, which has this name there."""
        found = _literal(value)
        if found is not None:
            return found
        if isinstance(value, torch._ops.OpOverload):
            self.overloads.add(value)
            value = value.overloadpacket
        name = f"{name}_{next(self.number)}"
        if isinstance(value, (Tensor, nn.Module)):
            self.owned[name] = value
            return ast.Attribute(ast.Name("self"), name)
        self.globals[name] = value
        return ast.Name(name)

    def _calling(self, name: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ast.FunctionDef:
        """A function that calls this one, of torch or of a builtin kind."""
        names = [f"x{place}" for place in range(len(args))]
        given: list[ast.expr] = [ast.Name(item) for item in names]
        keywords: dict[str, ast.expr] = {key: ast.Name(key) for key in kwargs}
        while isinstance(function, functools.partial):
            given = [self.stands_for("part", item) for item in function.args] + given
            keywords = {key: self.stands_for(key, item) for key, item in function.keywords.items()} | keywords
            function = function.func
        if _is_of_tests(function):
            raise CannotBeWrittenError("a partial of a function of a test")
        called: ast.expr
        if isinstance(function, types.MethodDescriptorType):
            called = ast.Attribute(given.pop(0), function.__name__)
        else:
            called = self.stands_for("called", function)
        call = ast.Call(called, given, [ast.keyword(key, item) for key, item in keywords.items()])
        return _function(name, [*zip(names, args, strict=True), *kwargs.items()], [ast.Return(call)])

    def _rewritten(
        self, name: str, function: types.FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> ast.FunctionDef:
        """The source of this function with the types of the arguments."""
        node = copy.deepcopy(_source(function.__code__))
        around = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        values: list[tuple[str, Any]] = []
        parts: dict[str, list[str]] = {}
        keys: dict[str, list[str]] = {}
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs)
        for key, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                items = bound.arguments.get(key, ())
                parts[key] = [f"{key}{place}" for place in range(len(items))]
                values += zip(parts[key], items, strict=True)
            elif parameter.kind is parameter.VAR_KEYWORD:
                more = bound.arguments.get(key, {})
                keys[key] = list(more)
                values += more.items()
            elif key in bound.arguments:
                values.append((key, bound.arguments[key]))
            else:
                around[key] = parameter.default
        stored = {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)}
        taken = {key for key, _ in values} | stored
        body: list[ast.stmt] = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
        rewrite = _Rewrite(self, function, (args, kwargs), around, taken, parts, keys)
        return _function(name, values, [rewrite.visit(statement) for statement in body])


class _Rewrite(ast.NodeTransformer):
    """Puts what a name from around a function stands for in its place.

    `taken` are the names that stay, `parts` the names for each of `*x`, `keys` those for each of `**options`.
    """

    def __init__(
        self,
        writer: Writer,
        function: types.FunctionType,
        given: tuple[Sequence[Any], Mapping[str, Any]],
        around: Mapping[str, Any],
        taken: set[str],
        parts: Mapping[str, Sequence[str]],
        keys: Mapping[str, Sequence[str]],
    ) -> None:
        self.writer = writer
        self.function = function
        self.given = given
        self.around = around
        self.taken = taken
        self.parts = parts
        self.keys = keys
        self.helpers: dict[str, int] = {}  # by name, how many calls are written already

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.parts:
            return ast.Tuple([ast.Name(part) for part in self.parts[node.id]])
        if node.id in self.taken or (node.id not in self.around and hasattr(builtins, node.id)):
            return node
        if node.id not in self.around:
            raise CannotBeWrittenError(f"what {node.id} stands for is not known")
        value = self.around[node.id]
        if _is_of_tests(value):
            return ast.Name(self._helper(node.id, value))
        if isinstance(value, (types.ModuleType, type)):
            self.writer.globals[node.id] = value
            return node
        return self.writer.stands_for(node.id, value)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """An overload of an operator, which torch.jit.script knows under the operator's name only."""
        root, *path = ast.unparse(node).split(".")
        if root in self.around and root not in self.taken and all(map(str.isidentifier, path)):
            found = functools.reduce(getattr, path, self.around[root])
            if isinstance(found, torch._ops.OpOverload):
                return self.writer.stands_for(path[-2], found)
        return ast.Attribute(self.visit(node.value), node.attr, node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """A call with `*x` and `**options` written out."""
        given: list[ast.expr] = []
        for item in node.args:
            name = item.value.id if isinstance(item, ast.Starred) and isinstance(item.value, ast.Name) else ""
            if isinstance(item, ast.Starred) and isinstance(item.value, ast.ListComp):
                given += [self.visit(each) for each in self._each(item.value)]
            elif name in self.parts:
                given += [ast.Name(part) for part in self.parts[name]]
            elif name in self.around and name not in self.taken:
                given += [self.writer.stands_for(name, value) for value in self.around[name]]
            else:
                given.append(self.visit(item))
        keywords: list[ast.keyword] = []
        for keyword in node.keywords:
            name = keyword.value.id if keyword.arg is None and isinstance(keyword.value, ast.Name) else ""
            if name in self.keys:
                keywords += [ast.keyword(key, ast.Name(key)) for key in self.keys[name]]
            elif name in self.around and name not in self.taken:
                options = self.around[name].items()
                keywords += [ast.keyword(key, self.writer.stands_for(key, value)) for key, value in options]
            else:
                keywords.append(ast.keyword(keyword.arg, self.visit(keyword.value)))
        return ast.Call(self.visit(node.func), given, keywords)

    def _each(self, node: ast.ListComp) -> list[ast.expr]:
        """`[f(item) for item in x]`, where the function has `*x`, as what stands in it."""
        (loop,) = node.generators
        if not isinstance(loop.iter, ast.Name) or loop.iter.id not in self.parts or loop.ifs:
            raise CannotBeWrittenError(f"how many there are in {ast.unparse(node)} is not known")
        target = ast.unparse(loop.target)
        each = []
        for part in self.parts[loop.iter.id]:
            element = copy.deepcopy(node.elt)
            for item in ast.walk(element):
                if isinstance(item, ast.Name) and item.id == target:
                    item.id = part
            each.append(element)
        return each

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        raise CannotBeWrittenError("a function inside of the function")

    def _helper(self, name: str, function: types.FunctionType) -> str:
        """A function of a test file, written for the arguments that it gets here: calls are met as they are run."""
        calls: list[tuple[Any, Any]] = []

        def recorder(*args: Any, **kwargs: Any) -> Any:
            calls.append((copy.deepcopy(args), copy.deepcopy(kwargs)))
            return function(*args, **kwargs)

        args, kwargs = copy.deepcopy(self.given)
        _with(self.function, name, recorder)(*args, **kwargs)
        if not calls:
            raise CannotBeWrittenError(f"{name} is not called")
        call = self.helpers[name] = self.helpers.get(name, -1) + 1
        definition = self.writer.definition(
            f"{name}_{next(self.writer.number)}", function, *calls[min(call, len(calls) - 1)]
        )
        self.writer.made(definition)
        return definition.name


def _is_of_tests(function: Any) -> bool:
    """Whether a function stands in a file of the tests."""
    return isinstance(function, types.FunctionType) and TESTS in Path(function.__code__.co_filename).parents


def _with(function: types.FunctionType, name: str, value: Any) -> Callable[..., Any]:
    """The function with another value for a name from around it."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in cells:
        cells[name] = types.CellType(value)
    around = {**function.__globals__, name: value}
    defaults = function.__defaults__
    if defaults is not None:
        names = function.__code__.co_varnames[: function.__code__.co_argcount][-len(defaults) :]
        defaults = tuple(value if key == name else item for key, item in zip(names, defaults, strict=True))
    made = types.FunctionType(function.__code__, around, function.__name__, defaults, tuple(cells.values()))
    keywords = function.__kwdefaults__ or {}
    made.__kwdefaults__ = {key: value if key == name else item for key, item in keywords.items()}
    return made


def _function(name: str, values: Sequence[tuple[str, Any]], body: list[ast.stmt]) -> ast.FunctionDef:
    names = [ast.arg(key, ast.parse(_type(value), mode="eval").body) for key, value in values]
    arguments = ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.FunctionDef(name, arguments, body, decorator_list=[])


def _type(value: Any) -> str:
    """The TorchScript type of an argument."""
    if value is None:
        return "Optional[Tensor]"
    if isinstance(value, Tensor):
        return "Tensor"
    if isinstance(value, (bool, int, float, complex, str)):
        return type(value).__name__
    if isinstance(value, torch.dtype):
        return "torch.dtype"
    if isinstance(value, tuple):
        return f"Tuple[{', '.join(map(_type, value))}]"
    if isinstance(value, list):
        kinds = {_type(item) for item in value}
        if len(kinds) == 1:
            return f"List[{kinds.pop()}]"
    raise CannotBeWrittenError(f"no TorchScript type of {value!r}")


def _literal(value: Any) -> ast.expr | None:
    """An expression that makes a value; None where there is none."""
    if value is None or value is Ellipsis or isinstance(value, (bool, int, str)):
        return ast.Constant(value)
    if isinstance(value, float):
        return ast.parse(repr(value) if math.isfinite(value) else f"float('{value}')", mode="eval").body
    if isinstance(value, complex):
        return ast.parse(f"complex({value.real}, {value.imag})", mode="eval").body
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return ast.parse(repr(value), mode="eval").body
    if isinstance(value, torch.device):
        return ast.parse(f"torch.device('{value}')", mode="eval").body
    if isinstance(value, slice):
        return ast.Slice(*[None if end is None else ast.Constant(end) for end in (value.start, value.stop, value.step)])
    if isinstance(value, (tuple, list)):
        items = [_literal(item) for item in value]
        known = [item for item in items if item is not None]
        if len(known) == len(items):
            return ast.Tuple(known) if isinstance(value, tuple) else ast.List(known)
    return None


@functools.cache
def _functions(path: str) -> list[ast.Lambda | ast.FunctionDef]:
    tree = ast.parse(Path(path).read_text())
    return [node for node in ast.walk(tree) if isinstance(node, (ast.Lambda, ast.FunctionDef))]


def _source(code: types.CodeType) -> ast.Lambda | ast.FunctionDef:
    """The part of the file that a function was made of."""
    if code.co_name != "<lambda>":
        return next(
            node
            for node in _functions(code.co_filename)
            if isinstance(node, ast.FunctionDef)
            and node.name == code.co_name
            and code.co_firstlineno in (node.lineno, *(item.lineno for item in node.decorator_list))
        )
    if sys.version_info < (3, 11):
        return _by_its_code(code)
    places = [
        ((line, column), (last, end))
        for line, last, column, end in code.co_positions()
        if line is not None and column is not None and (line, column) < (last, end)  # others are of no expression
    ]
    first, last = min(start for start, _ in places), max(end for _, end in places)
    around = [
        (node.body.lineno, node.body.col_offset, node)
        for node in _functions(code.co_filename)
        if isinstance(node, ast.Lambda)
        and (node.body.lineno, node.body.col_offset) <= first
        and last <= (node.body.end_lineno or 0, node.body.end_col_offset or 0)
    ]
    return max(around, key=lambda item: item[:2])[2]  # of lambdas in lambdas, the innermost


def _by_its_code(code: types.CodeType) -> ast.Lambda:
    """The same in Python 3.10, which keeps no columns: the lambda of that line that compiles to the same code."""
    for made, node in _compiled(code.co_filename):
        if node.lineno <= code.co_firstlineno <= (node.end_lineno or 0) and _alike(made, code):
            return node
    raise LookupError(f"{code.co_filename}:{code.co_firstlineno}: no lambda has this code")


def _alike(one: types.CodeType, other: types.CodeType) -> bool:
    names = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
    return all(getattr(one, name) == getattr(other, name) for name in names) and [
        item for item in one.co_consts if not isinstance(item, types.CodeType)
    ] == [item for item in other.co_consts if not isinstance(item, types.CodeType)]


@functools.cache
def _compiled(path: str) -> list[tuple[types.CodeType, ast.Lambda]]:
    """The lambdas of a file with their codes, which are told apart by line numbers of their own."""
    text = Path(path).read_text()
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda)]
    tree = ast.parse(text)
    for number, node in enumerate(item for item in ast.walk(tree) if isinstance(item, ast.Lambda)):
        for part in ast.walk(node):
            if hasattr(part, "lineno"):
                part.lineno = part.end_lineno = _NUMBERED + number  # type: ignore[attr-defined]
    codes, made = [compile(tree, path, "exec")], []
    while codes:
        code = codes.pop()
        codes += [item for item in code.co_consts if isinstance(item, types.CodeType)]
        if code.co_name == "<lambda>":
            made.append((code, found[code.co_firstlineno - _NUMBERED]))
    return made


_NUMBERED = 1_000_000
