"""How many pairs a second each model trains on and answers, all models on the same batches in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from lightning_fabric.utilities.apply_func import move_data_to_device
from torch.nn.functional import cross_entropy

from tasks.benchmark.machine import describe
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


@dataclass
class ThroughputConfig:
    """Time a training step and the answers of every model at the paper's sizes on pairs like those of
    training (drawn, at most 6 operations)."""

    models: tuple[ModelName, ...] = get_args(ModelName)
    """Which models."""
    batches: int = 4
    """Batches, spread evenly over the lengths that an epoch has."""
    batch_size: int = 128
    """Pairs in a batch."""
    repeats: int = 3
    """Times each model runs each batch, after one run that does not count; medians are reported."""
    slot_size: int = 200
    """Features of every model."""
    device: str = "cpu"
    """Where to run."""
    seed: int = 1
    """Of the pairs and the weights."""
    json: Path | None = None
    """Also write the results to this file."""


class _Contender:
    """One model, trained as the task trains it; see `tasks.benchmark.contenders.Contender`."""

    def __init__(
        self, config: LogicConfig, pairs: Sequence[Pair], batches: Sequence[np.ndarray], device: str
    ):
        config.check()
        torch.manual_seed(config.seed)
        self.config = config
        self.model = LogicModel(config).to(device)
        self.optimizer = PlateauAdam(self.model, config).optimizer
        dataset = Dataset(pairs, trees=True)
        self.batches: list[Batch] = [
            move_data_to_device(dataset.batch(indices), torch.device(device)) for indices in batches
        ]

    def training_step(self, index: int) -> Callable[[], None]:
        self.model.train()
        self.optimizer.zero_grad()
        batch = self.batches[index]

        def run() -> None:
            cross_entropy(self.model(batch).logits, batch.labels).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.gradient_clip)
            self.optimizer.step()

        return run

    def evaluation(self, index: int) -> Callable[[], None]:
        self.model.eval()

        def run() -> None:
            with torch.inference_mode():
                self.model(self.batches[index])

        return run


def run_throughput(config: ThroughputConfig) -> None:
    """Print the table, and write it where asked."""
    check_at_least(1, config, "batches", "batch_size", "repeats", "slot_size")
    if not config.models:
        raise UserError("--models must name at least one model")
    train, _ = generate(DRAWN, seed=config.seed)
    pairs = [pair for group in train[:7] for pair in group]
    lengths = np.array([len(pair.left) + len(pair.right) for pair in pairs])
    cut = bucketed_batches(lengths, config.batch_size, seed=config.seed, epoch=0)
    cut = sorted(
        (part for part in cut if len(part) == config.batch_size), key=lambda part: lengths[part].sum()
    )
    if len(cut) < config.batches:
        raise UserError(
            f"there are only {len(cut)} batches of {config.batch_size} pairs, not {config.batches}"
        )
    places = (np.arange(config.batches) + 0.5) * len(cut) / config.batches
    chosen = [cut[int(place)] for place in places]
    contenders: dict[str, _Contender] = {
        name: _Contender(
            LogicConfig(
                model=name, seed=config.seed, slot_size=config.slot_size, embedding_size=config.slot_size
            ),
            pairs,
            chosen,
            config.device,
        )
        for name in config.models
    }
    times = interleave(contenders, config.batches, repeats=config.repeats, device=config.device)
    count = config.batches * config.batch_size
    rows: dict[str, dict[str, float]] = {
        name: {
            "parameters": sum(p.numel() for p in contenders[name].model.parameters()),
            "train_pairs_per_second": 1000 * count / sum(of.train),
            "infer_pairs_per_second": 1000 * count / sum(of.infer),
        }
        for name, of in times.items()
    }
    machine = describe(config.device)
    print(
        f"{machine['device_name']}, {machine['threads']} threads, torch {machine['torch']}, commit", end=" "
    )
    print(f"{machine['commit']}; {count} pairs, random weights, medians of {config.repeats}")
    print(f"{'pairs a second':<22}{'training':>10}{'answers':>10}{'parameters':>12}")
    for name, row in rows.items():
        print(
            f"{name:<22}{row['train_pairs_per_second']:>10,.0f}{row['infer_pairs_per_second']:>10,.0f}"
            f"{row['parameters']:>12,}"
        )
    if config.json is not None:
        write_json(config.json, {"machine": machine, "models": rows})
