"""The tables of the Ordered Memory paper, and the harder ListOps tests of later papers."""

from __future__ import annotations

from ordered_memory.span_f1 import CORPUS_LEVEL
from tasks.formatting.summary import Published
from tasks.logic import published as logic
from tasks.logic.task import LEFT_OUT
from tasks.reproduce.table import Cell, CommandSpec, RowSpec, TableSpec

F1_NOTE = f"F1: of the induced trees, {CORPUS_LEVEL}."
TREE_F1 = ("span_f1", str(CORPUS_LEVEL), "model")
"""Where the F1 of induced trees is found in results.json."""
INDUCING = ("ordered-memory", "ordered-memory-tree-rnn-cell", "onlstm", "gumbel-tree-lstm")
"""The models whose rows have the F1 of induced trees."""

NAMES = {
    "lstm": "LSTM",
    "bilstm": "BiLSTM",
    "onlstm": "ON-LSTM",
    "rrnet": "RRNet",
    "transformer": "Transformer",
    "universal-transformer": "Universal Transformer",
    "gumbel-tree-lstm": "Gumbel Tree-LSTM",
    "crvnn": "CRvNN",
    "ordered-memory": "Ordered Memory",
    "ordered-memory-tree-rnn-cell": "Ordered Memory, TreeRNN operator",
    "gold-tree-lstm": "Tree-LSTM, true trees",
    "gold-tree-cell": "Gated Recursive Cell, true trees",
    "gold-tree-rnn": "TreeRNN, true trees",
    "mean": "Mean of the vectors",
}
"""Names of models in the tables, by the names for `--only`: values of `--model` or keys of MODEL_OPTIONS."""
MODEL_OPTIONS = {
    "bilstm": ("--model", "lstm", "--bidirectional"),
    "ordered-memory-tree-rnn-cell": ("--model", "ordered-memory", "--cell", "tree-rnn"),
}
"""Options of the models that `--model` alone does not select, by their names for `--only`."""
LOGIC_AND_LISTOPS_MODELS = tuple(name for name in NAMES if name not in ("bilstm", "mean"))
"""The models of the tables of logic and ListOps."""


def _training(task: str, model: str, *options: str) -> CommandSpec:
    """The training run of a model; `model` is a key of NAMES."""
    return CommandSpec(task, (*MODEL_OPTIONS.get(model, ("--model", model)), *options))


def _row(model: str, cells: dict[str, Cell], published: dict[str, Published] | None = None) -> RowSpec:
    return RowSpec(NAMES[model], model, cells, published or {})


def _logic_row(model: str) -> RowSpec:
    full = _training("logic", model)
    cells = {
        count: Cell(full, ("accuracy_by", "operations", count, 0)) for count in logic.PUBLISHED_OPERATIONS
    }
    for split in logic.SPLITS:
        keys = ("accuracy_by", LEFT_OUT.format(split), logic.LEFT_OUT_OPERATIONS, 0)
        cells[split] = Cell(_training("logic", model, "--split", split), keys)
    if model in INDUCING:
        cells[logic.F1] = Cell(full, TREE_F1)
    return _row(model, cells, logic.PUBLISHED.get(model, {}))


def _literature(name: str, **published: Published) -> RowSpec:
    """The row of a model that is not part of this project: it has only published results."""
    return RowSpec(f"{name} (literature)", name.lower().replace(" ", "-"), {}, published)


LISTOPS_PUBLISHED = {
    "lstm": {"accuracy": Published(71.5, 1.5)},
    "gumbel-tree-lstm": {"accuracy": Published(57.6, 2.9), "F1": Published(57.3)},
    "transformer": {"accuracy": Published(57.4, 0.4)},
    "universal-transformer": {"accuracy": Published(71.5, 7.8)},
    "ordered-memory": {"accuracy": Published(99.97, 0.014), "F1": Published(100)},
    "ordered-memory-tree-rnn-cell": {"accuracy": Published(63.1)},
}
"""Published results for om-table-3a, by model and column."""


def _listops_row(model: str) -> RowSpec:
    training = _training("listops", model)
    cells = {"accuracy": Cell(training, ("accuracy",))}
    if model in INDUCING:
        cells["F1"] = Cell(training, TREE_F1)
    return _row(model, cells, LISTOPS_PUBLISHED.get(model))


HARD_PUBLISHED = {
    "standard": LISTOPS_PUBLISHED["ordered-memory"]["accuracy"],
    "200-300": Published(99.6),
    "500-600": Published(92.7),
    "900-1000": Published(76.9),
    "10-args": Published(84.2),
    "15-args": Published(75.1),
    "lra": Published(80.1),
}
"""Published accuracies of Ordered Memory on harder ListOps tests."""


def _hard_rows(tests: tuple[str, ...]) -> tuple[RowSpec, ...]:
    """The rows of a table of harder ListOps tests.

    Args:
        tests: values of `tasks.listops evaluate --test`, each a column; `standard` is the final test of the
            run, which needs no further evaluation.
    """
    evaluations = {
        test: None if test == "standard" else CommandSpec("listops", ("--test", test)) for test in tests
    }
    published = {"ordered-memory": {test: HARD_PUBLISHED[test] for test in tests if test in HARD_PUBLISHED}}

    def cells(model: str) -> dict[str, Cell]:
        training = _training("listops", model)
        return {test: Cell(training, ("accuracy",), evaluation) for test, evaluation in evaluations.items()}

    return tuple(
        _row(model, cells(model), published.get(model)) for model in ("lstm", "crvnn", "ordered-memory")
    )


LENGTHS = ("standard", *(f"{low}-{low + 100}" for low in range(200, 1000, 100)))
"""Tests of ListOps by number of tokens; see `_hard_rows`."""
ARGUMENTS = ("standard", "10-args", "15-args", "lra")
"""Tests of ListOps by number of arguments of an operator; see `_hard_rows`."""
SIZES = ("1000", "5000", "10000", "20000", "40000")
"""Values of `tasks.listops train --train-size`; each is a column."""


def _sentiment_row(model: str, sst2: Published | None = None, sst5: Published | None = None) -> RowSpec:
    cells = {
        f"SST-{classes}": Cell(_training("sst", model, "--classes", classes), ("accuracy",))
        for classes in ("2", "5")
    }
    published = {"SST-2": sst2, "SST-5": sst5}
    return _row(model, cells, {name: value for name, value in published.items() if value is not None})


def _sizes(model: str) -> dict[str, Cell]:
    return {
        size: Cell(_training("listops", model, "--train-size", size), ("accuracy",)) for size in SIZES
    } | {"all": Cell(_training("listops", model), ("accuracy",))}


TABLES: dict[str, TableSpec] = {
    "om-table-1": TableSpec(
        title="Table 1 of Ordered Memory: accuracy in logic by operations, and on the splits A, B and C",
        columns=(*logic.PUBLISHED_OPERATIONS, *logic.SPLITS, logic.F1),
        demo_columns=(*logic.PUBLISHED_OPERATIONS, logic.F1),
        rows=tuple(map(_logic_row, LOGIC_AND_LISTOPS_MODELS)),
        notes=(
            "7 to 12: test pairs by number of operations of the longer formula, after training on at most 6. "
            "A, B, C: the test pairs of 7 to 12 operations that the split leaves out of training.",
            F1_NOTE,
        ),
    ),
    "om-table-3a": TableSpec(
        title="Table 3a of Ordered Memory: accuracy in ListOps, and F1 of the trees",
        columns=("accuracy", "F1"),
        digits=2,
        rows=(
            *map(_listops_row, LOGIC_AND_LISTOPS_MODELS),
            _literature("RL-SPINN", accuracy=Published(60.7, 2.6), F1=Published(71.1)),
            _literature("Havrylov et al.", accuracy=Published(99.2, 0.5)),
        ),
        notes=(F1_NOTE,),
    ),
    "om-figure-3b": TableSpec(
        title="Figure 3b of Ordered Memory: accuracy in ListOps by the number of training expressions",
        columns=(*SIZES, "all"),
        demo_columns=("1000", "5000", "all"),
        digits=2,
        rows=tuple(_row(model, _sizes(model)) for model in ("lstm", "ordered-memory")),
        axis="training expressions",
        notes=("Sizes count expressions that are short enough to be trained on.",),
    ),
    "om-table-3": TableSpec(
        title="Sentiment in Ordered Memory: accuracy on SST-2 and SST-5",
        columns=("SST-2", "SST-5"),
        presets=("paper", "small", "demo"),
        rows=(
            _sentiment_row("ordered-memory", Published(90.4), Published(52.2)),
            _sentiment_row("gold-tree-lstm", Published(88.0), Published(51.0)),
            _sentiment_row("gumbel-tree-lstm", Published(90.7), Published(53.7)),
            *map(_sentiment_row, ("lstm", "bilstm", "onlstm", "crvnn", "gold-tree-cell", "mean")),
            _literature("Ordered Memory over ELMo", **{"SST-2": Published(92.0), "SST-5": Published(55.2)}),
            _literature("Havrylov et al.", **{"SST-2": Published(90.2, 0.2), "SST-5": Published(51.5, 0.4)}),
        ),
        notes=(
            "Published results are on the test data, with GloVe 840B unless stated otherwise; the two "
            "Tree-LSTMs fine-tune these vectors. Without a test.txt, our results are on dev.txt, which "
            "also selected the epoch.",
        ),
    ),
    "listops-lengths": TableSpec(
        title="ListOps, accuracy by tokens after training on at most 100",
        columns=LENGTHS,
        demo_columns=("standard", "200-300", "500-600", "900-1000"),
        digits=2,
        rows=_hard_rows(LENGTHS),
        notes=(
            "standard: test expressions of all lengths. Published results for 200 and more tokens are those"
            " that later papers report for Ordered Memory on tests from the same distribution.",
        ),
    ),
    "listops-arguments": TableSpec(
        title="ListOps, accuracy by arguments of an operator after training on at most 5",
        columns=ARGUMENTS,
        digits=2,
        rows=_hard_rows(ARGUMENTS),
        notes=(
            "standard: the test expressions of the run. lra: 501 to 1,999 tokens and up to 10 arguments, as"
            " in Long Range Arena. Published results for more than 5 arguments are those that later papers "
            "report for Ordered Memory.",
        ),
    ),
}
"""The tables by their names on the command line."""
