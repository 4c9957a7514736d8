"""What torch's tracer warns of, in our words: its own say what the tracer cannot do, and not what the file does."""

from __future__ import annotations

import re

# (how the tracer's text begins, what becomes of the file)
_WORDS = (
    (
        r"Converting a tensor to a Python boolean",
        "the code decides on the content of a tensor, and the file has only the way that the example took; script it "
        "or use torch.cond or torch.where, which keep both",
    ),
    (
        r"Converting a tensor to a ((?:Python|NumPy) .*?) might",
        r"the code takes a \1 out of a tensor, and the file holds the example's",
    ),
    (
        r"Iterating over a tensor",
        "the code loops over the rows of a tensor, and the file has as many steps as the example has rows",
    ),
    (
        r"(\S+) results are registered as constants",
        r"\1 makes a constant here: if it depends on the inputs, the file holds the example's value",
    ),
)


def in_our_words(text: str) -> str:
    """What a warning of torch's tracer means for the file; another text as it is."""
    for beginning, ours in _WORDS:
        found = re.match(beginning, text)
        if found:
            return found.expand(ours)
    return text
