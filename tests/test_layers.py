"""The architecture, linted: who may import what, and the house rules that a program can check.

`LAYERS` is the list.  Each row names the modules of a layer and the layers that they may reach, over any number of
imports; `docs/architecture.md` shows the same table.  Each check is a function of the sources, so that the rows of
`PLANTED` can show that it finds what it is for.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests import imports

ROOT = Path(__file__).parent.parent
PACKAGES = ("proto_schema", "purexport")
TEXTS = imports.sources(ROOT, PACKAGES)
PYTHON_FILES = [path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
LONGEST_FILE = 600
MOST_AT_THE_TOP = {"proto_schema": 22, "purexport": 12}
MOST_IN_A_FOLDER = 15  # of proto_schema
TORCH_JIT = "purexport.torch_patches.torch_jit"

# layer: (what is in it, the layers that it may reach)
LAYERS: dict[str, tuple[str, str]] = {
    "toolkit": ("proto_schema", ""),
    "base": ("errors version options dtypes progress lock torch_patches", "toolkit"),
    "aten": ("aten", "base toolkit"),
    "facts": ("facts", "aten base toolkit"),
    "shapes": ("shapes", "facts aten base toolkit"),
    "fx": ("fx", "shapes facts aten base toolkit"),
    "functionalize": ("functionalize", "facts aten base toolkit"),
    "fusion": ("fusion", "aten base toolkit"),
    "graph": ("graph", "aten base toolkit"),
    "weights": ("weights", "graph base toolkit"),
    "inspect": ("inspect", "base toolkit"),
    "frontends": ("frontends", "fx shapes facts aten base toolkit"),
    "lowering": ("lowering", "graph functionalize fx shapes facts aten base toolkit"),
    "weights.model": ("weights.model", "frontends weights graph fx shapes facts aten base toolkit"),
    "distributed": ("distributed", "weights graph base toolkit"),
    "program": ("program runtime", "graph frontends fx shapes facts aten base toolkit"),
    "generation": ("generation", "program graph frontends fx shapes facts aten base toolkit"),
    "comparison": ("comparison", "program lowering frontends graph functionalize fx shapes facts aten base toolkit"),
    "compat": ("compat", "program lowering frontends graph functionalize fx shapes facts aten base toolkit"),
    "pipeline": (
        "driver stages side_by_side",
        "helpers compat comparison program weights.model lowering frontends weights graph functionalize fx shapes "
        "facts aten base toolkit",
    ),
    "language": (
        "language",
        "pipeline fusion helpers compat comparison program weights.model lowering frontends weights graph "
        "functionalize fx shapes facts aten base toolkit",
    ),
    "models": ("operators", "base toolkit"),
    "helpers": (
        "symbolic_helper compat.lent_helpers",
        "compat lowering program frontends graph functionalize fx shapes facts aten base toolkit",
    ),
    "public": (
        "purexport compat.patch",
        "generation language fusion models helpers pipeline compat comparison distributed program weights.model "
        "lowering frontends weights graph functionalize fx shapes facts aten base toolkit",
    ),
    "command line": (
        "cli __main__",
        "public generation language fusion models helpers pipeline compat comparison distributed program "
        "weights.model lowering frontends weights inspect graph functionalize fx shapes facts aten base toolkit",
    ),
}

# (the modules of a layer may not import, because): what is not ours, wherever the import stands
BANNED = [
    ("", ("onnx", "google", "onnxscript", "onnx_ir", "ml_dtypes"), "the point of the project"),
    ("", ("torch.onnx",), "its exporters are the peers, not a part"),
    ("proto_schema", ("torch",), "an ONNX toolkit that is useful without torch"),
    ("purexport.inspect", ("torch",), "files are looked at where torch is not installed"),
]

# Modules that must load without these, whatever they load: they are of use where these are not, or slow to import.
LOADED_WITHOUT = [
    ("purexport", ("torch",), "the name of the package alone must not load torch"),
    ("purexport.inspect", ("torch",), "files are looked at where torch is not installed"),
    ("purexport.weights", ("torch",), "checkpoints are read where torch is not installed"),
    ("purexport.cli.main", ("torch",), "verbs on files must not wait for torch"),
]

# Files that import each other, and why they may.
CIRCLES = {
    "proto_schema.wire.codec proto_schema.wire.fields proto_schema.wire.generate "
    "proto_schema.wire.interpret proto_schema.wire.plain proto_schema.wire.reading proto_schema.wire.scalars "
    "proto_schema.wire.slots": (
        "a message generates its codec on first use, and the codec reads messages inside messages"
    ),
}


# Only these change files: each target passes `proto_schema.files.targets.judge` on its way to them.
WRITERS = {f"proto_schema.files.{name}" for name in ("commit", "durable", "locks", "resume")}
WRITERS |= {"proto_schema.external.addresses"}  # objects in storage, which `external.storing` judges
WRITERS |= {"purexport.inspect.edit"}
CHANGES_FILES = re.compile(
    r"\bos\.(replace|rename|unlink|remove|link|symlink|truncate|ftruncate|mkdir|makedirs)\(|\bO_(WRONLY|RDWR|CREAT)\b"
    r"|\.write_(bytes|text)\(|\bopen\([^()]*[\"'](w|a|x|r\+)b?[\"']|\bshutil\.(copy\w*|move|rmtree)\("
)


def modules_of(row: str) -> list[str]:
    """The full names of what a row lists."""
    return [name if name in PACKAGES else f"purexport.{name}" for name in row.split()]


def layers_of(modules: Iterable[str]) -> dict[str, str]:
    """The layer whose row names each module, or a package around it: the innermost; "" where there is none."""
    owners = {name: layer for layer, (row, _) in LAYERS.items() for name in modules_of(row)}
    found = {}
    for module in modules:
        parts = module.split(".")
        prefixes = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        inner = [prefix for prefix in prefixes if prefix in owners and (prefix != "purexport" or module == "purexport")]
        found[module] = owners[inner[0]] if inner else ""
    return found


def unknown_modules(texts: imports.Sources) -> list[str]:
    """Rows that name what does not exist, modules in no layer, and layers that do not exist."""
    names = [name for row, _ in LAYERS.values() for name in modules_of(row)]
    found = [f"no module {name}" for name in names if name not in texts]
    found += [f"{module} is in no layer" for module, layer in layers_of(texts).items() if not layer]
    named = {*(name for _, allowed in LAYERS.values() for name in _split(allowed))}
    return found + [f"no layer {name}" for name in sorted(named - set(LAYERS))]


def _split(allowed: str) -> list[str]:
    return allowed.split()


def arrows_against_layers(texts: imports.Sources) -> list[str]:
    """Each module that reaches a layer which its own may not, by the shortest way."""
    edges, layers = imports.graph(texts), layers_of(texts)
    found = []
    for module, layer in layers.items():
        allowed = {layer, *_split(LAYERS[layer][1])} if layer else set()
        reached = imports.reachable(edges, module)
        found += [imports.way(reached, other) for other in sorted(reached) if layers[other] not in allowed]
    return found


def banned_imports(texts: imports.Sources) -> list[str]:
    return [
        f"{module}:{line} imports {name}: {because}"
        for under, names, because in BANNED
        for module, text in texts.items()
        if not under or is_inside(module, under)
        for line, name in imports.parsed(text).imported
        if any(is_inside(name, banned) for banned in names)
    ]


def loads_too_much(texts: imports.Sources) -> list[str]:
    """What is loaded, over any number of imports, that must not be."""
    edges = imports.graph(texts, at_load=True)
    outside = {module: imports.parsed(text).loaded for module, text in texts.items()}
    found = []
    for under, names, because in LOADED_WITHOUT:
        for module in [name for name in texts if name == under or (under != "purexport" and is_inside(name, under))]:
            if module.startswith("purexport.weights.model"):
                continue
            reached = imports.reachable(edges, module)
            for other in [module, *reached]:
                wrong = [name for name in outside[other] if any(is_inside(name, banned) for banned in names)]
                found += [f"{imports.way(reached, other)} loads {name}: {because}" for name in wrong]
    return found


def circles_of_files(texts: imports.Sources) -> list[str]:
    found = [" ".join(group) for group in imports.circles(imports.graph(texts))]
    return [f"a circle: {group}" for group in found if group not in CIRCLES] + [
        f"no such circle any more: {group}" for group in CIRCLES if group not in found
    ]


def circles_of_folders(texts: imports.Sources) -> list[str]:
    own = {module: text for module, text in texts.items() if is_inside(module, "purexport")}
    packages = {module for module in own if any(other.startswith(f"{module}.") for other in own)}
    edges = imports.between_folders(imports.graph(own), packages)
    return [f"a circle: {' '.join(group)}" for group in imports.circles(edges)]


def files_changed_elsewhere(texts: imports.Sources) -> list[str]:
    return [
        f"{module} changes files: {found}"
        for module, text in texts.items()
        if module not in WRITERS
        for found in _changes_files_in(text)
    ]


@functools.cache
def _changes_files_in(text: str) -> tuple[str, ...]:
    return tuple(found[0] for found in CHANGES_FILES.finditer(text))


def torch_jit_elsewhere(texts: imports.Sources) -> list[str]:
    """Uses of TorchScript, which torch has deprecated: its end in torch must cost one file."""
    return [
        f"{module} uses {found}, which is for {TORCH_JIT} to offer"
        for module, text in texts.items()
        if is_inside(module, "purexport") and module != TORCH_JIT
        for found in _torch_jit_in(text)
    ]


@functools.cache
def _torch_jit_in(text: str) -> tuple[str, ...]:
    of = imports.parsed(text)
    taken = [found for name, inner in of.taken for found in [*filter(_is_torch_jit, (name, *inner))][:1]]
    return (*taken, *filter(_is_torch_jit, sorted(of.dotted)))


def _is_torch_jit(name: str) -> bool:
    return bool(re.fullmatch(r"torch\.(jit(\..*)?|_jit_internal(\..*)?|_C\.(_jit_\w+|\w*(tracing|_trace)\w*))", name))


CHECKS: dict[str, Callable[[imports.Sources], list[str]]] = {
    check.__name__: check
    for check in (
        unknown_modules,
        arrows_against_layers,
        banned_imports,
        loads_too_much,
        circles_of_files,
        circles_of_folders,
        files_changed_elsewhere,
        torch_jit_elsewhere,
    )
}


@functools.cache
def found_today(check: str) -> tuple[str, ...]:
    return tuple(CHECKS[check](TEXTS))


@pytest.mark.parametrize("check", CHECKS)
def test_imports(check: str) -> None:
    found = found_today(check)
    assert not found, "\n".join(found)


# (a module, what is added to it, the check that finds it): each of these passed before the layers were a list
PLANTED = [
    ("purexport.lowering.nn.conv", "from purexport import driver", "arrows_against_layers"),
    ("purexport.lowering.decompose", "from purexport.frontends.export import reader", "arrows_against_layers"),
    (
        "purexport.graph.payloads",
        "def f():\n    import purexport.frontends.script.interpreter",
        "arrows_against_layers",
    ),
    ("purexport.aten.graph", "if TYPE_CHECKING:\n    from purexport.shapes import fakes", "arrows_against_layers"),
    ("purexport.errors", "from purexport.cli import main", "arrows_against_layers"),
    ("purexport.inspect.sizes", "def f():\n    import torch", "banned_imports"),
    ("purexport.lowering.core.emitter", "import torch.onnx.utils", "banned_imports"),
    ("purexport.errors", "import torch", "loads_too_much"),
    ("purexport.lowering.core.emitter", "from purexport.lowering.nn import conv", "circles_of_folders"),
    ("purexport.lowering.nn.pool", "from purexport.lowering.nn import adaptive_pool", "circles_of_files"),
    ("purexport.new_room", "", "unknown_modules"),
    ("purexport.frontends.core.request", "isinstance(model, torch.jit.ScriptModule)", "torch_jit_elsewhere"),
    ("purexport.frontends.core.request", "from torch import jit", "torch_jit_elsewhere"),
    ("purexport.frontends.trace.route", "def f():\n    from torch.jit import _trace", "torch_jit_elsewhere"),
    ("purexport.operators", "from torch._jit_internal import is_scripting", "torch_jit_elsewhere"),
    ("purexport.aten.names", "torch._C._jit_get_schemas_for_operator(base)", "torch_jit_elsewhere"),
    ("purexport.cli.verbs.stat", 'open(args.output, "w").write(text)', "files_changed_elsewhere"),
    ("purexport.inspect.html", "os.replace(made, target)", "files_changed_elsewhere"),
    ("proto_schema.files.saving", "Path(target).write_bytes(data)", "files_changed_elsewhere"),
]


@pytest.mark.parametrize(("module", "added", "check"), PLANTED, ids=[f"{row[0]}-{row[2]}" for row in PLANTED])
def test_planted_violations_are_found(module: str, added: str, check: str) -> None:
    found = CHECKS[check](TEXTS | {module: TEXTS.get(module, "") + f"\n{added}\n"})
    assert set(found) - set(found_today(check))


def test_rows_name_what_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYERS, "pipeline", ("export", "base"))
    assert "no module purexport.export" in unknown_modules(TEXTS)


def test_architecture_shows_the_layers() -> None:
    """The table of docs/architecture.md, row by row."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ([\w. ]+) \| ([^|]+) \| ([^|]*) \|$", text, re.MULTILINE)
    shown = {layer: (re.findall(r"`([\w./]+)`", row), re.findall(r"[\w.]+", reach)) for layer, row, reach in rows}
    for layer, (row, allowed) in LAYERS.items():
        names = [name.removeprefix("purexport.").replace(".", "/") for name in modules_of(row)]
        assert shown.get(layer) == (names, allowed.split()), f"docs/architecture.md, layer {layer!r}"


def test_few_files_at_the_top() -> None:
    """Folders show the architecture; what lies beside them is the picture, and what everything knows."""
    for package, most in MOST_AT_THE_TOP.items():
        top = [path.name for path in (ROOT / package).glob("*.py")]
        assert len(top) <= most, sorted(top)


def test_few_files_in_a_folder() -> None:
    folders = [path for path in (ROOT / "proto_schema").rglob("*") if path.is_dir()]
    found = {path.relative_to(ROOT).as_posix(): len(list(path.glob("*.py"))) for path in folders}
    assert not {name: count for name, count in found.items() if count > MOST_IN_A_FOLDER}


def is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def test_proto_schema_needs_numpy_only() -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "proto_schema"}
    found = [
        f"{module} loads {name}"
        for module, text in TEXTS.items()
        if is_inside(module, "proto_schema")
        for name in imports.parsed(text).loaded
        if name.partition(".")[0] not in allowed
    ]
    assert not found, "\n".join(found)


def test_torch_onnx_passes_are_not_used() -> None:
    found = [path for path in PYTHON_FILES if "_jit_pass_onnx" in (ROOT / path).read_text()]
    assert not found, found


def broken_house_rules(path: str, text: str) -> list[str]:
    source = imports.parsed(text)
    is_printing = path.startswith("purexport/cli/")
    rules = {
        "ASCII only": text.isascii(),
        "a module opens with its strategy": source.has_docstring or not text.strip(),
        "split the file: nobody finds a room in it": len(text.splitlines()) <= LONGEST_FILE,
        "annotations are imported": "from __future__ import annotations" in text or not source.has_definitions,
        f"no global state: lines {source.globals}": not source.globals,
        f"a library logs or reports, it does not print: lines {source.prints}": is_printing or not source.prints,
    }
    return [f"{path}: {rule}" for rule, is_kept in rules.items() if not is_kept]


@pytest.mark.parametrize("folder", sorted({path.rpartition("/")[0] for path in PYTHON_FILES}))
def test_house_rules(folder: str) -> None:
    paths = [path for path in PYTHON_FILES if path.rpartition("/")[0] == folder]
    found = [broken for path in paths for broken in broken_house_rules(path, (ROOT / path).read_text())]
    assert not found, "\n".join(found)


# (what is in a file, the rule that it breaks)
UNRULY = [
    ('"""\u00e9"""', "ASCII only"),
    ("x = 1", "a module opens with its strategy"),
    ('"""x"""\n' * 601, "split the file"),
    ('"""x"""\ndef f(): pass', "annotations are imported"),
    ('"""x"""\nif x:\n  class F: pass', "annotations are imported"),
    ('"""x"""\nfrom __future__ import annotations\ndef f():\n  global x', "no global state: lines (4,)"),
    ('"""x"""\nprint(1)', "a library logs or reports, it does not print: lines (2,)"),
]


@pytest.mark.parametrize(("text", "rule"), UNRULY, ids=[row[1] for row in UNRULY])
def test_broken_house_rules_are_found(text: str, rule: str) -> None:
    (found,) = broken_house_rules("purexport/errors.py", text)
    assert found.startswith(f"purexport/errors.py: {rule}")
    assert not broken_house_rules("purexport/cli/main.py", '"""x"""\nprint(1)')
