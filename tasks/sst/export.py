"""Export the trained models that come with the project: one file per model, and one with the word vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.classifiers.word_embedding import WordEmbedding
from tasks.runs.checkpoints import save_tensors
from tasks.runs.errors import UserError
from tasks.runs.saved_config import config_to_dict
from tasks.sst.embedding import EMBEDDING, SHARED, WORDS, describe
from tasks.sst.model import SentimentModel
from tasks.sst.task import PRETRAINED


def export(checkpoints: Mapping[int, Path], vectors: tuple[str, ...], directory: Path = WORDS.parent) -> None:
    """Write trained models in float16, with a single file for their word vectors.

    Args:
        checkpoints: a best.safetensors for each number of classes, trained with the same vectors.
        vectors: the value of `--vectors` to save, instead of paths of the machine that trained the models.
        directory: created if it does not exist.
    Raises:
        UserError: a checkpoint cannot be read, or the models have different words or vectors.
    """
    models = {classes: SentimentModel.from_pretrained(path) for classes, path in checkpoints.items()}
    words = _shared_embedding(models, checkpoints)  # checked first: the files belong together
    directory.mkdir(parents=True, exist_ok=True)
    save_tensors(directory / WORDS.name, _in_16_bits({"weight": words.weight}), describe(words))
    for classes, model in models.items():
        weights = {
            name: tensor for name, tensor in model.state_dict().items() if not name.startswith("embedding.")
        }
        config = replace(model.config, data_dir=None, run_dir=None, initial_weights=None, vectors=vectors)
        metadata: dict[str, Any] = config_to_dict(replace(config, resume=False, threads=None))
        save_tensors(
            directory / PRETRAINED[classes].name, _in_16_bits(weights), metadata | {EMBEDDING: SHARED}
        )


def _shared_embedding(models: Mapping[int, SentimentModel], checkpoints: Mapping[int, Path]) -> WordEmbedding:
    """The word vectors of all models; raise a UserError if they differ or are not from files."""
    shared: WordEmbedding | None = None
    for classes, model in models.items():
        embedding, path = model.embedding, checkpoints[classes]
        if not isinstance(embedding, WordEmbedding) or embedding.learned:
            raise UserError(f"{path}: its word vectors are not from files")
        shared = shared or embedding
        if describe(embedding) != describe(shared) or not torch.equal(embedding.weight, shared.weight):
            raise UserError(f"{path}: its vocabulary or its vectors differ from those of the other models")
    assert shared is not None, "there are no models to export"
    return shared


def _in_16_bits(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(torch.float16) for name, tensor in tensors.items()}
