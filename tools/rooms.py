"""The rooms of both packages, each with the tests that mirror it: what `tools/mutate.py` changes, and what must notice.

A room is a folder, or some files at the root of a package.  Its tests are files that take about 20 seconds together in
the default tier, small and sharp ones first; `further` are run as well in the tier `full`, once a row.  Paths are
globs of the root of the repository, and `*` is a name in one folder.  Every module is in one room.

docs/architecture.md has the number of lines of each room.  A room that grows past it fails a test, so that growth is a
decision in a diff: `python -m tools.rooms --write` writes today's numbers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# (a path here, the same in older trees), for `--tree`
RENAMED = [("purexport/frontends", "purexport/capture"), ("tests/frontends", "tests/capture")]


@dataclass(frozen=True)
class Room:
    """Modules, the tests that mirror them, and tests beyond those.

    `texts` are modules that write code as text.  `without` says which tests are too slow to run each time, as a regular
    expression that is searched in their ids.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    further: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    without: str = ""


def _room(modules: str, tests: str, further: str = "", texts: str = "", without: str = "") -> Room:
    return Room(
        tuple(f"{name}.py" for name in _spelled(modules)),
        tuple(_tests(tests)),
        tuple(_tests(further)),
        tuple(f"{name}.py" for name in _spelled(texts)),
        without,
    )


def _spelled(text: str) -> list[str]:
    """Words, where `a/{b,c}` are the two words a/b and a/c."""
    found = []
    for word in text.split():
        head, brace, rest = word.partition("{")
        inner, _, tail = rest.partition("}")
        found += [f"{head}{one}{tail}" for one in inner.split(",")] if brace else [word]
    return found


def _tests(text: str) -> list[str]:
    """`folder/name` is the file tests/folder/test_name.py."""
    found = []
    for word in _spelled(text):
        folder, _, name = word.rpartition("/")
        found.append("/".join(filter(None, ("tests", folder, f"test_{name}.py"))))
    return found


def _rules(folder: str, tests: str = "*") -> Room:
    """A room of rules, whose rows are in the folder of the same name."""
    return _room(f"purexport/lowering/{folder}/*", f"lowering/{folder}/{tests}", "lowering/doubles")


ROOMS = {
    # proto_schema
    "codec": _room(
        "proto_schema/wire/* proto_schema/{onnx,errors}",
        "proto_schema/{wire,runs,on_demand,malformed,messages,schema,payload,tensors,files,differential}",
        "proto_schema/vulnerabilities",
        "proto_schema/wire/{generate,reading}",
        r"mutated\[[1-7]|budget_bounds|linear_time|stay_resident",
    ),
    "tensors": _room(
        "proto_schema/tensors/* proto_schema/numpy_helper",
        "proto_schema/{tensors,helper_minifloat,helper} dtypes",
        "proto_schema/{files,reference}",
    ),
    "helpers": _room(
        "proto_schema/{__init__,helper,utils,external_data_helper,model_container,version,rowtable,units}"
        " proto_schema/tools/*",
        "proto_schema/{helper,utils,tools,records,files,external,bundled}",
        "import_onnx/functions",
    ),
    "external": _room(
        "proto_schema/external/*",
        "proto_schema/{payload,copying,external,addresses,files,archive,surroundings,modes,limits}",
        "proto_schema/{faults,killed,save_random}",
    ),
    "files": _room(
        "proto_schema/files/*",
        "proto_schema/{plan,modes,ownership,resume,save_random,checksums,manifest,share,files}",
        "proto_schema/{faults,killed,stress} cli/{ownership,save}",
    ),
    "derived": _room("proto_schema/derived/*", "proto_schema/{strided,share,payload,experts,quantization}"),
    "checker": _room(
        "proto_schema/{checker,defs} proto_schema/{operators,checking}/*",
        "proto_schema/{checker,checker_types,defs,operators,runtimes,vulnerabilities}",
        "proto_schema/{checker_random,bundled}",
    ),
    "sizes": _room("proto_schema/sizes/*", "proto_schema/{sizes,shape_inference,inference_rows} shapes/guards"),
    "inference": _room(
        "proto_schema/shape_inference proto_schema/inference/* proto_schema/inference/{operators,nn}/*",
        "proto_schema/{shape_inference,shape_inference_rows,inference_rows,inference_alone}",
        "proto_schema/shape_inference_official lowering/core/inferring",
    ),
    "compute": _room(
        "proto_schema/compute/* proto_schema/compute/texts/*",
        "compute/{versions,networks,evaluator,random_nodes,every_operator}",
    ),
    "compute.microsoft": _room(
        "proto_schema/compute/microsoft/*", "compute/{microsoft,microsoft_costs,every_operator}"
    ),
    "budget": _room(
        "proto_schema/budget",
        "proto_schema/budget weights/npy",
        "proto_schema/calibration",
    ),
    "compute.images": _room("proto_schema/compute/images/*", "compute/{networks,random_nodes,every_operator}"),
    "compute.ml": _room("proto_schema/compute/ml/*", "compute/{networks,random_nodes,every_operator}"),
    "compute.nn": _room("proto_schema/compute/nn/*", "compute/{networks,random_nodes,every_operator}"),
    "reference": _room("proto_schema/reference/*", "proto_schema/reference compute/{networks,evaluator,versions}"),
    "conversion": _room(
        "proto_schema/version_converter proto_schema/conversion/*",
        "proto_schema/version_converter",
        "proto_schema/version_converter_cases",
    ),
    "conversion.adapters": _room(
        "proto_schema/conversion/adapters/* proto_schema/conversion/adapters/nn/*",
        "proto_schema/{version_converter,version_converter_cases}",
    ),
    "legalization": _room(
        "proto_schema/legalization/* proto_schema/legalization/nn/*",
        "lowering/core/older_forms",
        "proto_schema/{version_converter,version_converter_cases}",
    ),
    "quantization": _room(
        "proto_schema/quantization/* proto_schema/quantization/codes/*",
        "proto_schema/{quantization,quantization_algorithms,quantization_homes,experts} quantized_export",
    ),
    "precision": _room("proto_schema/precision/*", "proto_schema/precision", "proto_schema/bundled"),
    "sensitivity": _room("proto_schema/sensitivity/*", "proto_schema/sensitivity"),
    "calibration": _room("proto_schema/calibration/*", "proto_schema/calibration"),
    "graphs": _room(
        "proto_schema/{compose,inliner} proto_schema/{graphs,inlining}/*",
        "proto_schema/{compose,inliner,utils}",
        "proto_schema/bundled",
    ),
    "ir": _room("proto_schema/ir/*", "proto_schema/{ir,ir_builder,simplification}", "proto_schema/bundled"),
    "rewrite": _room("proto_schema/rewrite/*", "proto_schema/{rewrite,random_inputs}", "proto_schema/simplification"),
    "passes": _room("proto_schema/passes/*", "proto_schema/{passes,simplification}"),
    "simplification": _room(
        "proto_schema/simplification/*",
        "proto_schema/{simplification,negative_sizes} cli/run_and_simplify",
    ),
    "text": _room(
        "proto_schema/{text,printer,parser,notebook} proto_schema/syntax/*",
        "proto_schema/{text,parser,messages}",
        "proto_schema/bundled",
    ),
    "onnx": _room(
        "proto_schema/compat/* proto_schema/compat/modules/* proto_schema/compat/modules/{backend,reference}/*",
        "import_onnx/{manners,functions,installing}",
    ),
    # purexport
    "export": _room(
        "purexport/{__init__,__main__,driver,dtypes,lock,operators,options,program,version} purexport/progress/*",
        "options captured progress report export export_limits dtypes verification compat/program",
        "errors frontends/bad_input",
    ),
    "side_by_side": _room("purexport/side_by_side", "comparison/compare", "language/language_model"),
    "errors": _room("purexport/errors/*", "errors frontends/bad_input"),
    "torch_patches": _room(
        "purexport/torch_patches/*", "torch_patches/{table,fake_results} without_torch_jit", "frontends/free_axes"
    ),
    "aten": _room(
        "purexport/aten/*",
        "aten/{graph,names} frontends/{names,autograd_functions,numbers} functionalize/refused",
        "functionalize/writes",
    ),
    "facts": _room("purexport/facts/*", "facts/facts functionalize/{refused,rare_sharing}", "functionalize/writes"),
    "shapes": _room(
        "purexport/shapes/*", "shapes/{guards,sizes_of_traces,static_shapes,dynamic_shapes} frontends/computed_sizes"
    ),
    "fx": _room(
        "purexport/fx/*", "lowering/core/decomposed frontends/export/{data_dependent,specs} frontends/higher_order"
    ),
    "functionalize": _room(
        "purexport/functionalize/*", "functionalize/{refused,rare_sharing,state,blocks,writes,order}"
    ),
    "fusion": _room("purexport/fusion/*", "language/fusion", "language/{caches,language_model}"),
    "language": _room(
        "purexport/language/*",
        "language/{config,llamacpp,adapters,caches,diffusion,observed,recurrences,several,pretrained,transformers_js}"
        " language/language_model",
        "models/decoders",
    ),
    "generation": _room("purexport/generation/*", "generation/load_pretrained", "generation/models"),
    "frontends.core": _room(
        "purexport/frontends/* purexport/frontends/core/*",
        "frontends/{structures,names,nesting,wrappers,left_alone,free_axes,bad_input,row_loops,single_calls,route_choice}"
        " frontends/observed",
        "frontends/routes_agree",
    ),
    "frontends.trace": _room(
        "purexport/frontends/trace/*",
        "frontends/trace/{shapes,models,layouts,metas,pieces,ranges,scripts}"
        " frontends/{numbers,computed_sizes,sizes_in_python}",
        "frontends/{rolled,search_growth,routes_agree} shapes/dynamic_shapes",
    ),
    "frontends.export": _room(
        "purexport/frontends/export/*",
        "frontends/export/* frontends/{free_axes,higher_order}",
        "shapes/dynamic_shapes frontends/routes_agree",
    ),
    "frontends.script": _room(
        "purexport/frontends/script/*",
        "frontends/script/{state,known,branches,lists,objects,elements,loops,refused,scripts}",
        "frontends/script/{handlers,mixed,frozen,untyped,python,scripted_models} frontends/routes_agree",
    ),
    "frontends.script.operators": _room(
        "purexport/frontends/script/operators/*",
        "frontends/script/{handlers,lists,elements,objects,python,known,mixed,refused}",
        "frontends/script/{loops,branches,scripts,handlers_have_rows}",
    ),
    "graph": _room(
        "purexport/graph/* purexport/graph/passes/*", "graph/* export", "compat/{initializers,export_types}"
    ),
    "weights": _room(
        "purexport/weights/*",
        "weights/{index,npy,onnxfile,stamps,source,safetensors,convert,torchzip,torchdcp,torchlegacy,refused,float8,packed,compressed,hostile}",
        "weights/export",
    ),
    "weights.gguf": _room("purexport/weights/gguf/*", "weights/gguf", "language/llamacpp"),
    "weights.model": _room("purexport/weights/model/*", "weights/{refused,reference_export,export}"),
    "distributed": _room("purexport/distributed/*", "distributed/save"),
    "lowering": _room(
        "purexport/lowering/*",
        "lowering/{dtypes,scripts,numbers} lowering/core/{decomposed,context} functionalize/blocks",
    ),
    "lowering.core": _room("purexport/lowering/core/*", "lowering/core/* lowering/{numbers,shapes}", "lowering/dtypes"),
    "lowering.support": _room(
        "purexport/lowering/support/*",
        "lowering/nn/{im2col,norm,pool} lowering/tensor/{as_strided,padding} lowering/linalg/powers"
        " lowering/quantized/layers",
        "lowering/linalg/solve lowering/tensor/{indexing,scatter} lowering/nn/resize",
    ),
    "lowering.forms": _room("purexport/lowering/forms/*", "lowering/forms/forms", "lowering/doubles"),
    "lowering.complex": _rules("complex"),
    "lowering.elementwise": _rules("elementwise"),
    "lowering.fft": _rules("fft"),
    "lowering.linalg": _rules("linalg"),
    "lowering.nn": _rules("nn"),
    "lowering.quantized": _rules("quantized"),
    "lowering.reduce": _rules("reduce"),
    "lowering.special": _rules("special"),
    "lowering.tensor": _rules("tensor"),
    "lowering.vision": _rules("vision"),
    "runtime": _room(
        "purexport/runtime/*", "report verification compat/program comparison/compare", "cli/run_and_simplify"
    ),
    "comparison": _room("purexport/comparison/*", "comparison/compare comparison/situations"),
    "compat": _room(
        "purexport/symbolic_helper purexport/compat/* purexport/compat/patch/*",
        "compat/{past_options,peer_interface,lent_helpers,export_types,patch}",
        "compat/{asked,documents}",
    ),
    "compat.symbolic": _room(
        "purexport/compat/symbolic/*",
        "compat/{translation_tables,symbolic,custom_operators}",
        "compat/programs_of_users",
    ),
    "stages": _room(
        "purexport/stages/*",
        "export options frontends/{numbers,free_axes,names} functionalize/state compat/{initializers,asked}",
        "quantized_export weights/refused",
    ),
    "inspect": _room(
        "purexport/inspect/*",
        "inspect/{align,sizes,compare,scan,tree,forms,edit_refused,extract,edit,salvage}",
        "inspect/{damaged,html,page_errors,diff_page}",
    ),
    "cli": _room("purexport/cli/*", "cli/{inputs,completion,streams,terminal,save,process,verbs,mistakes}"),
    "cli.verbs": _room(
        "purexport/cli/verbs/*",
        "cli/{inputs,quantize,convert,merge,infer,run_and_simplify,save,shards,completion,verbs,mistakes}",
        "cli/{ownership,faults_of_verbs}",
    ),
}


def found_in(tree: Path, globs: Iterable[str]) -> list[str]:
    """The files of a tree that the globs name, in their order; of an older tree under the names of that time."""
    names: dict[str, None] = {}
    for pattern in globs:
        for path in sorted(tree.glob(path_in(tree, pattern))):
            names[path.relative_to(tree).as_posix()] = None
    return list(names)


def path_in(tree: Path, path: str) -> str:
    """What a path of this tree is called in another one."""
    for here, before in RENAMED:
        if path.startswith(here) and not (tree / here).exists():
            return before + path.removeprefix(here)
    return path


def modules_of(room: Room, tree: Path) -> list[str]:
    return found_in(tree, room.modules)


def mirrors(module: str, tests: list[str]) -> list[str]:
    """The test files of a module by their names; the first file where there is none."""
    stem = _stem(Path(module).stem)
    alike = [test for test in tests if _alike(stem, _stem(Path(test).stem.removeprefix("test_")))]
    return alike or tests[:1]


def _stem(name: str) -> str:
    return re.sub(r"(s|ing|ed|ion)$", "", name)


def _alike(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


# Lines of the rooms ---------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parent.parent
PAGE = "docs/architecture.md"
TITLE = "## The lines of the rooms"
ALLOWED = re.compile(r"^\| `([\w.]+)` \| ([\d,]+) \|$", re.MULTILINE)


def lines_of_rooms(tree: Path) -> dict[str, int]:
    """How many lines the modules of each room have."""
    return {
        name: sum((tree / module).read_bytes().count(b"\n") for module in modules_of(room, tree))
        for name, room in ROOMS.items()
    }


def allowed_lines(page: str) -> dict[str, int]:
    """How many lines each room may have, as the page says."""
    section = page.partition(TITLE)[2].partition("\n## ")[0]
    return {name: int(lines.replace(",", "")) for name, lines in ALLOWED.findall(section)}


def with_lines(page: str, lines: Mapping[str, int]) -> str:
    """The page with these numbers in the place of its own."""
    before, title, rest = page.partition(TITLE)
    section, following, after = rest.partition("\n## ")
    head = section.partition("| room |")[0]
    rows = [f"| `{name}` | {count:,} |\n" for name, count in lines.items()]
    table = "".join(["| room | lines |\n|---|---|\n", *rows])
    return f"{before}{title}{head}{table}{following}{after}"


def beyond(lines: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    """The rooms that have more lines than they may, and those of which only one side knows."""
    found = [f"{name}: {count:,}, allowed {allowed.get(name, 0):,}" for name, count in lines.items()]
    grown = [text for text, (name, count) in zip(found, lines.items(), strict=True) if count > allowed.get(name, 0)]
    return grown + [f"{name} is no room" for name in allowed if name not in lines]


def main() -> None:
    """`python -m tools.rooms` names the rooms that have grown, `--write` writes today's numbers to the page."""
    page, lines = (ROOT / PAGE).read_text(encoding="utf-8"), lines_of_rooms(ROOT)
    if sys.argv[1:] == ["--write"]:
        (ROOT / PAGE).write_text(with_lines(page, lines), encoding="utf-8")
        return
    grown = beyond(lines, allowed_lines(page))
    print("\n".join(grown) or f"no room has grown; {sum(lines.values()):,} lines")


if __name__ == "__main__":
    main()
