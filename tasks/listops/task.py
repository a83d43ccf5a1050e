"""A ListOps run from its configuration to its report."""

from __future__ import annotations

from lightning_fabric import Fabric

from tasks.checkpoints import load_weights
from tasks.classification import Classification
from tasks.experiment import Prepared, run_experiment
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset, Splits, load
from tasks.listops.evaluation import evaluate
from tasks.listops.model import ListOpsModel
from tasks.listops.report import results_text, write_run_report
from tasks.optimization import PlateauAdam
from tasks.run_directory import RunDirectory, write_json


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
    """Train, then test the best weights once and write the report; see `tasks.experiment.run_experiment`."""

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
            finish=lambda run, fabric: _finish(config, run, splits.test, fabric),
        )

    run_experiment(config, prepare)


def _finish(config: ListOpsConfig, run: RunDirectory, test: Dataset, fabric: Fabric) -> None:
    """The one look at the test data, unless an earlier call has had it already."""
    results = run.read_results()
    if results is None or not run.report.exists():
        model = ListOpsModel(config)
        load_weights(run.best, model)
        model.to(fabric.device)
        evaluation = evaluate(
            model,
            test,
            batch_size=config.evaluation_batch_size,
            num_slots=config.test_num_slots,
            device=fabric.device,
        )
        results = evaluation.summary()
        write_run_report(run, config, evaluation, model.to("cpu"))
        write_json(run.results, results)
    print(results_text(results))
    print(f"report: {run.report}")
