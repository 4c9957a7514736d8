"""What `weights=` may say beside the source: other names, what may be missing, other types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proto_schema.wire.records import dataclass
from purexport.errors import WeightsError
from purexport.weights.source import Weights, open_weights
from purexport.weights.stored import shown


@dataclass(frozen=True)
class Checkpoint:
    """Weights for `export(..., weights=...)`.

    `source` is what `open_weights` takes: a path, a mapping from name to tensor, or a sequence of these, of which a
    later one wins.  `rename` maps keys of the checkpoint to names of the model: {old: new}, where None leaves a
    tensor out and an old name that ends with a dot stands for all that begin with it ({"model.": ""}; {"": "model."}
    puts a prefix before all), or a function.  With `strict=False` the checkpoint may hold more than the model, and
    the model keeps its own values for tensors that the checkpoint lacks.  With `cast=True` weights of another
    floating-point type are cast to the model's type, piece by piece when they are written.
    """

    source: Any
    rename: Mapping[str, str | None] | Callable[[str], str | None] | None = None
    strict: bool = True
    cast: bool = False

    def open(self) -> Weights:
        """The weights under the model's names.  Raises WeightsError, OSError as `open_weights` does."""
        if not isinstance(self.rename, Mapping):
            return open_weights(self.source, rename=self.rename)
        prefixes = {old: new for old, new in self.rename.items() if not old or old.endswith(".")}
        if not prefixes:
            return open_weights(self.source, rename=self.rename)
        found = open_weights(self.source)
        unused = [old for old in prefixes if not any(name.startswith(old) for name in found)]
        if unused:
            raise WeightsError(
                f"rename: no name in {found.origin} begins with {shown(unused[0])}; leave it out",
                code="weights-do-not-fit",
            )
        whole = {old: new for old, new in self.rename.items() if old not in prefixes}
        longest = sorted(prefixes, key=len, reverse=True)
        for name in found:
            old = next((old for old in longest if name.startswith(old)), None)
            if old is not None and name not in whole:
                new = prefixes[old]
                whole[name] = None if new is None else new + name.removeprefix(old)
        return open_weights(found, rename=whole)
