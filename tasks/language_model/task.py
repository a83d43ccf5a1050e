"""Language modeling: the `Objective` for the training loop, evaluation, and how to run an experiment."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from onlstm.parameters import State
from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.corpus import Corpus, load_corpus, split_text
from tasks.language_model.model import Trained, build_model, load_model
from tasks.language_model.optimization import build_optimization
from tasks.language_model.report import perplexities, results_text, write_run_report
from tasks.language_model.vocabulary import EOS_ID
from tasks.runs.checkpoints import load_weights
from tasks.runs.errors import UserError
from tasks.runs.experiment import run_experiment
from tasks.runs.initial_weights import initial_checkpoint, warn_of_other_data
from tasks.runs.interfaces import Experiment, Losses, Scores, Shard, digest
from tasks.runs.machine import to_device
from tasks.runs.progress import progress_bar
from tasks.runs.run_directory import RunDirectory
from tasks.runs.seeds import train_seeds

MIN_SEGMENT, SEGMENT_DEVIATION, HALF_PROBABILITY = 5, 5, 0.05
"""Random segment lengths, as in AWD-LSTM: minimum, standard deviation, and probability of half the mean."""
IGNORE_INDEX = -100
"""Target of a token that has no next word; see `torch.nn.CrossEntropyLoss`."""


class TextBatch(NamedTuple):
    """A batch of B segments of text.

    Args:
        tokens: word ids, (T, B) int64.
        targets: ids of the next words, (T, B) int64; IGNORE_INDEX beyond the end of the text.
        first: whether this is the first segment, for which the recurrent state is reset to zeros.
    """

    tokens: Tensor
    targets: Tensor
    first: bool


class Segment(NamedTuple):
    """The part of the text that a training step reads; the text is split into columns of equal length.

    Args:
        start, stop: range of tokens in every column.
        columns: number of columns: the batch size.
    """

    start: int
    stop: int
    columns: int


class LanguageModelingObjective:
    """Truncated backpropagation through time; implements `tasks.runs.interfaces.Objective`.

    Each batch continues from the recurrent state at the end of the previous one.

    Args:
        config: batch sizes, bptt, regularization and seed.
        train, validation: word ids, (N,) int64.
    """

    def __init__(self, config: LanguageModelConfig, train: Tensor, validation: Tensor) -> None:
        self.config, self.train, self.validation = config, train, validation
        slots = ("num_slots",) if config.model == "prpn" else ()
        self.batch_options: tuple[str, ...] = ("batch_size", "bptt", *slots)
        self._training_state: list[State] = []
        self._validation_state: list[State] = []

    def fingerprint(self) -> str:
        return digest(self.train.numpy(), self.validation.numpy())

    def training_batches(self, epoch: int, batch_size: int) -> list[Segment]:
        length = len(self.train) // batch_size
        if length < 2:
            raise UserError(
                f"--batch-size {batch_size} columns are too many for {len(self.train):,} training tokens"
            )
        rng = np.random.default_rng([self.config.seed, epoch])
        cuts = [0]
        while cuts[-1] < length - 1:
            mean = self.config.bptt / (2 if rng.random() < HALF_PROBABILITY else 1)
            segment_length = max(MIN_SEGMENT, int(rng.normal(mean, SEGMENT_DEVIATION)))
            cuts.append(min(length - 1, cuts[-1] + segment_length))
        return [Segment(start, stop, batch_size) for start, stop in itertools.pairwise(cuts)]

    def shard(self, batch: Segment, rank: int, world_size: int) -> Shard:
        length = len(self.train) // batch.columns
        rows = self.train[: length * batch.columns].view(batch.columns, length)[rank::world_size]
        tokens, targets = rows[:, batch.start : batch.stop], rows[:, batch.start + 1 : batch.stop + 1]
        text = TextBatch(tokens.t().contiguous(), targets.t().contiguous(), batch.start == 0)
        return Shard(text, (batch.stop - batch.start) * batch.columns)

    def validation_batches(self, world_size: int) -> Iterator[TextBatch]:
        columns = validation_columns(self.config, len(self.validation), world_size)
        for text in bptt_segments(self.validation, columns, self.config.bptt, "validating"):
            for rank in range(world_size):
                own_columns = slice(rank, None, world_size)
                yield TextBatch(text.tokens[:, own_columns], text.targets[:, own_columns], text.first)

    def losses(self, model: nn.Module, batch: TextBatch) -> Losses:
        previous_state = self._training_state if model.training else self._validation_state
        out = model(batch.tokens, None if batch.first else previous_state)
        state = [(h.detach(), c.detach()) for h, c in out.state]
        if model.training:
            self._training_state = state
        else:
            self._validation_state = state
        logits, targets = out.logits.flatten(0, 1), batch.targets.flatten()
        if not model.training:  # training text has no end
            has_target = targets != IGNORE_INDEX
            logits, targets = logits[has_target], targets[has_target]
        penalty = self._penalty(out.raw, out.dropped) if model.training else None
        correct = torch.zeros_like(targets, dtype=torch.bool)  # accuracy is not reported
        return Losses(cross_entropy(logits, targets, reduction="none"), correct, penalty)

    def metrics(self, scores: Scores) -> dict[str, float]:
        return {"loss": scores.loss, "perplexity": perplexity(scores.loss)}

    def selection_score(self, scores: Scores) -> float:
        return -scores.loss

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}{layer}": tensor
            for layer, layer_state in enumerate(self._training_state)
            for name, tensor in zip("hc", layer_state, strict=True)
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        layers = len(state) // 2
        self._training_state = [(state[f"h{layer}"], state[f"c{layer}"]) for layer in range(layers)]

    def _penalty(self, raw: Tensor, dropped: Tensor) -> Tensor:
        """Activation and temporal activation regularization (AR and TAR) of AWD-LSTM."""
        penalty = self.config.activation_regularization * dropped.square().mean()
        if len(raw) > 1:
            penalty = penalty + self.config.temporal_regularization * (raw[1:] - raw[:-1]).square().mean()
        return penalty


def bptt_segments(text: Tensor, columns: int, length: int, label: str = "reading") -> Iterator[TextBatch]:
    """Split a text into B columns of equal length, and these into segments; every word is a target once.

    Args:
        text: word ids, (N,) int64; `<eos>` is added before the first word.
        columns: B, of which `filled_columns` have words.
        length: number of tokens of a segment.
        label: label of the progress bar.
    Yields:
        Batches of segments, in order.
    """
    steps = -(-len(text) // columns)
    padding = steps * columns - len(text)
    inputs = torch.cat([text.new_tensor([EOS_ID]), text[:-1], text.new_full((padding,), EOS_ID)])
    next_words = torch.cat([text, text.new_full((padding,), IGNORE_INDEX)])
    tokens, targets = inputs.view(columns, steps).t(), next_words.view(columns, steps).t()
    for start in progress_bar(range(0, steps, length), desc=label, unit="batch"):
        segment = slice(start, start + length)
        yield TextBatch(tokens[segment].contiguous(), targets[segment].contiguous(), start == 0)


def validation_columns(config: LanguageModelConfig, length: int, world_size: int) -> int:
    """The number of columns into which the validation text is split: the same number for each process.

    Args:
        config: evaluation batch size.
        length: number of words of the text.
        world_size: number of processes.
    """
    return max(1, min(config.evaluation_batch_size, length) // world_size) * world_size


def filled_columns(length: int, columns: int) -> int:
    """The number of columns that have words when `bptt_segments` splits a text.

    Args:
        length: number of words, N.
        columns: number of columns that was asked for.
    Example:
        >>> filled_columns(118, 100)  # of two words each
        59
    """
    steps = -(-length // columns)
    return -(-length // steps)


@torch.inference_mode()
def word_losses(model: nn.Module, text: Tensor, config: LanguageModelConfig, columns: int) -> Tensor:
    """Compute the loss of every word of a text, in this process alone.

    Args:
        model: model on any device.
        text: word ids, (N,) int64.
        config: configuration of the model.
        columns: number of columns that are read in parallel. More are faster, but the context of each column
            except the first is a single word at its start; use 1 for the exact loss.
    Returns:
        -log P(word | all words before) in nats, (N,) float64 on the CPU.
    """
    device = next(model.eval().parameters()).device
    state = None
    segment_losses = []
    for segment in bptt_segments(text, filled_columns(len(text), columns), config.bptt, "testing"):
        tokens, targets, _ = to_device(segment, device)
        out = model(tokens, state)
        state = out.state
        losses = cross_entropy(
            out.logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE_INDEX, reduction="none"
        )
        segment_losses.append(losses.view_as(targets).cpu().double())
    return torch.cat(segment_losses).t().flatten()[: len(text)]


def unigram_losses(train: Tensor, text: Tensor, vocabulary_size: int) -> Tensor:
    """Compute the loss of every word of a text under the word frequencies of the training text.

    This is a baseline that ignores all context. Each word of the vocabulary counts once more than it occurs
    (add-one smoothing).

    Args:
        train: word ids of the training text, (M,) int64.
        text: word ids, (N,) int64.
        vocabulary_size: number of words of the vocabulary.
    Returns:
        -log P(word) in nats, (N,) float64.
    """
    counts = torch.bincount(train, minlength=vocabulary_size).double() + 1
    return -(counts / counts.sum()).log()[text]


def perplexity(loss: float) -> float:
    """Compute exp(loss), clipped so that it is finite.

    Args:
        loss: mean cross-entropy in nats per word.
    """
    return math.exp(min(loss, 700.0))


def train(config: LanguageModelConfig) -> None:
    """Train, then test the best weights once and write the report; with `seeds`, once for each seed.

    Args:
        config: configuration of the run.
    Raises:
        UserError: see `run_experiment`, `prepare` and `train_seeds`.
    """
    if config.seeds == 1:
        run_experiment(config, lambda: prepare(config))
    else:
        train_seeds(train, config, perplexities, digits=2, whole=None)


def prepare(config: LanguageModelConfig) -> Experiment:
    """Load the text of a run and build its model.

    Args:
        config: configuration of the run.
    Returns:
        The argument of `run_experiment`.
    Raises:
        UserError: bad text or options.
    """
    start = initial_checkpoint(config)
    if start is None:
        corpus = load_corpus(config)
        model = build_model(config, len(corpus.vocabulary))
    else:
        trained = load_model(start, config)
        model, vocabulary = trained.model.cpu(), trained.vocabulary
        if start == config.initial_weights:
            warn_of_other_data(config, start)
        corpus = load_corpus(config, vocabulary)
    return Experiment(
        objective=LanguageModelingObjective(config, corpus.train, corpus.validation),
        model=model,
        optimization=build_optimization(model, config),
        description=(
            f"{config.model}; {len(corpus.vocabulary):,} words; {len(corpus.train):,} tokens for "
            f"training, {len(corpus.validation):,} for validation, {len(corpus.test):,} for testing"
        ),
        test=lambda run, device: _test(config, run, corpus, device),
        data={"test": digest(corpus.validation.numpy(), corpus.test.numpy())},
        results_text=results_text,
        metadata={"vocabulary": corpus.vocabulary.words},
    )


def _test(
    config: LanguageModelConfig, run: RunDirectory, corpus: Corpus, device: torch.device
) -> tuple[dict[str, Any], Callable[[], None]]:
    """Test the best weights; return the results, and a function that writes the report."""
    model = build_model(config, len(corpus.vocabulary))
    load_weights(run.best, model)
    model.to(device)
    texts = {"validation": corpus.validation, "test": corpus.test}
    losses = {name: float(word_losses(model, text, config, 1).mean()) for name, text in texts.items()}
    for name, text in texts.items():
        losses[f"{name}_unigram"] = float(unigram_losses(corpus.train, text, len(corpus.vocabulary)).mean())
    results = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **{f"{name}_loss": loss for name, loss in losses.items()},
        **{f"{name}_perplexity": perplexity(loss) for name, loss in losses.items()},
        **{f"{name}_tokens": len(text) for name, text in texts.items()},
        **{
            f"{name}_unknown": corpus.vocabulary.coverage(split_text(text, corpus.vocabulary)).unknown
            for name, text in texts.items()
        },
    }
    trained = Trained(model, corpus.vocabulary, config)
    length = len(corpus.validation)
    columns = filled_columns(length, validation_columns(config, length, config.devices))
    return results, lambda: write_run_report(run, trained, results, corpus.validation, columns)
