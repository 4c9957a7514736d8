"""Writes `purexport/weights/gguf/grids.json`: the tables of llama.cpp's IQ formats, from the installed `gguf`.

pip install gguf && python -m tools.make_grids
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np

TARGET = Path(__file__).parents[1] / "purexport" / "weights" / "gguf" / "grids.json"
TABLES = {
    "iq2_xxs": "IQ2_XXS",
    "iq2_xs": "IQ2_XS",
    "iq2_s": "IQ2_S",
    "iq3_xxs": "IQ3_XXS",
    "iq3_s": "IQ3_S",
    "iq1": "IQ1_S",
}


def main() -> None:
    """Write the file."""
    from gguf import quants

    rows = {}
    for name, source in TABLES.items():
        kind = getattr(quants, source)
        kind.init_grid()
        grid = kind.grid.reshape(kind.grid_shape)
        values, places = np.unique(grid, return_inverse=True)
        bits = 2 if len(values) <= 4 else 4
        lanes = places.reshape(-1, 8 // bits).astype(np.uint8) << np.arange(0, 8, bits, dtype=np.uint8)
        codes = base64.b64encode(np.bitwise_or.reduce(lanes, axis=1).tobytes()).decode()
        rows[name] = {"bits": bits, "width": grid.shape[1], "values": [int(value) for value in values], "codes": codes}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    TARGET.write_text("{\n" + lines + "\n}\n", encoding="ascii")


if __name__ == "__main__":
    main()
