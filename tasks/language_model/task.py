"""Language modelling as the training loop wants it, and a run from its configuration to its report."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from onlstm.layer import State
from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.corpus import Corpus, load_corpus
from tasks.language_model.model import Trained, build_model
from tasks.language_model.optimization import build_optimization
from tasks.language_model.report import results_text, write_run_report
from tasks.language_model.vocabulary import EOS_ID
from tasks.runs.checkpoints import load_weights
from tasks.runs.errors import UserError
from tasks.runs.machine import to_device
from tasks.runs.progress import progress_bar
from tasks.runs.run_directory import RunDirectory
from tasks.runs.task import Losses, Prepared, Scores, Share, digest

SHORTEST, DEVIATION, HALVED = 5, 5, 0.05
"""Lengths of training steps: minimum, standard deviation, and the fraction drawn around half the mean."""
IGNORE_INDEX = -100
"""Target of a token without a next word."""


class Text(NamedTuple):
    """A stretch of several columns of text.

    Args:
        tokens: words, (T, B) int64.
        targets: the words after them, (T, B) int64; IGNORE_INDEX beyond the end of the text.
        first: whether the recurrent state starts from zeros.
    """

    tokens: Tensor
    targets: Tensor
    first: bool


class Stretch(NamedTuple):
    """The part of the text that a training step reads.

    Args:
        start, stop: tokens of every column.
        columns: side by side.
    """

    start: int
    stop: int
    columns: int


class LanguageModelling:
    """Batches of running text; each starts from the recurrent state at the end of the one before.

    Args:
        config: sizes of batches and steps, regularisation, seed.
        train, validation: rows of words, (N,) int64.
    Raises:
        UserError: too little text for the number of columns.
    """

    batch_options: tuple[str, ...] = ("batch_size", "bptt")

    def __init__(self, config: LanguageModelConfig, train: Tensor, validation: Tensor) -> None:
        self.config, self.train, self.validation = config, train, validation
        self._states: dict[bool, list[State]] = {}

    def fingerprint(self) -> str:
        return digest(self.train.numpy(), self.validation.numpy())

    def training_batches(self, epoch: int, batch_size: int) -> list[Stretch]:
        length = len(self.train) // batch_size
        if length < 2:
            raise UserError(
                f"--batch-size {batch_size} columns are too many for {len(self.train):,} training tokens"
            )
        rng = np.random.default_rng([self.config.seed, epoch])
        cuts = [0]
        while cuts[-1] < length - 1:
            mean = self.config.bptt / (2 if rng.random() < HALVED else 1)
            cuts.append(min(length - 1, cuts[-1] + max(SHORTEST, int(rng.normal(mean, DEVIATION)))))
        return [Stretch(start, stop, batch_size) for start, stop in itertools.pairwise(cuts)]

    def share(self, batch: Stretch, rank: int, world: int) -> Share:
        length = len(self.train) // batch.columns
        rows = self.train[: length * batch.columns].view(batch.columns, length)[rank::world]
        tokens, targets = rows[:, batch.start : batch.stop], rows[:, batch.start + 1 : batch.stop + 1]
        text = Text(tokens.t().contiguous(), targets.t().contiguous(), batch.start == 0)
        return Share(text, (batch.stop - batch.start) * batch.columns)

    def validation_batches(self, world: int) -> Iterator[Text]:
        most = min(self.config.evaluation_batch_size, len(self.validation))
        columns = max(1, most // world) * world
        for text in stretches(self.validation, columns, self.config.bptt, "validating"):
            for rank in range(world):
                part = slice(rank, None, world)
                yield Text(text.tokens[:, part], text.targets[:, part], text.first)

    def losses(self, model: nn.Module, batch: Text) -> Losses:
        state = None if batch.first else self._states[model.training]
        out = model(batch.tokens, state)
        self._states[model.training] = [(h.detach(), c.detach()) for h, c in out.state]
        logits, targets = out.logits.flatten(0, 1), batch.targets.flatten()
        if not model.training:  # training text has no end
            there = targets != IGNORE_INDEX
            logits, targets = logits[there], targets[there]
        penalty = self._penalty(out.raw, out.dropped) if model.training else None
        uncounted = torch.zeros_like(targets, dtype=torch.bool)  # the best word takes a while to find
        return Losses(cross_entropy(logits, targets, reduction="none"), uncounted, penalty)

    def metrics(self, scores: Scores) -> dict[str, float]:
        return {"loss": scores.loss, "perplexity": perplexity(scores.loss)}

    def selection_score(self, scores: Scores) -> float:
        return -scores.loss

    def state(self) -> dict[str, Tensor]:
        state = self._states.get(True, [])
        return {
            f"{name}{layer}": tensor
            for layer, of_layer in enumerate(state)
            for name, tensor in zip("hc", of_layer, strict=True)
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        layers = len(state) // 2
        self._states[True] = [(state[f"h{layer}"], state[f"c{layer}"]) for layer in range(layers)]

    def _penalty(self, raw: Tensor, dropped: Tensor) -> Tensor:
        """Activation regularisation and temporal activation regularisation of AWD-LSTM."""
        penalty = self.config.activation_regularization * dropped.square().mean()
        if len(raw) > 1:
            penalty = penalty + self.config.temporal_regularization * (raw[1:] - raw[:-1]).square().mean()
        return penalty


def stretches(text: Tensor, columns: int, length: int, doing: str = "reading") -> Iterator[Text]:
    """A text cut into columns side by side, from top to bottom; every word is a target once.

    Args:
        text: (N,) int64; `<eos>` precedes its first word.
        columns: B.
        length: tokens of a stretch.
        doing: label of the progress bar.
    Yields:
        Stretches in order, the first of them marked.
    """
    height = -(-len(text) // columns)
    missing = height * columns - len(text)
    before = torch.cat([text.new_tensor([EOS_ID]), text[:-1], text.new_full((missing,), EOS_ID)])
    after = torch.cat([text, text.new_full((missing,), IGNORE_INDEX)])
    tokens, targets = before.view(columns, height).t(), after.view(columns, height).t()
    for start in progress_bar(range(0, height, length), desc=doing, unit="batch"):
        part = slice(start, start + length)
        yield Text(tokens[part].contiguous(), targets[part].contiguous(), start == 0)


@torch.inference_mode()
def evaluate(model: nn.Module, text: Tensor, config: LanguageModelConfig, columns: int) -> float:
    """The mean loss on a text, nats a word, computed in this process alone.

    Args:
        model: on any device.
        text: (N,) int64.
        config: of the model.
        columns: one is exact, more are faster: each but the first knows one word of what came before it.
    """
    device = next(model.eval().parameters()).device
    task = LanguageModelling(config, text, text)
    total = 0.0
    for part in stretches(text, min(columns, len(text)), config.bptt, "testing"):
        total += float(task.losses(model, to_device(part, device)).loss.double().sum())
    return total / len(text)


def perplexity(loss: float) -> float:
    """exp(loss), kept finite.

    Args:
        loss: mean cross-entropy, nats a word.
    """
    return math.exp(min(loss, 700.0))


def train(config: LanguageModelConfig) -> None:
    """Train, then test the best weights once and write the report.

    Args:
        config: of the run.
    Raises:
        UserError: see `run_experiment` and `prepare`.
    """
    from tasks.runs.experiment import (
        run_experiment,  # only training imports Lightning Fabric, which takes long
    )

    run_experiment(config, lambda: prepare(config))


def prepare(config: LanguageModelConfig) -> Prepared:
    """Load the text of a run and build its model.

    Args:
        config: of the run.
    Returns:
        What `run_experiment` trains and tests.
    Raises:
        UserError: bad text.
    """
    corpus = load_corpus(config)
    model = build_model(config, len(corpus.vocabulary))
    return Prepared(
        task=LanguageModelling(config, corpus.train, corpus.validation),
        model=model,
        optimization=build_optimization(model, config),
        description=(
            f"{config.model}; {len(corpus.vocabulary):,} words; {len(corpus.train):,} tokens for "
            f"training, {len(corpus.validation):,} for validation, {len(corpus.test):,} for testing"
        ),
        test=lambda run, device: _test(config, run, corpus, device),
        results_text=results_text,
        metadata={"vocabulary": corpus.vocabulary.words},
    )


def _test(
    config: LanguageModelConfig, run: RunDirectory, corpus: Corpus, device: torch.device
) -> dict[str, Any]:
    """Results of the best weights; writes the report."""
    model = build_model(config, len(corpus.vocabulary))
    load_weights(run.best, model)
    model.to(device)
    parts = {"validation": corpus.validation, "test": corpus.test}
    losses = {name: evaluate(model, text, config, 1) for name, text in parts.items()}
    results = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **{f"{name}_loss": loss for name, loss in losses.items()},
        **{f"{name}_perplexity": perplexity(loss) for name, loss in losses.items()},
        **{f"{name}_tokens": len(text) for name, text in parts.items()},
    }
    write_run_report(run, Trained(model, corpus.vocabulary, config), results, corpus.validation)
    return results
