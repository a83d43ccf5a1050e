"""The subcommand `language-model`: time a step of the language model with ON-LSTM and with nn.LSTM."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasks.benchmark.config import MeasurementConfig
from tasks.benchmark.contender import LSTM, Contender, ModuleContender, as_in_training
from tasks.benchmark.figures import contender_figures, tables
from tasks.benchmark.measure import describe, interleave, machine_line
from tasks.language_model.config import PRESETS
from tasks.language_model.model import build_model
from tasks.language_model.optimization import AveragedSGD
from tasks.language_model.task import LanguageModelingObjective, TextBatch
from tasks.runs.command_line import Subcommand
from tasks.runs.command_options import print_after
from tasks.runs.options import check_at_least

OPTIMIZER = "with nn.LSTM: clipping, SGD"


@dataclass
class LanguageModelBenchmarkConfig(MeasurementConfig):
    """Time a training step and a forward pass of the language model, with ON-LSTM and with nn.LSTM.

    A training step includes gradient clipping and the optimizer. The parts outside the recurrent layers are
    also timed.
    """

    preset: Literal["small", "paper"] = "paper"
    """The preset of the task whose sizes, dropout and batch size are used."""
    vocabulary: int = 10_000
    """Number of words."""

    def check(self) -> None:
        super().check()
        check_at_least(2, self, "vocabulary")


def _run(config: LanguageModelBenchmarkConfig) -> None:
    """Print the tables; with `--json`, write the results."""
    config.set_up()
    options = replace(PRESETS[config.preset], seed=config.seed)
    if config.quick:
        options = replace(options, embedding_size=20, hidden_size=20, bptt=6, batch_size=2)
    torch.manual_seed(config.seed)
    shape = options.bptt, options.batch_size
    tokens, targets = torch.randint(config.vocabulary, (2, *shape), device=config.device)
    text = TextBatch(tokens, targets, first=True)
    contenders: dict[str, Contender] = {}
    for name, model in (("ON-LSTM", "onlstm"), (LSTM, "lstm")):
        model_name: Any = model
        model_options = replace(options, model=model_name)
        network = build_model(model_options, config.vocabulary).to(config.device)
        contenders[name] = _training_contender(network, model_options, text)
    contenders["of both: output layer, loss"] = _output_layer(
        options.embedding_size, config.vocabulary, targets, config.device
    )
    contenders[OPTIMIZER] = _Optimizer(deepcopy(network), options)
    times = interleave(contenders, 1, repeats=config.repeats, device=config.device)
    figures = contender_figures(times, "tokens", tokens.numel())
    training_figures = {
        name: value for name, value in figures[OPTIMIZER].items() if not name.startswith("infer")
    }
    figures[OPTIMIZER] = training_figures  # an evaluation has no such step
    machine = describe(config)
    layers = f"{options.embedding_size} → {options.hidden_size}, {options.num_layers} layers"
    heading = f"language model: {layers}, {config.vocabulary:,} words, T={shape[0]} B={shape[1]}"
    lines = [heading, machine_line(machine, "random weights"), tables(figures, "tokens")]
    names = ("preset", "embedding_size", "hidden_size", "num_layers", "bptt", "batch_size")
    sizes = {name: getattr(options, name) for name in names} | {"vocabulary": config.vocabulary}
    with print_after("\n".join(lines)):
        config.write({**machine, **sizes, "contenders": figures})


def _training_contender(model: nn.Module, config: Any, text: TextBatch) -> ModuleContender[TextBatch]:
    """A training step as in the task."""
    losses = partial(LanguageModelingObjective(config, text.tokens, text.tokens).losses, model)
    optimizer = AveragedSGD(model, config).optimizer
    return as_in_training(model, [text], losses, losses, optimizer, config.gradient_clip)


def _output_layer(size: int, vocabulary: int, targets: Tensor, device: str) -> ModuleContender[Tensor]:
    """The output layer and the cross-entropy."""
    layer = nn.Linear(size, vocabulary, device=device)
    hidden = torch.randn(targets.numel(), size, device=device)

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(layer(x), targets.flatten(), reduction="none").mean()

    return ModuleContender(
        layer, [hidden], loss=loss, forward=loss, prepare=lambda x: x.detach().requires_grad_()
    )


class _Optimizer:
    """Clipping and a step of SGD on random gradients; nothing in evaluation."""

    def __init__(self, model: nn.Module, config: Any) -> None:
        self.model, self.clip = model, config.gradient_clip
        self.optimizer = AveragedSGD(model, config).optimizer

    def training_step(self, index: int) -> Callable[[], None]:
        for parameter in self.model.parameters():
            parameter.grad = torch.randn_like(parameter) / 100

        def run() -> None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()

        return run

    def evaluation(self, index: int) -> Callable[[], None]:
        return lambda: None


LANGUAGE_MODEL = Subcommand(LanguageModelBenchmarkConfig, _run)
