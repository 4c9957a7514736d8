"""Write docs/opset-conversion.md: the node cases of the official package, converted to every opset.

    python -m tools.conversion --write       # runs all cases (some minutes), and writes the page
    python -m tools.conversion --summary     # prints the figures only

Every case is converted to every opset, checked, run, and compared with its data: tests/proto_schema/conversion_cases.py
is how.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from proto_schema import operators
from tests.proto_schema import conversion_cases as sweep

PAGE = Path(__file__).resolve().parent.parent / "docs" / "opset-conversion.md"
SHOWN = (7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 28)

Counts = dict[str, dict[int, Counter[str]]]


def counted() -> tuple[Counts, dict[str, Counter[str]], list[str]]:
    """Operator -> opset -> how many of which verdict; the reasons of refusals; what went wrong."""
    counts: Counts = defaultdict(lambda: defaultdict(Counter))
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[str] = []
    for case in sweep.cases():
        if not sweep.is_plain(case):
            continue
        name = sweep.operator_of(case)
        known: dict[Any, Any] = {}
        constant: dict[Any, Any] = {}
        for target in sweep.TARGETS:
            verdict, reason = sweep.judged_twice(case, target, known, constant)
            counts[name][target][verdict] += 1
            if verdict == "refused":
                reasons[name][reason] += 1
            if verdict == "wrong":
                wrong.append(f"{case.name} to opset {target}: {reason}")
    return counts, reasons, wrong


def cells(counts: Counts, targets: Iterable[int]) -> tuple[int, int, int]:
    """Of all pairs of an operator and an opset: how many there are, where a case converts, and where all cases do."""
    pairs = some = whole = 0
    for name, row in counts.items():
        versions = operators.versions(name)
        for target in targets:
            if not versions or not row[target]:
                continue
            pairs += 1
            good = row[target]["converted"] + row[target]["constant"]
            some += good > 0
            whole += good == sum(row[target].values())
    return pairs, some, whole


def figures(counts: Counts, wrong: list[str]) -> list[str]:
    """The sums, a line each."""
    total: Counter[str] = Counter()
    for row in counts.values():
        for verdicts in row.values():
            total.update(verdicts)
    everything = sum(total.values())
    lines = [
        f"{len(counts)} operators, {everything:,} conversions of a case to an opset: {total['converted']:,} give the "
        f"expected outputs, {total['constant']:,} more give them with axes, shapes and scales as constants, "
        f"{total['refused']:,} are refused, {total['unrun']:,} are converted and checked but no evaluator runs them, "
        f"{total['wrong']:,} are wrong."
    ]
    for text, targets in (("Opsets 9 to 28", range(9, 29)), ("Opsets 7 to 28", range(7, 29)), ("Opset 9 only", [9])):
        pairs, some, whole = cells(counts, targets)
        lines.append(
            f"{text}: {pairs:,} pairs of an operator and an opset. At least one case converts for "
            f"{100 * some / pairs:.1f} % of them, every case for {100 * whole / pairs:.1f} %."
        )
    return [*lines, *wrong]


def page(counts: Counts, reasons: dict[str, Counter[str]], wrong: list[str]) -> str:
    """The page."""
    lines = [
        "# Conversion between opsets",
        "",
        "Written by `python -m tools.conversion --write`, which runs the cases; do not edit.",
        "",
        "`proto_schema.version_converter.convert_version(model, opset)` and `purexport convert m.onnx --opset 12` take",
        "a model to a newer or older opset. The table shows results for the node test cases of the official package.",
        "Each case is converted to each opset, checked by both checkers, run by ONNX Runtime or by onnx's evaluator,",
        "and compared with the expected outputs of the case.",
        "",
        *[f"- {line}" for line in figures(counts, wrong)],
        "",
        "A cell has the number of cases that convert, and the number of all cases of the operator. Cases have axes,",
        "shapes and scales as inputs. If a case cannot be converted like that, it is converted again with these as",
        "constants, as in most models.",
        "",
        "| operator | since | " + " | ".join(map(str, SHOWN)) + " | why not |",
        "|---|---" * 1 + "|---" * (len(SHOWN) + 1) + "|",
    ]
    for name in sorted(counts):
        row = counts[name]
        versions = operators.versions(name)
        parts = []
        for target in SHOWN:
            good = row[target]["converted"] + row[target]["constant"] + row[target]["unrun"]
            parts.append(f"{good}/{sum(row[target].values())}")
        why = "; ".join(text for text, _ in reasons[name].most_common(2)).replace("|", "\\|")
        lines.append(f"| {name} | {versions[0] if versions else ''} | " + " | ".join(parts) + f" | {why[:160]} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--summary", action="store_true", help="print the figures only")
    args = parser.parse_args()
    counts, reasons, wrong = counted()
    if args.write:
        PAGE.write_text(page(counts, reasons, wrong), encoding="ascii", newline="\n")
    sys.stdout.write("\n".join(figures(counts, wrong)) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
