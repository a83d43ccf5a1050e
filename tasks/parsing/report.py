"""The results of parsing: tables in the terminal, the page to look at."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from ordered_memory.span_f1 import CORPUS_LEVEL, EVALB_DIFFERENCE, ONE_TOKEN, SENTENCE_LEVEL
from ordered_memory.trace import Trace, add_true_tree, read_distances
from ordered_memory.trees import depth
from tasks.parsing.evaluation import LABELS, SHORT, Evaluation
from tasks.parsing.treebank import tags_text
from tasks.reporting.examples import choose
from tasks.reporting.report import Report, Table, best_cells, write_report
from tasks.reporting.tables import table

ABOUT = (
    "A language model, which learnt from text alone, reads sentences whose true trees are known. The "
    "distances that it computes between words say where constituents end; the trees that are read off them "
    "are compared with the true ones."
)
FACTS = ("Sentences", "Punctuation", "Vocabulary", "Distances")
TEXT_WIDTH = 110

GROUP_NAMES = {"all": "all sentences", "short": f"sentences of at most {SHORT} words"}
F1 = {"f1_corpus": "F1 corpus", "f1_sentence": "F1 sentence"}
COLUMNS = {
    **F1,
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


def write_page(path: Path, results: dict[str, Any], evaluation: Evaluation, facts: Mapping[str, str]) -> None:
    """Write the HTML report: tables, and sentences of different lengths with trees and distances.

    Args:
        path: the file, in a directory that exists.
        results: from `commands.run_evaluate`.
        evaluation: the trees.
        facts: how they came about, by name.
    """
    report = Report(
        title=f"Unsupervised parsing with {results['model']}",
        about=ABOUT,
        subtitle=_best_text(results),
        tables=_tables(results),
        traces=_traces(evaluation, results["config"]["temperature"]),
        facts={**dict(zip(FACTS, _facts(results), strict=True)), **facts},
        config=results["config"],
    )
    write_report(path, report)


def _best_text(results: dict[str, Any]) -> str:
    """Whose trees are nearest to the true ones."""
    measure = "f1_corpus"
    rows = [row for row in results["rows"] if row["decoding"] != "ceiling"]
    model, others = ([row for row in rows if (row["layer"] is None) == other] for other in (False, True))
    best, baseline = (max(of, key=lambda row: row["all"][measure]) for of in (model, others))
    return (
        f"{F1[measure]} {best['all'][measure]:.4f} with {best['name']}, the best of the model's trees; "
        f"{baseline['name']}, the best baseline, has {baseline['all'][measure]:.4f}."
    )


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
            best=_best_f1(rows, name),
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


def _best_f1(rows: list[dict[str, Any]], group: str) -> set[tuple[int, int]]:
    """The cells of the best F1 among the model's trees and the baselines: a ceiling takes no part."""
    ceilings = [row["name"] for row in rows if row["decoding"] == "ceiling"]
    return best_cells([[row["name"], *(row[group][key] for key in F1)] for row in rows], ceilings)


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, TEXT_WIDTH)


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _traces(evaluation: Evaluation, temperature: float) -> list[Trace]:
    """Some sentences with the distances of the evaluated layers, and every tree."""
    layers = [source.layer for source in evaluation.trees if source.layer and source.decoding == "prpn"]
    lengths = [len(sentence.words) for sentence in evaluation.sentences]
    depths = [depth(sentence.tree) for sentence in evaluation.sentences]
    traces = []
    for number, index in enumerate(choose(lengths, depths)):
        sentence = evaluation.sentences[index]
        trace = read_distances(
            evaluation.distances[index][[layer - 1 for layer in layers]],
            sentence.words,
            names=[f"layer {layer}" for layer in layers],
            temperature=temperature,
        )
        add_true_tree(trace, sentence.tree)
        trace["caption"], trace["example"] = PurePath(sentence.where).name, number
        traces.append(trace)
    return traces
