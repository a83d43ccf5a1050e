"""The tables of the ON-LSTM paper."""

from __future__ import annotations

from ordered_memory.span_f1 import SENTENCE_LEVEL, baselines
from ordered_memory.tree_recovery import GREEDY_DECODINGS
from tasks.formatting.summary import Published
from tasks.language_model.grammar import generate_pairs
from tasks.logic import published as logic
from tasks.parsing import published as parsing
from tasks.reproduce.table import Cell, CommandSpec, RowSpec, TableSpec
from tasks.syntax_eval.paper_table import OTHER, PAPER_ROWS, Row

PRESETS = ("paper", "small", "demo")
MODELS = {"onlstm": "ON-LSTM", "lstm": "LSTM"}
"""Names of models in the tables, by `--model`. Published results on minimal pairs have the same order."""
LANGUAGE_MODELS = {model: CommandSpec("language_model", ("--model", model)) for model in (*MODELS, "prpn")}
"""Training runs by `--model`; tables 1, 2 and 3 share them."""

PERPLEXITY = {
    "onlstm": {"validation": Published(58.29, 0.1), "test": Published(56.17, 0.12)},
    "lstm": {"validation": Published(60.0), "test": Published(57.3)},
    "prpn": {"test": Published(62.0)},
}
"""Published perplexities, by `--model` and column.

Those of the LSTM are AWD-LSTM's, which has the same sizes as the ON-LSTM.
"""


def _perplexity_row(model: str) -> RowSpec:
    cells = {
        split: Cell(LANGUAGE_MODELS[model], (f"{split}_perplexity",)) for split in ("validation", "test")
    }
    return RowSpec(MODELS.get(model, "PRPN"), model, cells, PERPLEXITY[model])


ALL, SHORT = "all", "at most 10 words"
"""The columns of F1, on all sentences and on short ones."""
PARSING_LABELS = ("ADJP", "NP", "PP", "INTJ")
"""The labels of constituents whose recall is in Table 2 of the paper; each is a column."""


def _parsing_row(name: str, source: str = "", model: str = "onlstm") -> RowSpec:
    """The row of a layer or baseline.

    Args:
        name: name shown in the table.
        source: its name in the results of tasks.parsing; `name` if empty.
        model: the language model, by `--model`.
    """
    groups = {ALL: "all", SHORT: "short"}
    cells = {
        column: Cell(
            LANGUAGE_MODELS[model],
            ("rows", {"name": source or name}, group, "f1_sentence"),
            CommandSpec("parsing"),
        )
        for column, group in groups.items()
    }
    for label in PARSING_LABELS:
        result = ("rows", {"name": source or name}, "all", "label_recall", label)
        cells[label] = Cell(LANGUAGE_MODELS[model], result, CommandSpec("parsing"))
    published = parsing.PUBLISHED[model].get(source or name, {})
    published_by_column = {column: published[group] for column, group in groups.items() if group in published}
    return RowSpec(name, model, cells, published_by_column)


def _column(row: Row) -> str:
    """The column for a row of Table 3 of the paper; rows of different sections may have the same name."""
    return f"{row.section.split('-')[0]}: {row.group}: {row.name}"


GENERATED = tuple(dict.fromkeys(pair.construction for pair in generate_pairs(1, seed=1)))
"""The columns of the `demo` preset: the constructions of its generated minimal pairs."""


def _pairs_row(index: int, model: str) -> RowSpec:
    """The row of a language model on minimal pairs.

    Args:
        index: the index of its published results in `tasks.syntax_eval.paper_table.Row.published`.
        model: the language model, by `--model`.
    """
    # Which of the "lines" in the results of tasks.syntax_eval has the accuracy of a column.
    lines = {
        _column(row): {"section": row.section, "group": row.group, "name": row.name} for row in PAPER_ROWS
    } | {name: {"section": OTHER, "name": name} for name in GENERATED}
    cells = {
        column: Cell(LANGUAGE_MODELS[model], ("lines", line, "accuracy", 0), CommandSpec("syntax_eval"))
        for column, line in lines.items()
    }
    published = {
        _column(row): Published(round(100 * row.published[index]))
        for row in PAPER_ROWS
        if row.published is not None
    }
    return RowSpec(MODELS[model], model, cells, published)


OPERATIONS = tuple(str(count) for count in range(13))
"""The numbers of operations that test pairs have; each is a column."""
LOGIC_OPTIONS: dict[str, tuple[str, ...]] = {
    "onlstm": (),
    "lstm": (
        *("--embedding-size", "128", "--slot-size", "400"),
        *("--input-dropout", "0.2", "--output-dropout", "0.2", "--adam-betas", "0.9", "0.999"),
    ),
}
"""Options of training in logic, by `--model`.

They give the LSTM the sizes and optimizer of the ON-LSTM paper; the preset of ON-LSTM already has these.
"""


def _operations_row(model: str) -> RowSpec:
    training = CommandSpec("logic", ("--model", model, *LOGIC_OPTIONS[model]))
    cells = {count: Cell(training, ("accuracy_by", "operations", count, 0)) for count in OPERATIONS}
    published = {name: value for name, value in logic.PUBLISHED[model].items() if name in OPERATIONS}
    return RowSpec(MODELS[model], model, cells, published)


TABLES: dict[str, TableSpec] = {
    "on-table-1": TableSpec(
        title="Table 1 of ON-LSTM: perplexity on Penn Treebank text",
        columns=("validation", "test"),
        presets=PRESETS,
        percent=False,
        digits=2,
        rows=tuple(map(_perplexity_row, PERPLEXITY)),
        notes=("Published results of the LSTM are AWD-LSTM's. Our models read the text from start to end.",),
    ),
    "on-table-2": TableSpec(
        title="Table 2 of ON-LSTM: F1 of the trees of its language model",
        columns=(ALL, SHORT, *PARSING_LABELS),
        presets=PRESETS,
        rows=(
            *(
                _parsing_row(f"layer {layer}, {decoding}")
                for layer in (1, 2, 3)
                for decoding in GREEDY_DECODINGS
            ),
            *(
                _parsing_row(f"PRPN, {decoding}", f"layer 1, {decoding}", "prpn")
                for decoding in GREEDY_DECODINGS
            ),
            *map(_parsing_row, baselines([])),
        ),
        notes=(
            f"F1: {SENTENCE_LEVEL}. By label: recall. Published results are on the WSJ test section and "
            "WSJ10, ours on the treebank of --treebank or, for --preset demo, on generated sentences.",
        ),
    ),
    "on-table-3": TableSpec(
        title="Table 3 of ON-LSTM: accuracy on minimal pairs",
        columns=tuple(map(_column, PAPER_ROWS)),
        demo_columns=GENERATED,
        presets=PRESETS,
        rows=tuple(_pairs_row(index, model) for index, model in enumerate(MODELS)),
        models_side_by_side=True,
        notes=(
            "Published: two layers of 650 units trained on 90 million words of Wikipedia. Pairs with words "
            "that a model does not know are skipped.",
        ),
    ),
    "on-figure-3": TableSpec(
        title="ON-LSTM in logic: accuracy by operations",
        columns=OPERATIONS,
        rows=tuple(map(_operations_row, MODELS)),
        axis="operations",
        notes=(
            "Test pairs by number of operations of the longer formula, after training on at most 6. "
            "Published results are from Table 1 of Ordered Memory.",
        ),
    ),
}
"""The tables by their names on the command line."""
