"""The subcommands that classification tasks share: evaluate, predict, predict-file, trace, export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ordered_memory.draw import attention_figure, tree_text
from ordered_memory.trees import Span, Tree, spans
from tasks.classifiers.classification import LabeledData, check_data
from tasks.classifiers.classifier import Classifier
from tasks.classifiers.evaluation import ExamplePrediction, evaluate, predict_example
from tasks.classifiers.files import read_lines
from tasks.classifiers.report import results_text
from tasks.classifiers.task import ClassifierTask
from tasks.classifiers.traces import answer_of, example_traces
from tasks.reporting.drawing import LONGEST_DRAWN, figure_png
from tasks.reporting.traces import FilesConfig, answer_text
from tasks.runs.command_options import (
    CommandConfig,
    PredictionsConfig,
    ThreadsConfig,
    json_line,
    print_after,
)
from tasks.runs.errors import UserError
from tasks.runs.files import (
    check_writable_file,
    prepare_output_file,
    write_atomically,
    write_or_print,
)
from tasks.runs.hub import ExportConfig, model_card_values
from tasks.runs.machine import default_device
from tasks.runs.options import (
    MOST_EXAMPLES,
    check_at_least,
    check_fraction,
    check_only_one,
    check_unused,
    warn_of_unused,
)


@dataclass
class CheckpointConfig(CommandConfig):
    """Trained model."""

    checkpoint: Path | None = None
    """A run's best.safetensors, a directory that `export` wrote, or the name of a model on the Hugging Face
    Hub; None for the model that comes with the project."""
    num_slots: int | None = None
    """Number of memory slots, for a model that has any; None for as many as in the final test of its run."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "num_slots")


@dataclass
class EvaluateConfig(CheckpointConfig, PredictionsConfig):
    """Evaluate a trained model on test or validation data."""

    part: Literal["test", "validation"] = "test"
    """Part of the data of the model's run. Choose options, such as --num-slots, on the validation part."""
    file: Path | None = None
    """Evaluate on this file, in the format of the files of --data-dir; it may be compressed (.gz, .bz2,
    .xz)."""
    data_dir: Path | None = None
    """Directory with the official files, if it has moved since training."""
    occupancy_threshold: float | None = None
    """Slots with an occupancy below this fraction count as empty; None for the training value."""
    batch_size: int = 256
    """Maximum number of examples in a batch."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "batch_size")
        check_fraction(self, "occupancy_threshold")
        check_only_one(self, "file", "data_dir")
        if self.file is not None:
            check_unused(self, type(self), {"part": "with --file"})


@dataclass
class GeneratedConfig(EvaluateConfig):
    """Generated test data."""

    test: str = "standard"
    """`standard` is the test data of the model's run; other tests have their own data."""
    size: int = 2_000
    """Number of examples in a generated test."""
    seed: int = 1
    """Seed of a generated test."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "size", largest=MOST_EXAMPLES)
        check_at_least(0, self, "seed")
        if self.test == "standard":
            check_unused(self, type(self), dict.fromkeys(("size", "seed"), "with --test standard"))
        elif self.file or self.data_dir:
            raise UserError(f"--test {self.test} has its own data: leave out --file and --data-dir")
        else:
            check_unused(self, type(self), {"part": f"with --test {self.test}"})


def check_generated(config: Any) -> None:
    """Check the options `generated` and `seed` of a command that reads `data_dir` instead if it is given.

    Args:
        config: the options.
    Raises:
        UserError: an option is out of range, or has no effect with the others.
    """
    check_at_least(0, config, "generated", largest=MOST_EXAMPLES)
    check_at_least(0, config, "seed")
    if config.data_dir is not None:
        check_unused(config, type(config), dict.fromkeys(("generated", "seed"), "with --data-dir"))
    elif not config.generated:
        check_unused(config, type(config), {"seed": "without --generated"})


@dataclass(kw_only=True)
class PredictFileConfig(CheckpointConfig, ThreadsConfig):
    """Predict the class of every line of a file: print the predictions, one JSON object per line."""

    file: Annotated[Path, tyro.conf.Positional]
    """A text file with one example per line, without labels. If an example has two texts, a tab separates
    them. It may be compressed (.gz, .bz2, .xz)."""
    output: Path | None = None
    """Write the predictions to this file; by default they are printed."""
    batch_size: int = 256
    """Maximum number of examples in a batch."""

    def check(self) -> None:
        super().check()
        check_at_least(1, self, "batch_size")
        check_writable_file("--output", self.output)


@dataclass
class InputConfig(CheckpointConfig):
    """Trained model and input."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the example."""
        raise NotImplementedError


@dataclass
class ReadConfig(InputConfig):
    """Trained model and output file."""

    heat_map: Path | None = None
    """Write a heat map of the attention over the slots at each token to this PNG file. If there is a second
    text, its heat map is written to another file in the same directory."""


@dataclass
class TraceConfig(InputConfig, FilesConfig):
    """Trained model and output files."""


def run_evaluate(task: ClassifierTask[Any], config: EvaluateConfig) -> None:
    """Evaluate a trained model on test or validation data, and print the results.

    Args:
        task: the task of the model.
        config: the options.
    Raises:
        UserError: bad options, checkpoint or data.
    """
    config.set_up()
    model = task.model_class.from_pretrained(
        task.checkpoint(config.checkpoint), occupancy_threshold=config.occupancy_threshold
    )
    trained = model.config
    _warn_of_unused(config, model, "num_slots", "occupancy_threshold")
    model.set_num_slots(config.num_slots)
    if config.data_dir is not None:
        if not hasattr(trained, "data_dir"):
            raise UserError("--data-dir: this task reads no directory")
        trained.data_dir = config.data_dir
    if config.file is not None:
        if task.read_file is None:
            raise UserError("--file: this task has no format of single files")
        data = task.read_file(trained, config.file)
    elif isinstance(config, GeneratedConfig) and config.test != "standard":
        if task.generate_test is None:
            raise UserError(f"--test {config.test}: this task generates no tests")
        data = task.generate_test(trained, config.test, config.size, config.seed)
    elif config.part == "validation":
        data = task.load_splits(trained).validation
        data.split = config.part
    else:
        data = task.load_test(trained) if task.load_test is not None else task.load_splits(trained).test
    if not len(data.labels):
        source = config.file or getattr(trained, "data_dir", None) or f"the {config.part} data"
        raise UserError(f"{source}: no {task.unit} to evaluate on")
    model.adapt(data)
    check_data(data, len(model.classes), str(config.file or f"{config.part} data"))
    evaluation, results = task.evaluate(model.to(default_device()), data, batch_size=config.batch_size)
    with print_after(results_text(results)):
        config.write(results)
        config.write_predictions(evaluation.rows(model.classes))


def run_predict_file(task: ClassifierTask[Any], config: PredictFileConfig) -> None:
    """Predict the class of every line of a file.

    Args:
        task: the task of the model.
        config: the options.
    Raises:
        UserError: bad options, checkpoint or file; the message names the line.
    """
    config.set_up()
    examples = read_lines(config.file, lambda line: line.split("\t"))
    data = task.model_class.read_checked_examples(examples, lambda index: f"{config.file}, line {index + 1}")
    model = _load_model(task, config, data)
    evaluation = evaluate(model.to(default_device()), data, batch_size=config.batch_size)
    write_or_print(config.output, "".join(map(json_line, evaluation.rows(model.classes))))


def run_export(task: ClassifierTask[Any], config: ExportConfig) -> None:
    """Export a trained model to a directory, and print how to load it.

    Args:
        task: the task of the model.
        config: the options.
    Raises:
        UserError: bad options or checkpoint.
    """
    config.check()
    checkpoint = task.checkpoint(config.checkpoint)
    model = task.model_class.from_pretrained(checkpoint)
    package, _, rest = type(model).__module__.partition(".")
    name = rest.partition(".")[0] if package == "tasks" else None
    values = model_card_values(name, checkpoint, model.config, task.presets, results_text)
    model.save_pretrained(config.directory, model_card_kwargs=values)
    print(f"{config.directory}: {type(model).__name__}.from_pretrained({str(config.directory)!r}) loads it")


def print_answer(
    task: ClassifierTask[Any], config: ReadConfig
) -> tuple[LabeledData, ExamplePrediction, Classifier]:
    """Load a trained model, apply it to one example and print the answer.

    Args:
        task: the task of the model.
        config: the options.
    Returns:
        A data set with the example, the prediction, and the model.
    Raises:
        UserError: an option is out of range, the texts are not well-formed, or a heat map is asked for and
            cannot be written or the model has no attention.
    """
    data = task.model_class.read_text(*config.texts)
    config.check()
    if config.heat_map is not None:
        prepare_output_file("--heat-map", config.heat_map)
        if data.sentence_lengths.max() > LONGEST_DRAWN:
            raise UserError(
                f"--heat-map draws at most {LONGEST_DRAWN} tokens, got {data.sentence_lengths.max()}"
            )
    model = _load_model(task, config, data)
    prediction = predict_example(model, data, 0)
    if config.heat_map is not None and prediction.attention is None:
        raise UserError(f"--heat-map draws attention over slots, and {model.config.model} has none")
    print(answer_text(answer_of(prediction, data, 0, model.classes)))
    return data, prediction, model


def run_trace(task: ClassifierTask[Any], config: TraceConfig) -> None:
    """Show step by step what a trained model does with one example.

    Args:
        task: the task of the model.
        config: the options.
    Raises:
        UserError: bad options or checkpoint, or the texts are not well-formed.
    """
    data = task.model_class.read_text(*config.texts)
    config.check()
    model = _load_model(task, config, data)
    traces = example_traces(model, data, 0)
    config.write(traces, task.title(model.config), task.about)


def _load_model(task: ClassifierTask[Any], config: CheckpointConfig, data: LabeledData) -> Classifier:
    """Load the model that the options name, and adapt it to the data."""
    model = task.model_class.from_pretrained(task.checkpoint(config.checkpoint))
    check_data(data, len(model.classes), "input")
    _warn_of_unused(config, model, "num_slots")
    model.set_num_slots(config.num_slots)
    model.adapt(data)
    return model


def _warn_of_unused(config: CheckpointConfig, model: Classifier, *names: str) -> None:
    """Warn if one of these options is given, and the model of the checkpoint has no such thing."""
    unused = model.config.unused
    warn_of_unused(config, type(config), {name: unused[name] for name in names if name in unused})


def show_trees(
    config: ReadConfig,
    data: LabeledData,
    prediction: ExamplePrediction,
    labels: Mapping[Span, str] | None = None,
    legend: str | None = None,
) -> None:
    """Print the induced trees of an example, and the true trees if they are known and differ.

    It also writes the heat maps.

    Args:
        config: the options.
        data: a data set with one example.
        prediction: prediction for this example.
        labels: text at the nodes of the induced tree, for an example of one sentence.
        legend: what the labels mean, printed below the tree.
    """
    if prediction.trees is None:
        print("this model induces no trees")
        return
    for sentence_index, (sentence, tree) in enumerate(zip(data.sentences(0), prediction.trees, strict=True)):
        name = f"the tree of the {sentence.name}" if sentence.name else "the tree"
        print(f"\n{_drawing(tree, sentence.words, labels)}")
        if legend is not None:
            print(f"\n{legend}")
        if sentence.tree is not None:
            same = set(spans(tree)) == set(spans(sentence.tree))
            print(f"{name} is the true one" if same else f"{name} is not the true one, which is")
            if not same:
                print(f"\n{_drawing(sentence.tree, sentence.words)}")
        if config.heat_map is not None and prediction.attention is not None:
            first_word = sentence.name.split()[0] if sentence.name else sentence_index + 1
            suffix = f"-{first_word}" if sentence_index else ""
            path = config.heat_map.with_stem(config.heat_map.stem + suffix)
            figure = attention_figure(prediction.attention[sentence_index], sentence.tokens)
            write_atomically(path, figure_png(figure))
            print(f"heat map: {path}")


def _drawing(tree: Tree, words: list[str], labels: Mapping[Span, str] | None = None) -> str:
    if len(words) > LONGEST_DRAWN:
        return f"a tree of {len(words):,} words: not drawn, since it has more than {LONGEST_DRAWN}"
    return tree_text(tree, words, labels)
