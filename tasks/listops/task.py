"""ListOps as the training loop wants it, and a run from its configuration to its report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tasks.batching import bucketed_batches
from tasks.checkpoints import load_weights
from tasks.experiment import Prepared, run_experiment
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Batch, Dataset, Splits, load
from tasks.listops.evaluation import batches_of, evaluate
from tasks.listops.model import ListOpsModel
from tasks.listops.report import results_text, write_run_report
from tasks.run_directory import RunDirectory, write_json


class ListOpsTask:
    """Batches and losses; see `tasks.training.Task`.

    Args:
        config: batch sizes and seed.
        train: training data.
        validation: validation data.
    """

    def __init__(self, config: ListOpsConfig, train: Dataset, validation: Dataset) -> None:
        self.config, self.train, self.validation = config, train, validation

    def training_batches(self, epoch: int, batch_size: int) -> Sequence[NDArray[np.int64]]:
        return bucketed_batches(self.train.lengths, batch_size, seed=self.config.seed, epoch=epoch)

    def training_batch(self, indices: NDArray[np.int64]) -> Batch:
        return self.train.batch(indices)

    def validation_batches(self) -> Iterator[Batch]:
        for _, batch in batches_of(self.validation, self.config.evaluation_batch_size):
            yield batch

    def losses(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = model(batch.tokens, batch.lengths).logits
        return cross_entropy(logits, batch.labels, reduction="none"), logits.argmax(-1) == batch.labels


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
        return Prepared(
            task=ListOpsTask(config, splits.train, splits.validation),
            model=ListOpsModel(config),
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
