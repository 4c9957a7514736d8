"""`purexport run m.onnx`: run a model with numpy alone, on given or random inputs."""

from __future__ import annotations

import argparse
import io
import json
import sys
import zipfile
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import proto_schema as ps
from proto_schema.budget import EVALUATION
from proto_schema.files.durable import blamed_on, takes_rename
from proto_schema.files.owned import files_of
from proto_schema.files.targets import judge
from purexport.cli.errors import UsageError
from purexport.cli.feeds import add_feed, files_of_feed, make_feeds
from purexport.cli.specs import add_budget, parse_budget
from purexport.cli.streams import add_force, report_stream
from purexport.cli.terminal import safe, titled

if TYPE_CHECKING:
    from proto_schema.reference import ReferenceEvaluator

_EXAMPLES = """\
examples:
  purexport run m.onnx                              random inputs, the same in each run
  purexport run m.onnx --input x=@image.npy -o y.npy
  purexport run m.onnx --inputs inputs.npz -o outputs.npz
  purexport run m.onnx --input ids=int64[1,16]:0..999 --dim batch=1 --trace
  purexport run m.onnx --budget 64GiB

--input is written as for `purexport export`. An input that is not given gets random values of its declared type. --dim
sets the size of a named axis; otherwise a size is chosen that the shapes inside the model allow. If the model needs
more memory or work than --budget, an error names the node.
"""

_SHOWN = 6  # elements of an output
_SHAPES = 4  # of random inputs are tried


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "run",
        help="run a model with numpy alone, on given or random inputs",
        description="Run a model by the evaluator of this package, which needs numpy alone.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add_feed(parser)
    add("--seed", type=int, default=0, metavar="N", help="the seed of random inputs (default: 0)")
    add("-o", "--output", metavar="FILE", help="write the outputs: .npz, or .npy for a single one")
    add("--trace", action="store_true", help="print the type and the range of what each node computes")
    add_budget(parser, "the values of a run", EVALUATION)
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run, report. Returns 1 where the model cannot be run; raises UsageError and OSError, and for what is no model."""
    from proto_schema.files.commit import replacing
    from proto_schema.reference import EvaluationError, ReferenceEvaluator, UnsupportedOperatorError

    if args.output and not args.output.endswith((".npz", ".npy")):
        raise UsageError(f"-o {args.output}: name a .npz file, or a .npy file for a single output")
    budget = parse_budget(args.budget)
    files = files_of_feed(args)
    if args.output and takes_rename(args.output):
        with blamed_on(args.output):  # before the run
            judge(args.output, "file", [*files_of(args.file), *files], args.force)
    model = ps.load(args.file)
    feeds = make_feeds(model, args, args.seed)
    first = next(feeds)
    traced: list[dict[str, Any]] = []
    makers = {name: node for node in model.graph.node for name in node.output} if model.graph is not None else {}

    def note(name: str, value: Any) -> None:
        fact = {"name": name, "node": makers[name].op_type if name in makers else "", **_facts(value)}
        traced.append(fact)
        if not args.json:
            sys.stdout.write(safe(f"{fact['node']:<20} {_line(fact)}") + "\n")

    try:
        evaluator = ReferenceEvaluator(model, budget=budget)
        if args.trace:
            feed, found = first, evaluator.run(None, first, intermediate=note)
        else:
            feed, found = _computed(evaluator, chain([first], islice(feeds, _SHAPES - 1)))
    except (EvaluationError, UnsupportedOperatorError) as error:
        if str(error).startswith(("input ", "the input ")):
            raise UsageError(str(error)) from error
        sys.stderr.write(f"purexport run: {safe(str(error))}\n")
        return 1
    results = dict(zip(evaluator.output_names, found, strict=True))
    outputs = [{"name": name, **_facts(value)} for name, value in results.items()]
    facts: dict[str, Any] = {
        "file": args.file,
        "inputs": [{"name": name, **_facts(value)} for name, value in feed.items()],
        "outputs": outputs,
        "output": args.output,
        "trace": traced,
    }
    if args.output:
        content = _encoded(args.output, results)
        with replacing(args.output, "file", [*files_of(args.file), *files], args.force) as target:
            target.write([content], len(content))
    lines = [f"input   {_line(fact)}" for fact in facts["inputs"]]
    lines += [f"output  {_line(fact)}" for fact in outputs]
    lines += [f"wrote {args.output}"] if args.output else []
    text = json.dumps(facts, indent=2) if args.json else "\n".join(map(titled, lines))
    report_stream(args.output or "").write(text + "\n")
    return 0


def _computed(evaluator: ReferenceEvaluator, feeds: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
    """The first inputs that the model takes, and its outputs. Raises EvaluationError of the first where it takes none.

    Sizes of random inputs are a guess, which inference cannot always check.
    """
    from proto_schema.reference import EvaluationError
    from proto_schema.reference.failures import BudgetError

    failed: EvaluationError | None = None
    for feed in feeds:
        try:
            return feed, evaluator.run(None, feed)
        except BudgetError:
            raise
        except EvaluationError as error:
            failed = failed or error
    assert failed is not None
    raise failed


def _facts(value: Any) -> dict[str, Any]:
    import numpy as np

    if not isinstance(value, np.ndarray):
        return {"type": type(value).__name__, "elements": len(value) if hasattr(value, "__len__") else 1}
    facts: dict[str, Any] = {"type": f"{value.dtype}{list(value.shape)}", "elements": value.size}
    if value.size and value.dtype.kind in "biuf":
        facts |= {"min": _number(value.min()), "max": _number(value.max())}
        if value.dtype.kind == "f":
            facts["not_finite"] = int(value.size - np.isfinite(value).sum())
        facts["first"] = [_number(item) for item in value.reshape(-1)[:_SHOWN]]
    return facts


def _number(value: Any) -> Any:
    """JSON has no infinity and no NaN: they are texts."""
    item = value.item()
    return item if not isinstance(item, float) or abs(item) < float("inf") else str(item)


def _line(fact: Mapping[str, Any]) -> str:
    text = f"{fact['name']}  {fact['type']}"
    if "min" not in fact:
        return text
    text += f"  from {_short(fact['min'])} to {_short(fact['max'])}"
    return text + (f", {fact['not_finite']} not finite" if fact.get("not_finite") else "")


def _short(number: Any) -> str:
    return f"{number:.6g}" if isinstance(number, float) else str(number)


def _encoded(path: str, results: Mapping[str, Any]) -> bytes:
    """The bytes of a .npz or .npy file. Raises UsageError for what is no array, and for several in a .npy file."""
    import numpy as np

    wrong = [name for name, value in results.items() if not isinstance(value, np.ndarray) or value.dtype.kind == "O"]
    if wrong:
        raise UsageError(f"-o {path}: the output {wrong[0]!r} is not an array of numbers, and is not written")
    buffer = io.BytesIO()
    if path.endswith(".npy"):
        if len(results) != 1:
            raise UsageError(f"-o {path}: the model has {len(results)} outputs; name a .npz file")
        np.save(buffer, next(iter(results.values())), allow_pickle=False)
    else:
        with zipfile.ZipFile(buffer, "w") as archive:  # np.savez takes no arrays called file or allow_pickle
            for name, value in results.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)
    return buffer.getvalue()
