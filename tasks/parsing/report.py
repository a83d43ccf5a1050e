"""The results of parsing: tables in the terminal, and an HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from ordered_memory.span_f1 import (
    CORPUS_LEVEL,
    EVALB_DIFFERENCE,
    ONE_TOKEN,
    SENTENCE_LEVEL,
    fraction_text,
)
from ordered_memory.trace import Trace, add_true_tree, read_distances
from ordered_memory.trees import depth
from tasks.formatting.tables import count_text, text_table, wrap
from tasks.language_model.reading import DISTANCES
from tasks.language_model.vocabulary import UNKNOWN
from tasks.parsing.evaluation import F1_CONVENTIONS, SHORT, Evaluation
from tasks.parsing.published import PUBLISHED
from tasks.parsing.treebank import tags_text
from tasks.reporting.examples import choose_examples
from tasks.reporting.induced_trees import RANDOM
from tasks.reporting.rendering import cell
from tasks.reporting.report import Report, Table, best_cells, write_report

ABOUT = (
    "A language model that was trained only on text reads sentences whose true trees are known. The "
    "distances that it computes between words indicate where constituents end. The trees that are decoded "
    "from them are compared with the true trees."
)
CONVENTION_NAMES = {f"f1_{name}": str(convention) for name, convention in F1_CONVENTIONS.items()}

GROUP_NAMES = {"all": "all sentences", "short": f"sentences of at most {SHORT} words"}
F1 = {"f1_corpus": "F1 corpus", "f1_corpus_inner": "F1 inner", "f1_sentence": "F1 sentence"}
COLUMNS = {
    **F1,
    "depth": "depth",
    "depth_of_words": "depth of words",
}
CONVENTIONS = (
    f"F1 corpus: {CORPUS_LEVEL}. {EVALB_DIFFERENCE} F1 inner: {F1_CONVENTIONS['corpus_inner']}. "
    f"F1 sentence: {SENTENCE_LEVEL}, as in the authors' "
    "evaluation; a sentence of one or two words scores 1. "
    f"{ONE_TOKEN} Depth: constituents above the deepest word; depth of words: above a word on average, as in "
    f"the authors' evaluation. {RANDOM}"
)
TRUE_TREES = (
    "True tree: decoded from distances that are computed from the true trees. No binary tree has a higher F1 "
    "than unbiased, which is below 1 if some true trees are not binary. The prpn row is not an upper bound: "
    "that decoder cannot build every tree, and distances other than these may give it a higher score."
)
RECALL_CONVENTION = (
    "Recall: the fraction of true constituents of two or more words whose span is predicted, over all "
    "sentences. The whole-sentence span counts; each label of a span counts once."
)
LACKS_PUNCTUATION = (
    "The model's vocabulary has punctuation, but the model reads these sentences without it, unlike its "
    "training text."
)
PUBLISHED_COLUMNS = ["trees", "WSJ test section", f"WSJ10, at most {SHORT} words"]
PUBLISHED_NOTE = (
    "Published F1 sentence: full-size models, mean over several runs. The data differ, unless this treebank "
    "is section 23 of the WSJ, which is the test section. NLTK's treebank sample is sections 00 and 01 "
    "(files 1 to 199), which are in the training data of Mikolov's Penn Treebank text."
)


def results_text(results: dict[str, Any], width: int | None = None) -> str:
    """Format the results of an evaluation as plain text.

    Args:
        results: results of the subcommand evaluate or score.
        width: maximum length of a line; see `text_table` and `wrap`.
    Returns:
        Several lines.
    """
    lines = [line for fact in _facts(results) for line in wrap(fact, width)]
    for result_table in _tables(results):
        rows = [[cell(value) for value in row] for row in result_table.rows]
        lines += ["", *wrap(result_table.title, width), text_table(result_table.columns, rows, width)]
        lines += wrap(result_table.note, width)
    return "\n".join(lines)


def write_page(path: Path, results: dict[str, Any], evaluation: Evaluation, facts: Mapping[str, str]) -> None:
    """Write the HTML report: tables, and sentences of different lengths with trees and distances.

    Args:
        path: the file, in a directory that exists.
        results: results of the subcommand evaluate.
        evaluation: the trees.
        facts: command, commit, date and machine, by name.
    """
    tables = _tables(results)
    tables[0].note = " ".join([*_facts(results), tables[0].note])
    report = Report(
        title=f"Unsupervised parsing with {results['model']}",
        about=ABOUT,
        subtitle=_best_text(results),
        tables=tables,
        traces=_traces(evaluation, results["config"]["temperature"]),
        facts=facts,
        config=results["config"],
    )
    write_report(path, report)


def _best_text(results: dict[str, Any]) -> str:
    """The best trees of the model, and the best baseline."""
    measure = "f1_corpus"
    rows = [row for row in results["rows"] if row["decoding"] != "true tree"]
    model_rows = [row for row in rows if row["layer"] is not None]
    baseline_rows = [row for row in rows if row["layer"] is None]
    best, baseline = (
        max(group, key=lambda row: row["all"][measure]) for group in (model_rows, baseline_rows)
    )
    f1, baseline_f1 = (fraction_text(row["all"][measure]) for row in (best, baseline))
    return (
        f"{F1[measure]} {f1} with {best['name']}: the maximum over the model's layers and decoders on the "
        f"evaluated trees. {baseline['name'].capitalize()}, the best baseline, has {baseline_f1}."
    )


def _facts(results: dict[str, Any]) -> list[str]:
    """The data and settings, in sentences."""
    group = results["groups"]["all"]
    mean = group["words"] / group["sentences"]
    facts = [
        f"{count_text(group['sentences'], 'sentence')} of {results['source']}, "
        f"{count_text(group['words'], 'word')} ({mean:.1f} a sentence), "
        f"{count_text(group['of_one_word'], 'sentence')} of one word; left out: {results['empty']:,} without "
        f"words, {results['too_long']:,} of too many words.",
        f"{results['punctuation']}{_unknown_tags(results['unknown_tags'])}.",
    ]
    if "model" not in results:  # trees from a file
        return facts
    coverage = fraction_text(100 * results["coverage"], 2, whole=100)
    others = f"; it reads the others as {UNKNOWN}" if results["coverage"] < 1 else ""
    lacks = f" {LACKS_PUNCTUATION}" if results["lacks_punctuation"] else ""
    return [
        *facts,
        f"{coverage}% of the words are in the model's vocabulary{others}.{lacks}",
        f"Distances of {results['model']} are {results['unit']}; CKY with temperature "
        f"{results['config']['temperature']:g}.",
    ]


def _unknown_tags(tags: dict[str, int]) -> str:
    if not tags:
        return ""
    count = sum(tags.values())
    words = f"so is {count} word" if count == 1 else f"so are {count:,} words"
    return f"; {words} of tags that the Penn Treebank does not have ({tags_text(tags)})"


def _tables(results: dict[str, Any]) -> list[Table]:
    groups, rows = results["groups"], results["rows"]
    tables = [
        Table(
            title=f"Unlabeled span F1 and depth: {GROUP_NAMES[name]} ({groups[name]['sentences']:,})",
            columns=["trees", *COLUMNS.values()],
            rows=[[row["name"], *(row[name][key] for key in COLUMNS)] for row in rows],
            best=_best_f1(rows, name),
        )
        for name in groups
    ]
    tables[-1].note = f"{CONVENTIONS} {TRUE_TREES}" if "model" in results else CONVENTIONS
    if results["published"]:
        tables.append(Table("Published", PUBLISHED_COLUMNS, _published_rows(results), PUBLISHED_NOTE))
    recall = [
        [row["name"], *("–" if value is None else value for value in row["all"]["label_recall"].values())]
        for row in rows
    ]
    recall.append(["constituents", *groups["all"]["labels"].values()])
    labels = groups["all"]["labels"]
    tables.append(Table("Recall by label", ["trees", *labels], recall, RECALL_CONVENTION))
    return tables


def _published_rows(results: dict[str, Any]) -> list[list[Any]]:
    """The published results of the evaluated model or, for trees from a file, of all models."""
    rows = {}
    for model, kind in DISTANCES.items():
        if results.get("model", kind.name) == kind.name:
            for trees, scores in PUBLISHED[model].items():
                name = f"{kind.name}, {trees}" if trees.startswith("layer") else trees
                values = (scores.get(group) for group in GROUP_NAMES)
                rows[name] = ["–" if value is None else f"{value.mean / 100:.3f}" for value in values]
    return [[name, *values] for name, values in rows.items()]


def _best_f1(rows: list[dict[str, Any]], group: str) -> set[tuple[int, int]]:
    """The cells with the best F1; trees decoded from distances of the true trees are left out."""
    from_true_trees = [row["name"] for row in rows if row["decoding"] == "true tree"]
    return best_cells([[row["name"], *(row[group][key] for key in F1)] for row in rows], from_true_trees)


def _traces(evaluation: Evaluation, temperature: float) -> list[Trace]:
    """Traces of some sentences, with the distances and trees of the evaluated layers."""
    layers = [source.layer for source in evaluation.trees if source.layer and source.decoding == "prpn"]
    lengths = [len(sentence.words) for sentence in evaluation.sentences]
    depths = [depth(sentence.tree) for sentence in evaluation.sentences]
    traces = []
    for number, index in enumerate(choose_examples(lengths, depths)):
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
