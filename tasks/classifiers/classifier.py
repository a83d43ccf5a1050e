"""Classifiers with `from_pretrained`, and with an `answer` method that takes text."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from torch import nn

from ordered_memory.checks import positive_int
from ordered_memory.hub import HubMixin
from ordered_memory.trees import Span, Tree
from tasks.classifiers.classification import LabeledData, Prediction, Sentence, check_data
from tasks.classifiers.config import EncoderConfig
from tasks.classifiers.evaluation import evaluate, predict_example
from tasks.runs.checkpoints import load_weights, read_metadata, write_directory
from tasks.runs.errors import UserError
from tasks.runs.hub import find_checkpoint
from tasks.runs.saved_config import check_architecture, config_to_dict, read_config

CLASS_NAMES = "class_names"
"""The key of the names of the classes in the metadata of a checkpoint."""


class Answer(NamedTuple):
    """A model's prediction for a text.

    Args:
        answer: the most probable class.
        probabilities: probability of each class, by name.
        trees: the induced trees, one for each sentence; None for a model that induces none.
    """

    answer: str
    probabilities: dict[str, float]
    trees: tuple[Tree, ...] | None


class Classifier(nn.Module, HubMixin, pipeline_tag="text-classification"):
    """Base class of the models of classification tasks.

    Args:
        config: the training configuration.
    """

    config_class: type[EncoderConfig]
    """The class of its training configuration."""
    saved_arguments: tuple[str, ...] = ()
    """Names of the arguments of `build`, besides the configuration, that `metadata` contains."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of the labels."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config: Any = config

    @classmethod
    def build(cls, config: Any, **saved: Any) -> Self:
        """Build the model of a checkpoint; its weights are loaded later.

        Args:
            config: the training configuration.
            **saved: `saved_arguments`, from the checkpoint. By default they are arguments of the constructor.
        Raises:
            UserError: the encoder does not accept an option.
        """
        return cls(config, **saved)

    def forward(self, batch: Any) -> Prediction:
        """Compute the logits of a batch.

        Args:
            batch: B examples, with trees if the encoder needs them.
        Returns:
            Logits, and what the encoder returned.
        """
        raise NotImplementedError

    def set_num_slots(self, num_slots: int | None = None) -> None:
        """Set the number of memory slots for later calls. Without `self.encoder.num_slots` it does nothing.

        Args:
            num_slots: number of slots, at least 1; None for `test_num_slots` of the configuration or, where
                that is None, its `num_slots`.
        """
        if num_slots is None:
            num_slots = self.config.test_num_slots or self.config.num_slots
        num_slots = positive_int("num_slots", num_slots)
        encoder: Any = getattr(self, "encoder", None)
        if hasattr(encoder, "num_slots"):
            encoder.num_slots = num_slots

    def node_values(self, sentence: Sentence, tree: Tree | None) -> Mapping[Span, float] | None:
        """The model's value in [-1, 1] for each node of a tree, single words (i, i) included.

        Args:
            sentence: the sentence.
            tree: over its words; None for the values of single words alone.
        Returns:
            None in tasks whose nodes have no value.
        """
        return None

    def unknown_words(self, data: LabeledData) -> list[str]:
        """The words of a data set that are not in the model's vocabulary, without duplicates.

        Args:
            data: what `read_examples` returned, for instance.
        """
        return []

    def adapt(self, data: LabeledData) -> None:
        """Prepare the model for new data, for example with vectors of words that it lacks.

        Called before a trained model reads data. By default it does nothing.

        Args:
            data: the data that the model will read.
        """

    @classmethod
    def read_text(cls, *texts: str) -> LabeledData:
        """Parse the text of one example.

        Args:
            texts: one for each sentence of the example.
        Returns:
            A data set with one example.
        Raises:
            UserError: the text is not well-formed, or the example has another number of texts.
        """
        return cls.read_examples([texts])

    @staticmethod
    def read_examples(examples: Sequence[Sequence[str]]) -> LabeledData:
        """Parse the texts of examples. Each task implements this.

        Args:
            examples: the texts of each example, one for each of its sentences.
        Returns:
            A data set with these examples, in their order.
        Raises:
            UserError: a text is not well-formed, or an example has another number of texts.
        """
        raise NotImplementedError("a task that reads text must implement read_examples")

    @classmethod
    def read_checked_examples(
        cls, examples: Sequence[Sequence[str]], name: Callable[[int], str]
    ) -> LabeledData:
        """Parse the texts of examples, none of which may be empty. An error names the example.

        Args:
            examples: the texts of each example.
            name: the name of an example, given its index.
        Raises:
            UserError: a text is empty or not well-formed, or an example has another number of texts.
        """
        try:
            data = cls.read_examples(examples)
        except UserError:
            for index, texts in enumerate(examples):
                try:
                    cls.read_examples([texts])
                except UserError as error:
                    raise UserError(f"{name(index)}: {error}") from None
            raise
        empty = np.flatnonzero((data.sentence_lengths < 1).any(1))
        if empty.size:
            raise UserError(f"{name(int(empty[0]))}: expected one token or more, got none")
        return data

    @staticmethod
    def check_texts(texts: Sequence[str], number: int, kind: str) -> None:
        """Check that the texts of one example are complete.

        Args:
            texts: the caller's arguments.
            number: how many texts an example has.
            kind: what they are, for the error message.
        Raises:
            UserError: another number of texts, or something else than text.
        """
        if len(texts) != number or not all(isinstance(text, str) for text in texts):
            raise UserError(f"expected {number} {kind} as text, got {reprlib.repr(texts)}")

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Any,
        *,
        config: EncoderConfig | None = None,
        occupancy_threshold: float | None = None,
        **options: Any,
    ) -> Self:
        """Load a pretrained model, in evaluation mode, with the number of slots of `test_num_slots`.

        Args:
            pretrained_model_name_or_path: a directory that `save_pretrained` or `export` wrote, a
                run's best.safetensors, or the name of a model on the Hugging Face Hub, "owner/name".
            config: replaces the training configuration; of the same architecture. None keeps it.
            occupancy_threshold: replaces the configured value; None keeps it.
            options: passed to `huggingface_hub.snapshot_download`, such as `revision` and `token`.
        Raises:
            UserError: the model does not exist, belongs to another task or does not fit `config`.
            TypeError: there is no such option.
        """
        path = find_checkpoint(pretrained_model_name_or_path, **options)
        metadata = read_metadata(path)
        for key in cls.saved_arguments:
            if key not in metadata:
                raise UserError(f"{path}: not a checkpoint of this task (it lacks {key})")
        arguments = {key: metadata.pop(key) for key in cls.saved_arguments}
        names = metadata.pop(CLASS_NAMES, None)  # those that come with the project have none
        saved = read_config(cls.config_class, metadata, path)
        config = config or saved
        check_architecture(saved, config, path)
        if occupancy_threshold is not None:
            config = replace(config, occupancy_threshold=occupancy_threshold)
        model = cls.build(config, **arguments)
        if names is not None and names != list(model.classes):
            raise UserError(
                f"{path}: trained with the classes {reprlib.repr(names)}, not {reprlib.repr(model.classes)}"
            )
        model.load(path, saved)
        model.set_num_slots()
        return model.eval()

    def load(self, path: Path, saved: Any) -> None:
        """Load the weights of a checkpoint.

        Args:
            path: a best.safetensors or an exported directory.
            saved: the configuration that the weights were trained with.
        Raises:
            UserError: the weights do not fit.
        """
        load_weights(path, self)

    def answer(self, *texts: str) -> Answer:
        """Predict the class of one example, on the CPU. The model is in evaluation mode afterwards.

        A model that `from_pretrained` loaded has the number of slots of the test, any other that of training:
        see `set_num_slots`.

        Args:
            texts: one expression or sentence, or two formulas, as the task writes them.
        Raises:
            UserError: the text is not well-formed, or the example has another number of texts.
        """
        data = self.read_text(*texts)
        check_data(data, len(self.classes), "input")
        self.adapt(data)
        prediction = predict_example(self, data, 0)
        probabilities = dict(zip(self.classes, prediction.probabilities.tolist(), strict=True))
        best = max(probabilities, key=lambda name: probabilities[name])
        return Answer(best, probabilities, prediction.trees)

    def answers(self, examples: Iterable[str | Sequence[str]], *, batch_size: int = 256) -> list[Answer]:
        """Predict the classes of many examples, on the model's device; see `answer`.

        Args:
            examples: the text of each example or, where an example has several, a sequence of them.
            batch_size: maximum number of examples in a batch.
        Returns:
            The answers, in the order of the examples.
        Raises:
            UserError: a text is not well-formed, or an example has another number of texts; the message names
                the example, counted from 0.
            TypeError: `examples` is a single text.
        """
        if isinstance(examples, str):
            raise TypeError(f"examples must be a list of texts, got the text {reprlib.repr(examples)}")
        texts = [
            tuple(example) if isinstance(example, Iterable) and not isinstance(example, str) else (example,)
            for example in examples
        ]
        if not texts:
            return []
        data = self.read_checked_examples(texts, lambda index: f"example {index}")
        check_data(data, len(self.classes), "input")
        self.adapt(data)
        evaluation = evaluate(self, data, batch_size=batch_size)
        trees: Sequence[tuple[Tree, ...] | None] = evaluation.trees or [None] * len(texts)
        rows = zip(evaluation.predicted, evaluation.probabilities.tolist(), trees, strict=True)
        return [
            Answer(self.classes[best], dict(zip(self.classes, probabilities, strict=True)), of_example)
            for best, probabilities, of_example in rows
        ]

    def metadata(self) -> dict[str, Any]:
        """The content of config.json in an exported directory: JSON values.

        Models with `saved_arguments` add these.
        """
        return config_to_dict(self.config) | {CLASS_NAMES: list(self.classes)}

    def _save_pretrained(self, save_directory: Path) -> None:
        write_directory(save_directory, self.state_dict(), self.metadata())
