"""The embeddings of the sentiment models, and how a checkpoint describes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from tasks.classifiers.word_embedding import WordEmbedding
from tasks.runs.checkpoints import read_metadata
from tasks.runs.errors import UserError
from tasks.sst.config import SentimentConfig
from tasks.sst.contextual import ContextualEmbedding

EMBEDDING = "embedding"
"""The key of `describe` in the metadata of a checkpoint."""
SHARED = "shared"
"""The description of the embedding in the checkpoints that come with the project: its vectors are in
`WORDS`."""
WORDS = Path(__file__).with_name("pretrained") / "words.safetensors"


Embedding = WordEmbedding | ContextualEmbedding


def describe(embedding: Embedding) -> Any:
    """Describe an embedding, so that `restore` can rebuild it from a checkpoint.

    Args:
        embedding: embedding of the model.
    Returns:
        JSON values: vocabulary and embedding size, and `num_initial_words` if words were added later; or the
        fingerprint of a contextual encoder.
    """
    if isinstance(embedding, ContextualEmbedding):
        return {"fingerprint": embedding.fingerprint}
    words, first = embedding.vocabulary, embedding.num_initial_words
    later = {} if first == len(words) else {"num_initial_words": first}
    return {"vocabulary": words, "size": embedding.embedding_size, **later}


def restore(config: SentimentConfig, description: Any) -> Embedding:
    """Rebuild the embedding of a checkpoint; its weights are loaded later.

    Args:
        config: the training configuration.
        description: what `describe` returned, or `SHARED`.
    Raises:
        UserError: the contextual encoder has changed since training, or the description is malformed.
    """
    if config.encoder is not None:
        contextual = ContextualEmbedding(config.encoder, fine_tune=config.fine_tune)
        if description != describe(contextual):
            raise UserError(
                f"--encoder {config.encoder} has changed since training: its weights or vocabulary differ"
            )
        return contextual
    if description == SHARED:
        if config.learns_embeddings:
            raise UserError("--vectors none: the word vectors of this model are from files, not learned")
        return _shared_embedding()
    match description:
        case {"vocabulary": [str(), *_] as words, "size": int(size), **rest} if size > 0:
            first = rest.get("num_initial_words", len(words))
            if isinstance(first, int) and 0 < first <= len(words):
                return WordEmbedding(words, size, learned=config.learns_embeddings, num_initial_words=first)
    raise UserError("not a checkpoint of a sentiment model: it does not describe its embedding")


def _shared_embedding() -> WordEmbedding:
    """The vectors that come with the project, which its checkpoints share."""
    values, metadata = load_file(WORDS)["weight"], read_metadata(WORDS)
    first = metadata.get("num_initial_words")
    embedding = WordEmbedding(metadata["vocabulary"], values.shape[1], saved=False, num_initial_words=first)
    embedding.weight.copy_(values)
    return embedding
