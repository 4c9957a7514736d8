"""`python -m purexport VERB` is `purexport VERB`."""

from __future__ import annotations

import sys

from purexport.cli.main import entry

if __name__ == "__main__":
    sys.exit(entry())
