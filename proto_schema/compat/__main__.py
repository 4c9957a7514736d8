"""`python -m proto_schema.compat SCRIPT [ARGUMENTS]` runs a script for which `import onnx` means `proto_schema`.

`-m MODULE` runs a module, `-c CODE` a text. Whether onnx is installed makes no difference to the script.
"""

from __future__ import annotations

import runpy
import sys

from proto_schema.compat import install

USAGE = "usage: python -m proto_schema.compat (SCRIPT | -m MODULE | -c CODE) [ARGUMENTS]"


def main(arguments: list[str]) -> int:
    """Runs what the arguments name, with the rest of them as its own. 2 for a usage that means nothing."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(f"{USAGE}\n\n{__doc__}")
        return 0 if arguments else 2
    if arguments[0] in ("-m", "-c") and len(arguments) == 1:
        sys.stderr.write(f"{USAGE}\n")
        return 2
    install(force=True)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        sys.path.insert(0, _folder(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


def _folder(script: str) -> str:
    import os

    return os.path.dirname(os.path.abspath(script))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
