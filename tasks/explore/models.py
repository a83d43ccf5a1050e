"""The models of the page: those that come with the project, and checkpoints of any task."""

from __future__ import annotations

import contextlib
import io
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ordered_memory.trace import Trace
from tasks.classifiers.classification import LabeledData
from tasks.classifiers.task import ClassifierTask
from tasks.classifiers.traces import example_traces
from tasks.explore.texts import LANGUAGES, Texts
from tasks.language_model.ptb_spelling import spell
from tasks.language_model.reading import layers_of, load_with_distances, split_sentence, trace_sentence
from tasks.language_model.tokenization import Tokenizer
from tasks.listops.task import LISTOPS
from tasks.logic.task import LOGIC
from tasks.runs.checkpoints import read_metadata
from tasks.runs.errors import UserError
from tasks.runs.hub import find_checkpoint
from tasks.sst.task import PRETRAINED, SST

CLASSIFIERS: dict[str, ClassifierTask[Any]] = {"listops": LISTOPS, "logic": LOGIC, "sst": SST}
SHIPPED = {
    "ListOps": ("listops", LISTOPS.checkpoint(None)),
    "Logic": ("logic", LOGIC.checkpoint(None)),
    "SST-5": ("sst", PRETRAINED[5]),
    "SST-2": ("sst", PRETRAINED[2]),
}
"""Task and checkpoint of the models that come with the project."""
TASK_BY_KEY = {"expressions": "listops", "split": "logic", "phrases": "sst", "vocabulary": "language_model"}
"""The task of a checkpoint, by a key that only the metadata of this task have."""
MAX_SLOTS = 100
ATTEMPTS = 50
"""Maximum number of attempts to generate an example without unknown words."""


class Reading(NamedTuple):
    """What a model shows of an example.

    Args:
        traces: one for each text.
        note: a note about the words, for example which words are unknown to the model.
    """

    traces: list[Trace]
    note: str = ""


class Model(ABC):
    """A trained model on the page.

    Args:
        name: shown on the page.
        task: a key of `LANGUAGES`.
        num_slots: default number of slots; None for a model without slots.
    """

    def __init__(self, name: str, task: str, num_slots: int | None) -> None:
        self.name, self.task, self.num_slots = name, task, num_slots
        self.language = LANGUAGES[task]

    @abstractmethod
    def check(self, texts: Texts) -> None:
        """Raise a UserError unless the model can read an example.

        Args:
            texts: one for each text box of the task.
        """

    @abstractmethod
    def read(self, texts: Texts, num_slots: int | None) -> Reading:
        """Apply the model to an example.

        Args:
            texts: one for each text box of the task.
            num_slots: number of slots for this call; None for the model's own.
        Raises:
            UserError: a text is malformed or too long, or the number of slots is out of range.
        """

    def unknown_words(self, texts: Texts) -> set[str]:
        """The words of an example that are not in the model's vocabulary.

        Args:
            texts: one for each text box of the task; valid.
        """
        return set()

    def draw(self, rng: random.Random, length: int | None) -> Texts:
        """Generate an example, if possible of words that the model knows.

        Args:
            rng: source of randomness.
            length: approximate number of tokens; None for any length.
        Raises:
            UserError: the length is out of range.
        """
        return self._generate_known(lambda: self.language.draw(rng, length), set())

    def lengthen(self, rng: random.Random, texts: Texts) -> Texts:
        """Generate a longer example that contains the given one, if possible with words that the model knows.

        Args:
            rng: source of randomness.
            texts: one for each text box of the task; valid.
        """
        return self._generate_known(lambda: self.language.lengthen(rng, texts), self.unknown_words(texts))

    def _generate_known(self, generate: Callable[[], Texts], allowed: set[str]) -> Texts:
        for _ in range(ATTEMPTS):
            texts = generate()
            if self.unknown_words(texts) <= allowed:
                break
        return texts


class ClassifierModel(Model):
    """A model of ListOps, logic or sentiment.

    Args:
        name: shown on the page.
        task: a key of `CLASSIFIERS`.
        checkpoint: a file or directory.
    Raises:
        UserError: not a checkpoint of this task, or the model needs trees that typed text does not have.
    """

    def __init__(self, name: str, task: str, checkpoint: Path) -> None:
        self.classifier = CLASSIFIERS[task]
        self.model = self.classifier.model_class.from_pretrained(checkpoint)
        config = self.model.config
        if config.needs_trees and task == "sst":
            raise UserError(f"{name}: {config.model} needs the true tree of every sentence")
        has_slots = "num_slots" not in config.unused
        super().__init__(name, task, (config.test_num_slots or config.num_slots) if has_slots else None)

    def check(self, texts: Texts) -> None:
        self._data(texts)

    def read(self, texts: Texts, num_slots: int | None) -> Reading:
        data = self._data(texts)
        if num_slots is not None and not 1 <= num_slots <= MAX_SLOTS:
            raise UserError(f"the number of slots must lie in 1..{MAX_SLOTS}, got {num_slots}")
        note = io.StringIO()
        with contextlib.redirect_stderr(note):
            self.model.adapt(data)
        self.model.set_num_slots(num_slots)
        traces = example_traces(self.model, data, 0)
        return Reading(traces, note.getvalue())

    def unknown_words(self, texts: Texts) -> set[str]:
        return set(self.model.unknown_words(self.model.read_text(*texts)))

    def _data(self, texts: Texts) -> LabeledData:
        data = self.model.read_text(*texts)
        tokens = int(data.sentence_lengths.max())
        if tokens > self.language.longest:
            raise UserError(f"expected at most {self.language.longest:,} tokens, got {tokens:,}")
        return data


class DistanceModel(Model):
    """A language model with distances.

    Args:
        name: shown on the page.
        checkpoint: a file or directory.
    Raises:
        UserError: not a checkpoint of a language model, or the model has no distances.
    """

    def __init__(self, name: str, checkpoint: Path) -> None:
        super().__init__(name, "language_model", None)
        self.trained = load_with_distances(checkpoint)
        self.tokenizer = Tokenizer(self.trained.vocabulary, final_period=False)

    def check(self, texts: Texts) -> None:
        vocabulary = self.trained.vocabulary
        vocabulary.encode(spell(self._split(texts), vocabulary), "the sentence")

    def unknown_words(self, texts: Texts) -> set[str]:
        vocabulary = self.trained.vocabulary
        return {word for word in spell(self._split(texts), vocabulary) if word not in vocabulary}

    def read(self, texts: Texts, num_slots: int | None) -> Reading:
        return Reading([trace_sentence(self.trained, self._split(texts), layers_of(self.trained))])

    def _split(self, texts: Texts) -> list[str]:
        return split_sentence(texts[0], self.tokenizer, self.language.longest)


def load_models(checkpoints: Iterable[Path]) -> dict[str, Model]:
    """Load the models that come with the project, and others.

    Args:
        checkpoints: files, directories that `export` wrote, or names on the Hugging Face Hub.
    Returns:
        Models by name; the name of a checkpoint is its path.
    Raises:
        UserError: not a checkpoint of these tasks, or a language model without distances.
    """
    models: dict[str, Model] = {
        name: ClassifierModel(name, task, checkpoint) for name, (task, checkpoint) in SHIPPED.items()
    }
    for path in checkpoints:
        name, checkpoint = str(path), find_checkpoint(path)
        name = f"./{name}" if name in SHIPPED else name
        metadata = read_metadata(checkpoint)
        task = next((task for key, task in TASK_BY_KEY.items() if key in metadata), None)
        if task is None:
            raise UserError(f"{name}: not a checkpoint of {', '.join(LANGUAGES)}")
        if task == "language_model":
            models[name] = DistanceModel(name, checkpoint)
        else:
            models[name] = ClassifierModel(name, task, checkpoint)
    return models
