"""Trained classifiers in a line: loaded by name, given text, they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Self

from torch import Tensor, nn

from ordered_memory.hub import HubMixin
from ordered_memory.trees import Tree
from tasks.classifiers.classification import LabelledData
from tasks.classifiers.encoders import EncoderConfig
from tasks.classifiers.evaluation import read
from tasks.runs.checkpoints import write_directory
from tasks.runs.hub import find_checkpoint
from tasks.runs.run_directory import config_to_dict


class Answer(NamedTuple):
    """What a model makes of a text.

    Args:
        answer: the most probable class.
        probabilities: of every class, by name.
        trees: induced trees, one for each sentence; None for a model that induces none.
    """

    answer: str
    probabilities: dict[str, float]
    trees: tuple[Tree, ...] | None


class Classifier(nn.Module, HubMixin, pipeline_tag="text-classification"):
    """What the models of classification tasks share.

    Args:
        config: of the training.
    """

    classes: tuple[str, ...]
    """Names of the answers, in the order of the labels."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config

    @staticmethod
    def read_text(*texts: str) -> LabelledData:
        """An example as its words.

        Args:
            texts: of its sentences.
        Returns:
            A data set of one example.
        Raises:
            UserError: the text is not one of the task.
        """
        raise NotImplementedError

    @classmethod
    def load(cls, path: Path) -> Self:
        """The model of a checkpoint, in evaluation mode.

        Args:
            path: a best.safetensors or a directory.
        Raises:
            UserError: no such file, or not a checkpoint of this task.
        """
        raise NotImplementedError

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **options: Any) -> Self:
        """A saved model, in evaluation mode.

        Args:
            pretrained_model_name_or_path: a directory that `save_pretrained` or the verb `export` wrote, a
                run's best.safetensors, or a name on the Hugging Face Hub, "owner/name".
            options: of `huggingface_hub.snapshot_download`, such as `revision` and `token`.
        Raises:
            UserError: no such model, or one of another task.
        """
        return cls.load(find_checkpoint(pretrained_model_name_or_path, **options))

    def answer(self, *texts: str) -> Answer:
        """Read one example, on the CPU and in evaluation mode.

        Args:
            texts: as the task writes them: one expression or sentence, or two formulas.
        Raises:
            UserError: not such a text.
        """
        reading = read(self, self.read_text(*texts), 0, self.config.test_num_slots)
        probabilities = dict(zip(self.classes, reading.probabilities.tolist(), strict=True))
        return Answer(max(probabilities, key=lambda name: probabilities[name]), probabilities, reading.trees)

    def metadata(self) -> dict[str, Any]:
        """What a checkpoint says of the model beside its weights, as JSON values."""
        return config_to_dict(self.config)

    def weights(self) -> dict[str, Tensor]:
        """What a checkpoint has of the model, whole."""
        return self.state_dict()

    def _save_pretrained(self, save_directory: Path) -> None:
        write_directory(save_directory, self.weights(), self.metadata())
