"""Build a language model from its configuration, and load it from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from onlstm.language_model import LanguageModel, LanguageModelBase
from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.prpn import PRPN
from tasks.language_model.vocabulary import END, Vocabulary
from tasks.runs.checkpoints import load_weights, read_metadata
from tasks.runs.errors import UserError
from tasks.runs.hub import find_checkpoint
from tasks.runs.machine import default_device
from tasks.runs.options import argument_error
from tasks.runs.saved_config import check_architecture, config_to_dict, read_config

_ARGUMENTS = ("vocabulary_size", "recurrent", "recurrent_dropout")
"""Arguments of the models that a config.json contains but that are not options of the task."""


class Trained(NamedTuple):
    """A trained language model.

    Args:
        model: model in evaluation mode, on the GPU if there is one.
        vocabulary: its vocabulary.
        config: its training configuration.
    """

    model: LanguageModelBase
    vocabulary: Vocabulary
    config: LanguageModelConfig

    def save_pretrained(self, directory: Path, **card: Any) -> None:
        """Write a directory that `load_model` and `from_pretrained` of the model's class can read.

        Args:
            directory: created if it does not exist.
            card: values of the model card; see `ordered_memory.hub.HubMixin.generate_model_card`.
        """
        arguments = self.model.arguments | {"vocabulary": self.vocabulary.words}
        options = config_to_dict(self.config) | arguments
        self.model.save_pretrained(directory, config=options, model_card_kwargs=card)


def build_model(config: LanguageModelConfig, vocabulary_size: int) -> LanguageModelBase:
    """Build a language model with random initial weights.

    Args:
        config: model, sizes and dropout.
        vocabulary_size: number of words, `<eos>` included.
    Raises:
        UserError: the model does not accept an option.
    """
    sizes = (vocabulary_size, config.embedding_size, config.hidden_size, config.num_layers)
    shared: dict[str, Any] = {
        "tied": config.tied,
        "embedding_dropout": config.embedding_dropout,
        "input_dropout": config.input_dropout,
        "hidden_dropout": config.hidden_dropout,
        "output_dropout": config.output_dropout,
    }
    try:
        if config.model == "prpn":
            return PRPN(
                *sizes,
                num_slots=config.num_slots,
                look_back=config.look_back,
                recurrent_dropout=config.weight_dropout,
                **shared,
            )
        return LanguageModel(
            *sizes,
            recurrent=config.model,
            chunk_size=config.chunk_size,
            weight_dropout=config.weight_dropout,
            backend=config.backend,
            **shared,
        )
    except ValueError as error:
        raise argument_error(error, config) from None


def load_model(path: Path, config: LanguageModelConfig | None = None) -> Trained:
    """Load a model from a checkpoint, onto the GPU if there is one.

    Args:
        path: a run's best.safetensors, a directory that `Trained.save_pretrained` wrote, or the name of a
            model on the Hugging Face Hub.
        config: replaces the training configuration; of the same architecture. None keeps it.
    Raises:
        UserError: the file does not exist, is not a checkpoint of a language model or does not fit `config`.
    """
    path = find_checkpoint(path)
    metadata = read_metadata(path)
    words = metadata.pop("vocabulary", None)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError(f"{path}: not a checkpoint of a language model")
    if words[:1] != [END] or len(set(words)) != len(words):
        raise UserError(f"{path}: its vocabulary must begin with {END} and have no duplicates")
    if "preset" not in metadata:  # a LanguageModel that was saved by itself
        raise UserError(
            f"{path}: lacks the options of its run, which python -m tasks.language_model export writes"
        )
    for name in _ARGUMENTS:
        metadata.pop(name, None)
    saved = read_config(LanguageModelConfig, metadata, path)
    config = config or saved
    check_architecture(saved, config, path)
    vocabulary = Vocabulary(words)
    model = build_model(config, len(vocabulary))
    load_weights(path, model)
    model.to(default_device())
    return Trained(model.eval(), vocabulary, config)
