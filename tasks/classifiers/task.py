"""A classification task from its configuration to its report: an instance of `ClassifierTask`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic

import numpy as np
import torch

from ordered_memory.trees import check_tokens
from tasks.classifiers.classification import (
    ClassificationObjective,
    LabeledData,
    Splits,
    check_data,
    digest_of_sizes,
    examples_of_epoch,
    fingerprint,
)
from tasks.classifiers.classifier import Classifier
from tasks.classifiers.config import Config
from tasks.classifiers.evaluation import Evaluation, Groups, ValidSpans, evaluate, predict_example
from tasks.classifiers.report import results_text, values_to_summarize, write_run_report
from tasks.runs.errors import UserError
from tasks.runs.experiment import run_experiment
from tasks.runs.initial_weights import initial_checkpoint, warn_of_other_data
from tasks.runs.interfaces import Experiment
from tasks.runs.optimization import PlateauAdam
from tasks.runs.run_directory import RunDirectory
from tasks.runs.seeds import train_seeds

Accuracies = dict[str, dict[str, list[float]]]
ExtraAccuracies = Callable[[Config, LabeledData, Callable[[LabeledData], Evaluation]], Accuracies]


@dataclass(frozen=True)
class ClassifierTask(Generic[Config]):
    """What a classification task has to provide. Fields with a default are optional.

    Args:
        title: short description of a run, given its configuration.
        about: explains the task to a reader of the report in one or two sentences.
        unit: what examples are called, in the plural: "expressions".
        model_class: the class of the model.
        presets: returns the presets by name, given the value of `--model`; see `Subcommand`.
        load_splits: reads or generates the data of a run.
        augment: changes the training data of an epoch at random, for example if an option says so: given the
            configuration, the training data and a random generator, it returns the data of the epoch.
        accuracy_groups: returns the groups of test examples whose accuracy is reported: for each title of a
            table or plot, masks by name of the group. See `CROSS` for tables with two dimensions.
        read_file: reads test data in the task's file format, for `evaluate --file`.
        pretrained: checkpoint of the model that comes with the task.
        punctuation: says in one sentence which tokens are leaves of the scored trees.
        min_words: trees of sentences with fewer words are not scored.
        load_test: reads or generates the test data of a run alone; by default `load_splits` loads all data.
        generate_test: generates, or downloads, another test, given its name, size and seed.
        valid_spans: returns the constituents of all valid trees; see `Evaluation.tree_scores`.
        report_confusion: whether the report has a confusion matrix.
        build_initial_model: builds the model to train from the configuration and the data, if its
            configuration alone does not determine it, for example because the vocabulary depends on the data.
        learning_rates: learning rates of submodules, by name, if they differ from `config.learning_rate`.
        extra_accuracies: computes accuracies that need predictions on other data than the test examples. Its
            last argument is a function that evaluates the model on a data set. What it returns is added to
            `accuracy_by` of the results.
    """

    title: Callable[[Config], str]
    about: str
    unit: str
    model_class: type[Classifier]
    presets: Callable[[str | None], Mapping[str, Config]]
    load_splits: Callable[[Config], Splits[LabeledData]]
    augment: Callable[[Config, LabeledData, np.random.Generator], LabeledData] | None = None
    accuracy_groups: Callable[[Config, LabeledData], Mapping[str, Groups]] = lambda config, data: {}
    read_file: Callable[[Config, Path], LabeledData] | None = None
    pretrained: Path | None = None
    punctuation: str = "every token counts"
    min_words: int = 1
    load_test: Callable[[Config], LabeledData] | None = None
    generate_test: Callable[[Config, str, int, int], LabeledData] | None = None
    valid_spans: ValidSpans | None = None
    report_confusion: bool = False
    build_initial_model: Callable[[Config, Splits[LabeledData]], Classifier] | None = None
    learning_rates: Callable[[Config], Mapping[str, float]] = lambda config: {}
    extra_accuracies: ExtraAccuracies[Config] | None = None

    def checkpoint(self, path: Path | None) -> Path:
        """The checkpoint to load: the given one or else the model that comes with the task.

        Args:
            path: the value of `--checkpoint`.
        Raises:
            UserError: none is given, and none comes with the task.
        """
        checkpoint = path or self.pretrained
        if checkpoint is None:
            raise UserError("--checkpoint must be given: no model comes with this task")
        return checkpoint

    def evaluate(
        self, model: Classifier, data: LabeledData, *, batch_size: int
    ) -> tuple[Evaluation, dict[str, Any]]:
        """Evaluate a model on its device.

        Args:
            model: a model of the task.
            data: test data.
            batch_size: maximum number of examples in a batch.
        Returns:
            The evaluation, and its results as JSON values; see `summary`.
        """
        evaluate_on = partial(evaluate, model, batch_size=batch_size)
        evaluation = evaluate_on(data)
        results = self.summary(model, evaluation)
        if self.extra_accuracies is not None:
            results["accuracy_by"] |= self.extra_accuracies(model.config, data, evaluate_on)
        return evaluation, results

    def summary(self, model: Classifier, evaluation: Evaluation) -> dict[str, Any]:
        """Compute the results of an evaluation, as JSON values.

        Args:
            model: that was evaluated.
            evaluation: its predictions.
        """
        return {
            "part": evaluation.data.split,
            "unit": self.unit,
            "examples": len(evaluation.data.labels),
            "accuracy": float(evaluation.correct.mean()),
            "accuracy_by": {
                title: rows
                for title, masks in self.accuracy_groups(model.config, evaluation.data).items()
                if (rows := evaluation.accuracy_by(masks))
            },
            "classes": list(model.classes),
            "confusion": evaluation.confusion(len(model.classes)) if self.report_confusion else None,
            **evaluation.tree_scores(self.min_words, self.valid_spans),
            "punctuation": self.punctuation,
        }

    def train(self, config: Config) -> None:
        """Train, then test the best weights once and write the report; with `seeds`, once for each seed.

        Args:
            config: configuration of the run.
        Raises:
            UserError: see `run_experiment`, `prepare` and `train_seeds`.
        """
        if config.seeds == 1:
            run_experiment(config, lambda: self.prepare(config))
        else:
            train_seeds(self.train, config, values_to_summarize)

    def prepare(self, config: Config) -> Experiment:
        """Load the data of a run and build its model.

        Args:
            config: configuration of the run.
        Returns:
            The argument of `run_experiment`.
        Raises:
            UserError: bad or empty data, or an option that the model does not accept.
        """
        splits = self.load_splits(config)
        self._check_splits(config, splits)
        model = self._initial_model(config, splits)
        for name, dataset in zip(("training data", "validation data", "test data"), splits, strict=True):
            check_data(dataset, len(model.classes), name)
        self._sanity_check(model, splits.test)
        train, validation, test = (f"{len(dataset.labels):,}" for dataset in splits)
        augment = None if self.augment is None else partial(self.augment, config)
        return Experiment(
            objective=ClassificationObjective(config, splits.train, splits.validation, augment),
            model=model,
            optimization=PlateauAdam(
                model, config, self.learning_rates(config), constant_epochs=config.curriculum_epochs
            ),
            description=(
                f"{self.title(config)}; {train} training, {validation} validation and {test} test {self.unit}"
            ),
            test=lambda run, device: self._test(config, run, splits.test, device),
            data={
                "training": digest_of_sizes([splits.train, splits.validation]),
                "test": fingerprint([splits.test]),
            },
            results_text=results_text,
            metadata=model.metadata(),
        )

    def _check_splits(self, config: Config, splits: Splits[LabeledData]) -> None:
        """Check that there are examples of every part and in every epoch, with true trees if needed."""
        for name, dataset in zip(("training", "validation", "test"), splits, strict=True):
            if not len(dataset.labels):
                raise UserError(
                    f"the options leave no {name} {self.unit}: too few are given, or all are too long"
                )
        if not len(examples_of_epoch(config, splits.train.sentence_lengths, epoch=1)):
            shortest = splits.train.sentence_lengths.max(1).min()
            raise UserError(
                f"--curriculum-length {config.curriculum_length}: the shortest of the training {self.unit} "
                f"has {shortest} tokens"
            )
        longest = splits.train.sentence_lengths.max()
        if config.curriculum_epochs and config.curriculum_length >= longest:
            print(
                f"warning: --curriculum-length {config.curriculum_length}: the longest of the training "
                f"{self.unit} has {longest} tokens, so all epochs use all of them",
                file=sys.stderr,
            )
        elif config.curriculum_epochs >= config.epochs:
            print(
                f"warning: --curriculum-epochs {config.curriculum_epochs} is not below --epochs "
                f"{config.epochs}: training uses only short examples",
                file=sys.stderr,
            )
        if config.needs_trees and splits.train.sentences(0)[0].tree is None:
            raise UserError(f"--model {config.model} needs true trees, and these {self.unit} have none")

    def _initial_model(self, config: Config, splits: Splits[LabeledData]) -> Classifier:
        """The model to train, with random weights or those of `initial_weights`."""
        start = initial_checkpoint(config)
        if start is None:
            build = self.build_initial_model
            return self.model_class(config) if build is None else build(config, splits)
        model = self.model_class.from_pretrained(start, config=config)
        if start == config.initial_weights:
            warn_of_other_data(config, start)
        model.set_num_slots(config.num_slots)
        for dataset in splits:
            model.adapt(dataset)
        return model

    def _sanity_check(self, model: Classifier, data: LabeledData) -> None:
        """Before training, predict one test example, to find errors that would otherwise show after it."""
        for key in model.saved_arguments:
            if key not in model.metadata():
                raise ValueError(
                    f"{type(model).__name__}.metadata() must have the key {key!r} of its saved_arguments"
                )
        if len(set(model.classes)) < len(model.classes):
            raise ValueError(f"{type(model).__name__}.classes must be distinct, got {model.classes}")
        model.set_num_slots()
        prediction = predict_example(model, data, 0)
        model.set_num_slots(model.config.num_slots)
        if len(prediction.probabilities) != len(model.classes):
            raise ValueError(
                f"{type(model).__name__}.forward must return logits of the {len(model.classes)} classes, got "
                f"{len(prediction.probabilities)}"
            )
        sentences = data.sentences(0)
        for sentence, induced in zip(sentences, prediction.trees or [None] * len(sentences), strict=True):
            for tree in (sentence.tree, induced):
                if tree is not None:
                    check_tokens(tree, sentence.words, "words of sentences(0)")
        self.title(model.config)
        self.accuracy_groups(model.config, data)

    def _test(
        self, config: Config, run: RunDirectory, data: LabeledData, device: torch.device
    ) -> tuple[dict[str, Any], Callable[[], None]]:
        """Test the best weights; return the results, and a function that writes the report."""
        # A resumed run may have other options than when these weights were saved.
        model = self.model_class.from_pretrained(run.best, config=config)
        evaluation, results = self.evaluate(model.to(device), data, batch_size=config.evaluation_batch_size)
        return results, lambda: write_run_report(
            run, self.title(config), self.about, results, evaluation, model.to("cpu")
        )
