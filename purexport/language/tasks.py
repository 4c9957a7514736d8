"""What models of transformers that generate no text are for: a row for each task, with the words of the hub.

A row names transformers' mappings from configs to classes, and the outputs of the file.  The task of a folder is the
one whose mapping has the class that its config names; a task that is asked for chooses the class.  Names and axes are
those of optimum's exporter, where it has the task.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from purexport.errors import ExportError
from purexport.language.library import library
from purexport.weights.stored import listed, shown


@dataclass(frozen=True)
class Task:
    """A task: the mappings with its classes, and the outputs of its files, as far as a model has them."""

    name: str
    mappings: Sequence[str]
    outputs: Sequence[str] = ("logits",)


FEATURES, CHOICES = "feature-extraction", "multiple-choice"
_EMBEDDINGS = ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds")
_SPANS = ("start_logits", "end_logits")
# the first row that has a class is its task
TASKS = tuple(
    Task(name, tuple(f"{mapping}_MAPPING" for mapping in mappings.split()), *outputs)
    for name, mappings, *outputs in (
        ("text-classification", "MODEL_FOR_SEQUENCE_CLASSIFICATION"),
        ("token-classification", "MODEL_FOR_TOKEN_CLASSIFICATION"),
        ("question-answering", "MODEL_FOR_QUESTION_ANSWERING MODEL_FOR_DOCUMENT_QUESTION_ANSWERING", _SPANS),
        (CHOICES, "MODEL_FOR_MULTIPLE_CHOICE"),
        ("fill-mask", "MODEL_FOR_MASKED_LM"),
        ("image-classification", "MODEL_FOR_IMAGE_CLASSIFICATION"),
        ("object-detection", "MODEL_FOR_OBJECT_DETECTION", ("logits", "pred_boxes")),
        ("semantic-segmentation", "MODEL_FOR_SEMANTIC_SEGMENTATION"),
        (
            "image-segmentation",
            "MODEL_FOR_IMAGE_SEGMENTATION MODEL_FOR_INSTANCE_SEGMENTATION MODEL_FOR_UNIVERSAL_SEGMENTATION",
            ("logits", "pred_masks", "class_queries_logits", "masks_queries_logits"),
        ),
        ("depth-estimation", "MODEL_FOR_DEPTH_ESTIMATION", ("predicted_depth",)),
        ("masked-im", "MODEL_FOR_MASKED_IMAGE_MODELING", ("reconstruction",)),
        ("image-to-image", "MODEL_FOR_IMAGE_TO_IMAGE", ("reconstruction",)),
        ("keypoint-detection", "MODEL_FOR_POSE_ESTIMATION", ("heatmaps",)),
        ("audio-classification", "MODEL_FOR_AUDIO_CLASSIFICATION"),
        ("audio-frame-classification", "MODEL_FOR_AUDIO_FRAME_CLASSIFICATION"),
        ("audio-xvector", "MODEL_FOR_AUDIO_XVECTOR", ("logits", "embeddings")),
        ("automatic-speech-recognition", "MODEL_FOR_CTC"),
        ("zero-shot-image-classification", "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION", _EMBEDDINGS),
        (FEATURES, "MODEL MODEL_FOR_TEXT_ENCODING", (*_EMBEDDINGS, "last_hidden_state")),
    )
)
# the classes that code of a folder may have for a model; `auto_map` calls them so
AUTO_CLASSES = (
    *("AutoModelForSequenceClassification", "AutoModelForTokenClassification", "AutoModelForQuestionAnswering"),
    *("AutoModelForMultipleChoice", "AutoModelForMaskedLM", "AutoModelForImageClassification"),
    *("AutoModelForObjectDetection", "AutoModelForSemanticSegmentation", "AutoModelForAudioClassification"),
    *("AutoModelForCTC", "AutoModelForZeroShotImageClassification", "AutoModel"),
)


def task_named(name: str) -> Task:
    """The row of a task.  Raises ValueError for another name."""
    for task in TASKS:
        if task.name == name:
            return task
    near = difflib.get_close_matches(name, [task.name for task in TASKS], 1, 0.5)
    meant = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(task.name for task in TASKS)}"
    if name in ("text-generation", "text2text-generation", "image-text-to-text"):
        meant = "; `purexport llm` (purexport.language_model) writes models that generate text"
    raise ValueError(f"task={name!r} is not a task of transformers that this writes{meant}")


def task_of(kind: Any, config: Any) -> Task:
    """What a class of transformers is for.

    Raises ExportError for one that generates text, which names `llm`, and for one of another kind, which names the
    tasks that the config has classes for.
    """
    found = next((task for task in TASKS if kind in _classes(task, config)), None)
    if found is not None and not (generates(kind) and getattr(config, "is_encoder_decoder", False)):
        return found
    if generates(kind):
        raise _generates(kind.__name__)
    raise ExportError(
        f"no task has the class {kind.__name__}; give the task with --task (task=): "
        f"{', '.join(_tasks(config)) or 'its config has no class for any'}",
        code="no-task",
    )


def class_for(config: Any, asked: Task | None) -> tuple[Any, Task]:
    """The class that a folder's config names, or the one for the task that is asked for; and the task.

    Raises ExportError as `task_of` does, and where transformers has no class of this config for the task.
    """
    classes = list(_named(config))
    if asked is None:
        if classes:
            return classes[0], task_of(classes[0], config)
        if getattr(config, "architectures", None):
            raise ExportError(
                f"config.json: architectures names {shown(config.architectures[0])}, which is not a model of "
                "transformers; a newer release may have it",
                code="no-task",
            )
        found = next(iter(_classes(task_named(FEATURES), config)), None)
        if found is None:
            raise _no_class(config, FEATURES)
        return found, task_of(found, config)
    fitting = list(_classes(asked, config))
    if not fitting:
        raise _no_class(config, asked.name)
    return next((kind for kind in classes if kind in fitting), fitting[0]), asked


def generates(kind: Any) -> bool:
    """Whether a class of transformers generates text."""
    return issubclass(kind, library("generation").GenerationMixin)


def is_of_library(kind: Any) -> bool:
    """Whether a class is one of transformers itself, and not one of somebody's own."""
    return bool(kind.__module__.partition(".")[0] == "transformers")


def task_for(kind: Any, config: Any, asked: Task | None) -> Task:
    """The task of a model of a class, or the one that is asked for.

    Raises ExportError as `task_of` does, and for a class of transformers that is for something else than what is asked.
    """
    if asked is None:
        return task_of(kind, config)
    fitting = list(_classes(asked, config))
    if kind in fitting or not is_of_library(kind):
        return asked
    names = " or ".join(one.__name__ for one in fitting)
    raise ExportError(
        f"{kind.__name__} is not a model for {asked.name}"
        + (f"; give a {names}, or the folder of the model" if names else f", and no {type(config).__name__} has one"),
        code="no-task",
    )


def is_encoder(config: Any) -> bool:
    """Whether models of a config see a whole text at once, and guess hidden tokens of it."""
    mapping = library("models.auto.modeling_auto").MODEL_FOR_MASKED_LM_MAPPING
    reads_then_writes = getattr(config, "is_encoder_decoder", False)
    return type(config) in mapping and not reads_then_writes and not getattr(config, "is_decoder", False)


def is_decoder(config: Any) -> bool:
    """Whether models of a config see the tokens before a token only."""
    return type(config) in library("models.auto.modeling_auto").MODEL_FOR_CAUSAL_LM_MAPPING and not is_encoder(config)


def _named(config: Any) -> Iterator[Any]:
    transformers = library()
    for name in getattr(config, "architectures", None) or ():
        found = getattr(transformers, name, None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            yield found


def _classes(task: Task, config: Any) -> Iterator[Any]:
    mappings = library("models.auto.modeling_auto")
    for name in task.mappings:
        mapping = getattr(mappings, name, {})
        if type(config) in mapping:
            found = mapping[type(config)]
            yield from found if isinstance(found, tuple) else (found,)


def _tasks(config: Any) -> list[str]:
    return [task.name for task in TASKS if any(True for _ in _classes(task, config))]


def _generates(name: str) -> ExportError:
    return ExportError(
        f"{name} generates text, and `purexport llm` (purexport.language_model) writes such models; with "
        "--task feature-extraction the model without its head is written",
        code="generates-text",
    )


def _no_class(config: Any, task: str) -> ExportError:
    known = _tasks(config)
    return ExportError(
        f"transformers has no class for {task} with a {type(config).__name__}; "
        + (f"it has some for {listed(known)}" if known else "it has none for any task that this writes"),
        code="no-task",
    )
