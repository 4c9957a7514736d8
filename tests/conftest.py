"""Settings for every test: one computing thread a worker, so that pytest-xdist's workers do not fight over cores.

The variable is read when torch (and numpy's BLAS) is first imported, which happens after this file.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
