"""The results of parsing: tables in the terminal, the page to look at."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from ordered_memory.draw import distances_figure
from ordered_memory.span_f1 import CORPUS_LEVEL, EVALB_DIFFERENCE, ONE_TOKEN, SENTENCE_LEVEL
from tasks.parsing.evaluation import LABELS, SHORT, Evaluation, Source
from tasks.parsing.treebank import tags_text
from tasks.reporting.report import Example, Report, Table, write_report
from tasks.reporting.tables import table

NUM_EXAMPLES = 12
EXAMPLE_LENGTHS = (4, 20)
PAPERS_LAYER = 2
TEXT_WIDTH = 110

GROUP_NAMES = {"all": "all sentences", "short": f"sentences of at most {SHORT} words"}
COLUMNS = {
    "f1_corpus": "F1 corpus",
    "f1_sentence": "F1 sentence",
    "depth": "depth",
    "depth_of_words": "depth of words",
}
CONVENTIONS = (
    f"F1 corpus: {CORPUS_LEVEL}. {EVALB_DIFFERENCE} F1 sentence: {SENTENCE_LEVEL}, as in the authors' "
    "evaluation; a sentence of one or two words scores 1. "
    f"{ONE_TOKEN} Depth: constituents above the deepest word; depth of words: above a word on average, as in "
    "the authors' evaluation."
)
CEILINGS = (
    "True tree: decoded from distances of the true trees, an upper bound for the decoding, since true trees "
    "are not binary."
)
RECALL_CONVENTION = (
    "Recall: the fraction of true constituents of two words or more whose span is predicted, in all "
    "sentences together. The whole-sentence span counts; every label of a span counts once."
)
PUBLISHED = {
    "ON-LSTM on the WSJ test section": 0.477,
    "right-branching on the WSJ test section": 0.398,
    f"ON-LSTM on WSJ10, at most {SHORT} words": 0.651,
}
PUBLISHED_NOTE = (
    "F1 sentence as published: a full-size model, layer 2, prpn, mean of several runs. Not the same data, "
    "unless the treebank read here is section 23 of the WSJ, which is the test section. NLTK's treebank "
    "sample is sections 00 and 01 (files 1 to 199), and the usual Penn Treebank text for language models has "
    "them in its training part."
)


def results_text(results: dict[str, Any]) -> str:
    """Format the results of an evaluation as plain text.

    Args:
        results: from `commands.run_evaluate`.
    Returns:
        Several lines.
    """
    lines = [line for fact in _facts(results) for line in _wrap(fact)]
    for one in _tables(results):
        rows = [[cell if isinstance(cell, str) else _text(cell) for cell in row] for row in one.rows]
        lines += ["", one.title, table(one.columns, rows), *_wrap(one.note)]
    return "\n".join(lines)


def write_page(path: Path, results: dict[str, Any], evaluation: Evaluation) -> None:
    """Write the HTML report: tables, and a dozen sentences of different lengths with trees and distances.

    Args:
        path: the file, in a directory that exists.
        results: from `commands.run_evaluate`.
        evaluation: the trees.
    """
    source = _source_of_examples(list(evaluation.trees))
    report = Report(
        title=f"Unsupervised parsing with {results['model']}",
        subtitle=" ".join([*_facts(results), f"Examples: {source.name}."]),
        config=results["config"],
        tables=_tables(results),
        examples=[_example(evaluation, source, index) for index in _choose(evaluation)],
    )
    write_report(path, report)


def _facts(results: dict[str, Any]) -> list[str]:
    """What was read and how, in sentences."""
    group = results["groups"]["all"]
    mean = group["words"] / group["sentences"]
    return [
        f"{group['sentences']:,} sentences of {results['source']}, {group['words']:,} words ({mean:.1f} a "
        f"sentence), {group['of_one_word']:,} sentences of one word; left out: {results['empty']:,} without "
        f"words, {results['too_long']:,} of too many words.",
        f"{results['punctuation']}{_unknown_tags(results['unknown_tags'])}.",
        f"{results['coverage']:.2%} of the words are in the model's vocabulary.",
        f"Distances of {results['model']} are {results['unit']}; CKY with temperature "
        f"{results['config']['temperature']:g}.",
    ]


def _unknown_tags(tags: dict[str, int]) -> str:
    if not tags:
        return ""
    count = sum(tags.values())
    return f"; so are {count:,} words of tags that the Penn Treebank does not have ({tags_text(tags)})"


def _tables(results: dict[str, Any]) -> list[Table]:
    groups, rows = results["groups"], results["rows"]
    tables = [
        Table(
            title=f"Unlabelled span F1 and depth: {GROUP_NAMES[name]} ({groups[name]['sentences']:,})",
            columns=["trees", *COLUMNS.values()],
            rows=[[row["name"], *(row[name][key] for key in COLUMNS)] for row in rows],
        )
        for name in groups
    ]
    tables[-1].note = f"{CONVENTIONS} {CEILINGS}"
    if results["published"]:
        published = [[name, f"{value:.3f}"] for name, value in PUBLISHED.items()]
        tables.append(Table("Published", ["trees", "F1 sentence"], published, PUBLISHED_NOTE))
    recall = [
        [row["name"], *("–" if value is None else value for value in row["all"]["label_recall"].values())]
        for row in rows
    ]
    recall.append(["constituents", *groups["all"]["labels"].values()])
    tables.append(Table("Recall by label", ["trees", *LABELS], recall, RECALL_CONVENTION))
    return tables


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, TEXT_WIDTH)


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _source_of_examples(sources: Sequence[Source]) -> Source:
    """The paper's decoding, of the paper's layer if it was evaluated."""
    candidates = [source for source in sources if source.decoding == "prpn"]
    return next((source for source in candidates if source.layer == PAPERS_LAYER), candidates[0])


def _choose(evaluation: Evaluation) -> list[int]:
    """Sentences of lengths that can be drawn, evenly spread."""
    shortest, longest = EXAMPLE_LENGTHS
    lengths = np.array([len(sentence.words) for sentence in evaluation.sentences])
    fitting = np.flatnonzero((lengths >= shortest) & (lengths <= longest))
    ordered = fitting[np.argsort(lengths[fitting], kind="stable")]
    places = np.linspace(0, len(ordered) - 1, min(NUM_EXAMPLES, len(ordered)))
    return [int(index) for index in ordered[places.astype(np.int64)]]


def _example(evaluation: Evaluation, source: Source, index: int) -> Example:
    sentence = evaluation.sentences[index]
    sources = [one for one in evaluation.trees if one.decoding == source.decoding]
    layers = [one.layer - 1 for one in sources if one.layer is not None]
    return Example(
        tokens=sentence.words,
        predicted_tree=evaluation.trees[source][index],
        gold_tree=sentence.tree,
        attention=None,
        caption=f"{len(sentence.words)} words ({PurePath(sentence.where).name})",
        correct=None,
        figure=distances_figure(
            evaluation.distances[index][layers].numpy(),
            sentence.words,
            [evaluation.trees[one][index] for one in sources],
            [one.name for one in sources],
        ),
    )
