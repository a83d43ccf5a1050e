"""A ListOps run from its configuration to its report."""

from __future__ import annotations

from typing import Any

from lightning_fabric import Fabric

from tasks.classifiers.classification import Classification
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset, Splits, load
from tasks.listops.evaluation import evaluate
from tasks.listops.model import ListOpsModel
from tasks.listops.report import results_text, write_run_report
from tasks.runs.checkpoints import load_weights
from tasks.runs.experiment import Prepared, run_experiment
from tasks.runs.optimization import PlateauAdam
from tasks.runs.run_directory import RunDirectory


def load_splits(config: ListOpsConfig) -> Splits:
    """The data of a run. Validation is bounded in length as training is; testing is not."""
    splits = load(
        config.data_dir,
        seed=config.seed,
        count=config.expressions,
        validation=config.validation_size,
        max_train_length=config.max_train_length,
    )
    validation = splits.validation
    return splits._replace(validation=validation.select(validation.lengths <= config.max_train_length))


def train(config: ListOpsConfig) -> None:
    """Train, then test the best weights once and write the report: see `run_experiment`."""

    def prepare() -> Prepared:
        splits = load_splits(config)
        model = ListOpsModel(config)
        return Prepared(
            task=Classification(config, splits.train, splits.validation),
            model=model,
            optimization=PlateauAdam(model, config),
            description=(
                f"{config.model}; {len(splits.train):,} training and {len(splits.validation):,} validation "
                f"expressions of at most {config.max_train_length} tokens, {len(splits.test):,} for testing"
            ),
            test=lambda run, fabric: _test(config, run, splits.test, fabric),
            results_text=results_text,
        )

    run_experiment(config, prepare)


def _test(config: ListOpsConfig, run: RunDirectory, test: Dataset, fabric: Fabric) -> dict[str, Any]:
    """Results of the best weights; writes the report."""
    model = ListOpsModel(config)
    load_weights(run.best, model)
    evaluation = evaluate(
        model.to(fabric.device),
        test,
        batch_size=config.evaluation_batch_size,
        num_slots=config.test_num_slots,
        device=fabric.device,
    )
    write_run_report(run, config, evaluation, model.to("cpu"))
    return evaluation.summary()
