"""A run of the logic task from its configuration to its report."""

from __future__ import annotations

from typing import Any

from lightning_fabric import Fabric

from tasks.classifiers.classification import Classification
from tasks.logic.config import GIVEN_TREES, LogicConfig
from tasks.logic.data import Dataset, Splits, read_directory, split
from tasks.logic.download import fetch
from tasks.logic.evaluation import evaluate
from tasks.logic.generator import generate
from tasks.logic.model import LogicModel
from tasks.logic.report import results_text, write_run_report
from tasks.runs.checkpoints import load_weights
from tasks.runs.experiment import Prepared, run_experiment
from tasks.runs.optimization import PlateauAdam
from tasks.runs.run_directory import RunDirectory


def load_splits(config: LogicConfig) -> Splits:
    """The data of a run: drawn, read from a directory, or fetched and read."""
    if config.generated:
        groups = generate(config.generated, seed=config.seed)
    else:
        groups = read_directory(config.data_dir or fetch())
    return split(*groups, config.split)


def train(config: LogicConfig) -> None:
    """Train, then test the best weights once and write the report: see `run_experiment`."""

    def prepare() -> Prepared:
        splits = load_splits(config)
        trees = config.model in GIVEN_TREES
        train, validation = (Dataset(part, trees=trees) for part in (splits.train, splits.validation))
        model = LogicModel(config)
        return Prepared(
            task=Classification(config, train, validation),
            model=model,
            optimization=PlateauAdam(model, config),
            description=(
                f"{config.model}; split {config.split}: {len(train):,} training and {len(validation):,} "
                f"validation pairs, {sum(map(len, splits.tests)):,} test pairs"
            ),
            test=lambda run, fabric: _test(config, run, splits, fabric),
            results_text=results_text,
        )

    run_experiment(config, prepare)


def _test(config: LogicConfig, run: RunDirectory, splits: Splits, fabric: Fabric) -> dict[str, Any]:
    """Results of the best weights; writes the report."""
    model = LogicModel(config)
    load_weights(run.best, model)
    evaluation = evaluate(
        model.to(fabric.device),
        [pair for group in splits.tests for pair in group],
        split=config.split,
        given_trees=config.model in GIVEN_TREES,
        batch_size=config.evaluation_batch_size,
        num_slots=config.test_num_slots,
        device=fabric.device,
    )
    write_run_report(run, config, evaluation, model.to("cpu"))
    return evaluation.summary()
