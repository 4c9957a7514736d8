"""The counts of the fuzz harnesses in the docs, made of the file that the runs add to.

python -m tools.fuzz_counts --write    writes them to docs/development/log.md and docs/reliability.md
python -m tools.fuzz_counts            prints both
"""

from __future__ import annotations

import sys
from pathlib import Path

from fuzz import counts

DOCS = Path(__file__).parents[1] / "docs"
LOG, RELIABILITY = DOCS / "development" / "log.md", DOCS / "reliability.md"
_BEGIN, _END = "<!-- written by `python -m tools.fuzz_counts --write` -->\n", "<!-- end of what is written -->\n"


def table(found: counts.Counts) -> str:
    """What each harness has done, as rows in Markdown."""
    lines = [
        "| harness | executions | of these with the present code | goal | a second | findings, open | last run |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in sorted(found["present"].keys() | {name for name in found["earlier"] if "," not in name}):
        row = found["present"].get(name)
        what = {"folders": " steps", "meaning": " graphs"}.get(name, "")
        now = row["executions"] if row else 0
        cells = [f"`{name}`", f"{counts.total(found, name):,}{what}", f"{now:,}", f"{counts.goal_of(name):,}"]
        if row is None:
            cells += ["", "", ""]
        else:
            rate = now / row["seconds"] if row["seconds"] else 0
            last = f"{row['last_date']}, seed {row['last_seed']}"
            cells += [f"{rate:,.0f}", f"{row['findings']}, {row['open']}", last]
        lines.append(f"| {' | '.join(cells)} |")
    for name, executions in sorted(found["earlier"].items()):
        if "," in name:
            names = ", ".join(f"`{part.strip()}`" for part in name.split(","))
            lines.append(f"| {names} | {executions:,} together, with earlier code | | | | | |")
    return "\n".join(lines) + "\n"


def sentence(found: counts.Counts) -> str:
    """What the page for users says."""
    decoder, differential, folders = (counts.total(found, name) for name in ("decoder", "differential", "folders"))
    rest = sum(counts.total(found, name) for name in found["present"]) - decoder - differential - folders
    open_ones = sum(row["open"] for row in found["present"].values())
    says = f"{open_ones} findings are open." if open_ones else "No finding is open."
    return (
        "Fuzz harnesses test the same promises on random input. So far there were "
        f"{_rounded(decoder)} executions\nof the decoder, {_rounded(differential)} of the comparison with the official "
        f"parser, and {_rounded(rest)} of the other\nharnesses. {_rounded(folders)} random steps in folders with files "
        f"of others tested the promises on what a save may touch.\n{says}\n"
    )


def _rounded(number: int) -> str:
    """In two or three digits, never more than there are."""
    if number >= 10**6:
        return f"{number // 10**5 / 10:g} million"
    return f"{number // 10**3 * 10**3:,}" if number >= 10**4 else f"{number:,}"


def with_part(page: str, part: str) -> str:
    """A page with `part` between its marks. ValueError where it has none."""
    before, mark, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not mark or not end:
        raise ValueError(f"the page lacks the lines {_BEGIN.strip()!r} and {_END.strip()!r}")
    return before + mark + part + end + after


def pages(found: counts.Counts) -> dict[Path, str]:
    """Each page as it is to be."""
    return {
        LOG: with_part(LOG.read_text(), table(found)),
        RELIABILITY: with_part(RELIABILITY.read_text(), sentence(found)),
    }


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        for path, text in pages(counts.read()).items():
            path.write_text(text)
    else:
        sys.stdout.write(table(counts.read()) + "\n" + sentence(counts.read()))
