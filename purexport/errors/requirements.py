"""How pip installs purexport and the packages that it can use: the one place that knows the commands.

The name is not in a package index yet, so `PUREXPORT` is a checkout.  To publish, change that line and run
`python -m tools.install_lines --write`, which writes the commands of the pages anew.  Errors name the missing package
itself, because that command works in every folder, whatever way purexport was installed.
"""

from __future__ import annotations

PUREXPORT = "."
"""What pip installs: `.` is the checkout in the current folder; "purexport" once an index has it."""

VERSIONS = {"torch": "torch>=2.6", "transformers": "transformers>=5", "onnxruntime": "onnxruntime>=1.17"}
"""The packages that have a lowest version, as in pyproject.toml."""


def command(extra: str = "") -> str:
    """The command that installs purexport, with the packages of an extra of pyproject.toml."""
    return f"pip install '{PUREXPORT}[{extra}]'" if extra else f"pip install {PUREXPORT}"


def command_for(*packages: str) -> str:
    """The command that installs packages which purexport can use, and which are missing."""
    wanted = [VERSIONS.get(name, name) for name in packages]
    return "pip install " + " ".join(f"'{name}'" if ">" in name else name for name in wanted)
