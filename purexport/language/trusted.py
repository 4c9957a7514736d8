"""Folders whose Python files run: the only file that lets transformers import code of a folder.

`auto_map` of a config names the class of the config, and that of the model by what it is for.  A class of another
repository is not fetched: the code that runs is what lies in the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purexport.errors import ExportError
from purexport.language.library import library
from purexport.weights.stored import shown

AUTO_CLASSES = (
    "AutoModelForCausalLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForImageTextToText",
)


def warning(folder: Path) -> str:
    """What is said before code of a folder runs."""
    return (
        f"trust_remote_code: Python files of {folder} run now, with all rights of this process; whoever "
        "wrote them may read, change and send away what you may"
    )


def trusted_config(folder: Path) -> Any:
    """The config of a folder, by the class that its code has for it."""
    return library().AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=True)


def trusted_class(config: Any, folder: Path, autos: Sequence[str] = AUTO_CLASSES) -> Any:
    """The class of the model that `auto_map` has for one of `autos`, None where it has none.

    Raises ExportError for code of another repository.
    """
    classes = getattr(config, "auto_map", None) or {}
    name = next((classes[key] for key in autos if key in classes), None)
    if name is None:
        return None
    if not isinstance(name, str) or "--" in name:
        raise ExportError(
            f"{folder / 'config.json'}: auto_map names {shown(name)}, and only code of the folder itself "
            "is run; put the files there, and their names without '--'",
            code="runs-code",
        )
    loader = library("dynamic_module_utils").get_class_from_dynamic_module
    return loader(name, str(folder), local_files_only=True)
