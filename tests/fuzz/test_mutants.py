"""What mutation testing changes (`python -m tools.mutate`): each change of a small module, and nothing else of it."""

from __future__ import annotations

import ast

import pytest

from tools.mutants import changes

# (what stands there, every other form that is tried; "pass" where it is left out)
ROWS = [
    ("y = a < b", ["pass", "y = a <= b", "y = a >= b"]),
    ("y = a is None", ["pass", "y = a is not None"]),
    ("y = a and b", ["pass", "y = a or b", "y = b", "y = a"]),
    ("y = not a", ["pass", "y = a"]),
    ("y = a + 1", ["pass", "y = a - 1", "y = a + 2", "y = a + 0"]),
    ("y += a", ["y -= a", "pass"]),
    ("y = a if b else c", ["pass", "y = a", "y = c"]),
    ("y = True", ["pass", "y = False"]),
    ("call()", ["pass"]),
    ("raise Error", ["pass"]),
    ("raise Error(f'{a + 1} words', a)", ["pass"]),
    ("if a:\n    return\nelse:\n    return b", ["if True:", "if False:", "return None"]),
    ("while a:\n    break", ["while False:", "pass"]),
    ("while True:\n    continue", ["while False:", "pass"]),
    ("def f(a: int=2) -> int:\n    'Two, 2.'\n    return a", ["def f(a: int=3)", "def f(a: int=1)", "return None"]),
    ("@cache(1)\ndef f():\n    return None", []),
    ("import a", []),
    ("a: int = 1", []),
    ("__all__ = ['a', 'b']", []),
    ("if TYPE_CHECKING:\n    call()", []),
    ("y = 'if n < 1'", ["pass"]),
]


@pytest.mark.parametrize(("source", "others"), ROWS, ids=[row[0].splitlines()[0] for row in ROWS])
def test_every_change(source: str, others: list[str]) -> None:
    tree = ast.parse(source)
    before = ast.unparse(tree)
    made = [change.source(tree) for change in changes(tree)]
    assert ast.unparse(tree) == before
    assert before not in made
    assert len(made) == len(others)
    for other in others:
        assert any(other in found for found in made), (other, made)
    for found in made:
        ast.parse(found)


def test_code_in_strings_is_changed_where_a_module_writes_code() -> None:
    tree = ast.parse("y = ['if n < 128:', f'    size += n + {a}']")
    made = {change.source(tree).removeprefix("y = ") for change in changes(tree, texts=True)}
    assert made == {
        "pass",
        "['if n <= 128:', f'    size += n + {a}']",
        "['if n < 129:', f'    size += n + {a}']",
        "['if n < 127:', f'    size += n + {a}']",
        "['if n < 128:', f'    size = n + {a}']",
        "['if n < 128:', f'    size += n - {a}']",
    }
