"""A classification task from its configuration to its report; a `ClassifierTask` is what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from tasks.classifiers.classification import Classification, LabelledData, Splits
from tasks.classifiers.encoders import EncoderConfig
from tasks.classifiers.evaluation import Evaluation, Masks, ValidSpans, evaluate
from tasks.classifiers.report import results_text, write_run_report
from tasks.classifiers.traces import NodeValues
from tasks.runs.errors import UserError
from tasks.runs.optimization import PlateauAdam
from tasks.runs.run_directory import RunDirectory
from tasks.runs.task import Prepared
from tasks.runs.trained import load_trained

Config = TypeVar("Config", bound=EncoderConfig)
Accuracies = dict[str, dict[str, list[float]]]
MoreAccuracies = Callable[[Config, LabelledData, Callable[[LabelledData], Evaluation]], Accuracies]

EMBEDDING = "embedding"
"""The key of what `describe_embedding` says in the metadata of a checkpoint."""


@dataclass(frozen=True)
class ClassifierTask(Generic[Config]):
    """What a task consists of.

    Args:
        title: of a run, in a few words.
        about: what a model reads and answers, in a sentence or two, for who does not know the task.
        unit: what its examples are called, in the plural.
        classes: names of the answers, in the order of the labels.
        config: its configuration.
        build: makes a model of a configuration and, where there is `describe_embedding`, of what that said;
            the model takes a batch and `num_slots` and returns a `Prediction`.
        load: reads or draws the data of a run.
        groups: which test examples to report the accuracy of together: by title, masks by name; see
            `CROSS` for two ways at once.
        read_file: reads test data in the task's own format.
        pretrained: the model that comes with the project.
        punctuation: which tokens are leaves of the scored trees, in a sentence.
        shortest_tree: the fewest words of a sentence whose tree is scored.
        draw: draws a harder test, given its name, a size and a seed.
        valid_spans: the constituents of trees that compute what the true one does; None for no such report.
        confusion: whether to report which classes are taken for which.
        initial: makes the model to train from the data of the run, where the options alone do not tell.
        describe_embedding: what a checkpoint says of a model's embedding beside options and weights, as JSON.
        rates: learning rates of submodules that are not that of the configuration, by name.
        adapt: called with a model from a checkpoint before it reads other data than its run had.
        more_accuracies: accuracies by group that need other answers than those on the test data, as
            `Evaluation.accuracy_by` has them, by title; given what evaluates the model on a data set.
        node_values: what the model makes of each node of a tree over a sentence, in [-1, 1], for pictures.
    """

    title: Callable[[Config], str]
    about: str
    unit: str
    classes: Callable[[Config], tuple[str, ...]]
    config: type[Config]
    build: Callable[..., nn.Module]
    load: Callable[[Config], Splits]
    groups: Callable[[Config, LabelledData], Mapping[str, Masks]]
    read_file: Callable[[Config, Path], LabelledData]
    pretrained: Path
    punctuation: str
    shortest_tree: int = 1
    draw: Callable[[Config, str, int, int], LabelledData] | None = None
    valid_spans: ValidSpans | None = None
    confusion: bool = False
    initial: Callable[[Config, Splits], nn.Module] | None = None
    describe_embedding: Callable[[Any], Any] | None = None
    rates: Callable[[Config], Mapping[str, float]] | None = None
    adapt: Callable[[Config, Any, LabelledData], None] | None = None
    more_accuracies: MoreAccuracies[Config] | None = None
    node_values: NodeValues | None = None

    def load_model(self, path: Path, occupancy_threshold: float | None = None) -> tuple[Any, Config]:
        """The trained model in a best.safetensors, in evaluation mode, and what it was trained with.

        Args:
            path: of the file.
            occupancy_threshold: to use in place of the one that it was trained with.
        Raises:
            UserError: no such file, or not a checkpoint of this task.
        """
        return load_trained(
            path,
            self.config,
            self.build,
            beside=None if self.describe_embedding is None else EMBEDDING,
            occupancy_threshold=occupancy_threshold,
        )

    def test(
        self,
        config: Config,
        model: nn.Module,
        data: LabelledData,
        *,
        batch_size: int,
        num_slots: int | None,
        device: torch.device | str,
    ) -> tuple[Evaluation, dict[str, Any]]:
        """Evaluate a model.

        Args:
            config: of its run.
            model: on `device`.
            data: test data.
            batch_size: the most examples in a batch.
            num_slots: for this evaluation; None for the model's own.
            device: where to compute.
        Returns:
            The evaluation, and its results as `summary` has them.
        """

        def answers(part: LabelledData) -> Evaluation:
            return evaluate(model, part, batch_size=batch_size, num_slots=num_slots, device=device)

        evaluation = answers(data)
        results = self.summary(config, evaluation)
        if self.more_accuracies is not None:
            results["accuracy_by"] |= self.more_accuracies(config, data, answers)
        return evaluation, results

    def summary(self, config: Config, evaluation: Evaluation) -> dict[str, Any]:
        """The results of an evaluation as JSON values.

        Args:
            config: of the run.
            evaluation: of the best weights.
        """
        classes = self.classes(config)
        return {
            "part": evaluation.data.part,
            "unit": self.unit,
            "examples": len(evaluation.predicted),
            "accuracy": float(evaluation.correct.mean()),
            "accuracy_by": {
                title: evaluation.accuracy_by(masks)
                for title, masks in self.groups(config, evaluation.data).items()
            },
            "classes": list(classes),
            "confusion": evaluation.confusion(len(classes)) if self.confusion else None,
            "span_f1": evaluation.span_f1(self.shortest_tree),
            "valid_trees": evaluation.valid_trees(self.shortest_tree, self.valid_spans),
            "punctuation": self.punctuation,
        }

    def train(self, config: Config) -> None:
        """Train, then test the best weights once and write the report.

        Args:
            config: of the run.
        Raises:
            UserError: see `run_experiment` and `prepare`.
        """
        from tasks.runs.experiment import (
            run_experiment,  # only training imports Lightning Fabric, which takes long
        )

        run_experiment(config, lambda: self.prepare(config))

    def prepare(self, config: Config) -> Prepared:
        """Load the data of a run and build its model.

        Args:
            config: of the run.
        Returns:
            What `run_experiment` trains and tests.
        Raises:
            UserError: bad data, a part of the data is empty, or an option that the model refuses.
        """
        splits = self.load(config)
        for name, part in zip(("training", "validation", "test"), splits, strict=True):
            if not len(part.labels):
                raise UserError(
                    f"the options leave no {name} {self.unit}: too few are given, or all are too long"
                )
        model = self.build(config) if self.initial is None else self.initial(config, splits)
        train, validation, test = (f"{len(part.labels):,}" for part in splits)
        return Prepared(
            task=Classification(config, splits.train, splits.validation),
            model=model,
            optimization=PlateauAdam(model, config, self.rates and self.rates(config)),
            description=(
                f"{self.title(config)}; {train} training, {validation} validation and {test} test {self.unit}"
            ),
            test=lambda run, device: self._test(config, run, splits.test, device),
            results_text=results_text,
            metadata=self.describe_embedding and {EMBEDDING: self.describe_embedding(model)},
        )

    def _test(
        self, config: Config, run: RunDirectory, data: LabelledData, device: torch.device
    ) -> dict[str, Any]:
        """Results of the best weights; writes the report."""
        model, _ = self.load_model(run.best)
        evaluation, results = self.test(
            config,
            model.to(device),
            data,
            batch_size=config.evaluation_batch_size,
            num_slots=config.test_num_slots,
            device=device,
        )
        write_run_report(
            run,
            self.title(config),
            self.about,
            config,
            results,
            evaluation,
            model.to("cpu"),
            self.node_values,
        )
        return results
