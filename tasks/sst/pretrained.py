"""How the trained models that come with the project are made: weights of each, one table of words for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.classifiers.task import EMBEDDING
from tasks.runs.checkpoints import save_tensors
from tasks.runs.errors import UserError
from tasks.runs.run_directory import config_to_dict
from tasks.sst.embedding import SHARED, WORDS, WordEmbedding
from tasks.sst.task import PRETRAINED, SST


def export(checkpoints: Mapping[int, Path], vectors: tuple[str, ...], directory: Path = WORDS.parent) -> None:
    """Write trained models in 16 bits, the vectors of their words once.

    Args:
        checkpoints: a best.safetensors for each number of classes, of the same vectors.
        vectors: names of the files of the vectors, in place of their paths where the models were trained.
        directory: made if need be.
    Raises:
        UserError: a checkpoint that cannot be read, or models with different words.
    """
    directory.mkdir(parents=True, exist_ok=True)
    words: list[str] | None = None
    for classes, path in checkpoints.items():
        model, config = SST.load_model(path)
        embedding = model.embedding
        if not isinstance(embedding, WordEmbedding) or embedding.learned:
            raise UserError(f"{path}: its vectors are not those of files")
        if words not in (None, embedding.vocabulary):
            raise UserError(f"{path}: its words are not those of the other models")
        words = embedding.vocabulary
        save_tensors(directory / WORDS.name, _in_16_bits({"weight": embedding.weight}), {"vocabulary": words})
        weights = {
            name: tensor for name, tensor in model.state_dict().items() if not name.startswith("embedding.")
        }
        metadata: dict[str, Any] = config_to_dict(
            replace(config, data_dir=None, run_dir=None, resume=False, threads=None, vectors=vectors)
        )
        save_tensors(
            directory / PRETRAINED[classes].name, _in_16_bits(weights), metadata | {EMBEDDING: SHARED}
        )


def _in_16_bits(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(torch.float16) for name, tensor in tensors.items()}
