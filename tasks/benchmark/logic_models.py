"""The verb `logic`: what a training step and an answer cost, for every model of the logic task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from lightning_fabric.utilities.apply_func import move_data_to_device
from torch.nn.functional import cross_entropy

from tasks.benchmark.config import MeasurementConfig, check_output
from tasks.benchmark.contender import ModuleContender
from tasks.benchmark.figures import contender_figures, tables
from tasks.benchmark.machine import describe, machine_line
from tasks.benchmark.measure import interleave
from tasks.classifiers.batching import bucketed_batches
from tasks.logic.config import LogicConfig, ModelName
from tasks.logic.data import Batch, Dataset, Pair
from tasks.logic.generator import generate
from tasks.logic.model import LogicModel
from tasks.runs.errors import UserError
from tasks.runs.optimization import PlateauAdam
from tasks.runs.options import check_at_least
from tasks.runs.run_directory import write_json

DRAWN = 60_000
"""Pairs drawn, so that a batch has like lengths as in training."""


@dataclass
class LogicModelsConfig(MeasurementConfig):
    """Time a training step (optimizer included) and the answers of every model of the logic task, at the
    paper's sizes, on drawn pairs of at most 6 operations."""

    models: tuple[ModelName, ...] = get_args(ModelName)
    """Models to time."""
    batches: int = 4
    """Batches, spread evenly over the lengths of an epoch."""
    batch_size: int = 128
    """Pairs in a batch."""
    slot_size: int = 200
    """Hidden size of every model, slot size of Ordered Memory."""
    json: Path | None = None
    """Also write the results to this file."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "batches", "batch_size", "slot_size")
        if not self.models:
            raise UserError("--models must name at least one model")
        for model in self.models:
            self.model_config(model).check()
        check_output(self.json, "--json")

    def model_config(self, model: ModelName) -> LogicConfig:
        """The configuration of one of the models.

        Args:
            model: as named by `--model` of `tasks.logic`.
        """
        return LogicConfig(
            model=model, seed=self.seed, slot_size=self.slot_size, embedding_size=self.slot_size
        )


def run_logic_models(config: LogicModelsConfig) -> None:
    """Time the models, print the tables, and write the results where asked.

    Args:
        config: the options.
    Raises:
        UserError: a bad option, or more batches than an epoch has.
    """
    config.apply()
    if config.quick:
        config = replace(config, batches=2, batch_size=4, slot_size=80, repeats=1)
    pairs, chosen = _batches(config, 400 if config.quick else DRAWN)
    contenders: dict[str, ModuleContender[Batch]] = {
        name: _contender(config, name, pairs, chosen) for name in config.models
    }
    times = interleave(contenders, len(chosen), repeats=config.repeats, device=config.device)
    details: dict[str, dict[str, int]] = {
        name: {"parameters": sum(p.numel() for p in contender.module.parameters())}
        for name, contender in contenders.items()
    }
    figures = contender_figures(times, "pairs", config.batches * config.batch_size, details)
    result: dict[str, Any] = {**describe(config.device), "seed": config.seed, "repeats": config.repeats}
    print(machine_line(result, config.repeats, f"{len(chosen)} x {config.batch_size} pairs, random weights"))
    print(tables(figures, "pairs", lstm="lstm"))
    if config.json is not None:
        write_json(config.json, {**result, "contenders": figures})


def _batches(config: LogicModelsConfig, drawn: int) -> tuple[list[Pair], list[np.ndarray]]:
    """Pairs, and the indices of those in each batch."""
    train, _ = generate(drawn, seed=config.seed)
    pairs = [pair for group in train[:7] for pair in group]
    lengths = np.array([len(pair.left) + len(pair.right) for pair in pairs])
    epoch = bucketed_batches(lengths, config.batch_size, seed=config.seed, epoch=0)
    full = sorted(
        (batch for batch in epoch if len(batch) == config.batch_size), key=lambda batch: lengths[batch].sum()
    )
    if len(full) < config.batches:
        raise UserError(
            f"--batches {config.batches}: there are only {len(full)} batches of {config.batch_size} pairs"
        )
    places = (np.arange(config.batches) + 0.5) * len(full) / config.batches
    return pairs, [full[int(place)] for place in places]


def _contender(
    config: LogicModelsConfig, name: ModelName, pairs: Sequence[Pair], batches: Sequence[np.ndarray]
) -> ModuleContender[Batch]:
    """One model, trained as the task trains it."""
    of_model = config.model_config(name)
    torch.manual_seed(config.seed)
    model = LogicModel(of_model).to(config.device)
    optimizer = PlateauAdam(model, of_model).optimizer
    dataset = Dataset(pairs, trees=True)

    def finish() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), of_model.gradient_clip)
        optimizer.step()

    return ModuleContender(
        model,
        [move_data_to_device(dataset.batch(indices), torch.device(config.device)) for indices in batches],
        loss=lambda batch: cross_entropy(model(batch).logits, batch.labels),
        forward=model,
        finish=finish,
    )
