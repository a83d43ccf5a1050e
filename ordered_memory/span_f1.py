"""Unlabeled span F1 between trees. The conventions that differ between papers are arguments.

Spans are compared as sets. Comparing T × T charts (`charts.to_chart`) took ten times as long on 10,000
ListOps expressions.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from ordered_memory.baseline_trees import baselines as baselines
from ordered_memory.checks import check_flags, check_name, integer_or_none
from ordered_memory.trees import Span, Tree, leaves, spans

Level = Literal["corpus", "sentence"]
"""Corpus level pools the spans of all sentences, sentence level averages their scores."""
LEVELS: tuple[Level, ...] = get_args(Level)


class Convention(NamedTuple):
    """The convention of an F1 score. `str` gives its wording in reports.

    Args:
        level: "corpus" pools the counts of all sentences, "sentence" averages the scores of each.
        whole_sentence: whether the span of the whole sentence counts.
    Example:
        >>> str(Convention("corpus", whole_sentence=True))
        'corpus level, with the whole-sentence span'
    """

    level: Level
    whole_sentence: bool

    def __str__(self) -> str:
        return f"{self.level} level, {'with' if self.whole_sentence else 'without'} the whole-sentence span"


CORPUS_LEVEL = Convention("corpus", whole_sentence=True)
"""The convention of EVALB for trees without unary nodes, as in ListOps and logic; see `span_f1`."""
SENTENCE_LEVEL = Convention("sentence", whole_sentence=False)
"""The convention of ON-LSTM's evaluation."""
CONVENTIONS = (CORPUS_LEVEL, SENTENCE_LEVEL)
ONE_TOKEN = "Spans of one token never count."
"""A note for reports; true of every convention."""
EVALB_DIFFERENCE = (
    "EVALB also counts constituents over one word and every node of a unary chain, so its numbers for a "
    "treebank with such nodes differ."
)
"""A note for reports of `CORPUS_LEVEL` scores where gold trees may have unary nodes."""


class SpanF1(NamedTuple):
    """How well predicted spans agree with gold ones, and under which conventions.

    Args:
        precision: fraction in [0, 1].
        recall: fraction in [0, 1].
        f1: fraction in [0, 1].
        sentences: number of sentences.
        level: "corpus" or "sentence".
        whole_sentence: whether the span of the whole sentence counts.
        matched: number of spans that are both predicted and gold, in all sentences.
        predicted: number of predicted spans.
        gold: number of gold spans.
    """

    precision: float
    recall: float
    f1: float
    sentences: int
    level: Level
    whole_sentence: bool
    matched: int
    predicted: int
    gold: int


class TreeSpans(NamedTuple):
    """The spans of a tree.

    Args:
        size: number of leaves.
        spans: spans of the constituents of two leaves or more.
    """

    size: int
    spans: frozenset[Span]


def read_spans(trees: Sequence[Tree], name: str = "trees") -> list[TreeSpans]:
    """Read the spans of trees once, to score them several times with `score_spans`.

    Args:
        trees: each over the leaves 0..n - 1 of its sentence.
        name: name of the argument in error messages.
    Returns:
        The spans of each tree.
    Raises:
        TypeError, ValueError: one tree instead of a list, or an entry is not a tree, as for `span_f1`.
    Example:
        >>> [(tree.size, sorted(tree.spans)) for tree in read_spans([((0, 1), 2)])]
        [(3, [(0, 1), (0, 2)])]
    """
    if _is_one_tree(trees):
        raise TypeError(f"expected {name} to be a list of trees, got one tree: {reprlib.repr(trees)}")
    # By id, which needs a reference to the tree: the trees of `baselines` are one object for each length.
    known: dict[int, tuple[Tree, TreeSpans]] = {}
    read = []
    for i, tree in enumerate(trees):
        if id(tree) not in known:
            known[id(tree)] = tree, _read_tree(tree, f"{name}[{i}]")
        read.append(known[id(tree)][1])
    return read


def score_spans(predicted: Sequence[TreeSpans], gold: Sequence[TreeSpans], convention: Convention) -> SpanF1:
    """`span_f1` of trees whose spans were read before.

    Args:
        predicted, gold: results of `read_spans`.
        convention: what counts.
    Returns:
        The scores and their convention.
    Raises:
        TypeError: `whole_sentence` of the convention is not a bool.
        ValueError: there are no sentences, the numbers of trees or of their leaves differ, or the level of
            the convention is unknown.
    Example:
        >>> predicted, gold = read_spans([((0, 1), 2)]), read_spans([(0, (1, 2))])
        >>> score_spans(predicted, gold, CORPUS_LEVEL).f1, score_spans(predicted, gold, SENTENCE_LEVEL).f1
        (0.5, 0.0)
    """
    _check_convention(convention)
    level, whole_sentence = convention
    if len(predicted) != len(gold):
        raise ValueError(f"expected as many predicted as gold trees, got {len(predicted)} and {len(gold)}")
    if not gold:
        raise ValueError("expected one sentence or more, got none")
    counts = [
        _count_spans(i, *pair, whole_sentence) for i, pair in enumerate(zip(predicted, gold, strict=True))
    ]
    num_matched, num_predicted, num_gold = (sum(column) for column in zip(*counts, strict=True))
    if level == "corpus":
        precision, recall, f1 = _precision_recall_f1(num_matched, num_predicted, num_gold)
    else:
        ratios = [_precision_recall_f1(*count) for count in counts]
        precision, recall, f1 = (sum(column) / len(ratios) for column in zip(*ratios, strict=True))
    return SpanF1(
        precision, recall, f1, len(gold), level, whole_sentence, num_matched, num_predicted, num_gold
    )


def span_f1(predicted: Sequence[Tree], gold: Sequence[Tree], *, level: Level, whole_sentence: bool) -> SpanF1:
    """Score predicted trees against gold ones. Spans of one token never count.

    With P and G the sets of predicted and gold spans,

        precision = |P ∩ G| / |P|,  recall = |P ∩ G| / |G|,  F1 = 2 |P ∩ G| / (|P| + |G|),

    of all sentences together or of each. Precision is 1 if P is empty, recall is 1 if G is empty, and F1 is 1
    if both are empty: a sentence of one word scores 1.

    `level="corpus", whole_sentence=True` gives EVALB's unlabeled numbers if every constituent has two
    children or more. This does not hold for the Penn Treebank, where EVALB (with COLLINS.prm) gives other
    numbers: it counts every node above the part-of-speech tags, including nodes over one word and each node
    of a unary chain. Here a span counts once, and only if it has two words or more. EVALB also deletes an
    outermost node only if its label is TOP (ROOT in the COLLINS.prm that comes with the authors' code, S1 in
    other parameter files), and counts it otherwise.

    `level="sentence", whole_sentence=False` is the convention of ON-LSTM's evaluation.

    Args:
        predicted: trees, each over the leaves 0..n - 1 of its sentence.
        gold: trees over the same leaves, in the same order; need not be binary.
        level: "corpus" pools the counts, "sentence" averages precision, recall and F1.
        whole_sentence: whether the span of the whole sentence counts.
    Returns:
        The scores and their conventions.
    Raises:
        TypeError: one tree instead of a list, or an entry is not a tree (a string or an nltk.Tree, for
            instance); the message says where. Or `whole_sentence` is not a bool.
        ValueError: an entry is not a tree, there are no sentences, the numbers of trees or of their leaves
            differ, or the level is unknown.
    Example:
        >>> span_f1([((0, 1), 2)], [(0, (1, 2))], level="corpus", whole_sentence=True).f1
        0.5
    """
    convention = Convention(level, whole_sentence)
    _check_convention(convention)
    return score_spans(read_spans(predicted, "predicted"), read_spans(gold, "gold"), convention)


def compare(
    predicted: Sequence[Tree] | Mapping[str, Sequence[Tree]],
    gold: Sequence[Tree],
    *,
    conventions: Sequence[Convention] | Convention = CONVENTIONS,
    seed: int = 0,
) -> dict[Convention, dict[str, SpanF1]]:
    """Score the trees of a model and of every baseline, under one convention or more.

    Args:
        predicted: see `span_f1`; or such trees by name, to compare several models or decodings.
        gold: see `span_f1`.
        conventions: one or more; by default both of `CONVENTIONS`.
        seed: seed of the random trees.
    Returns:
        Scores by convention, then by name: "model", or the given names, then the baselines.
    Raises:
        TypeError: a convention has the wrong type, or as `span_f1`.
        ValueError: there are no conventions, a given name is that of a baseline, or as `span_f1`.
    Example:
        >>> scores = compare([(0, (1, 2))], [(0, (1, 2))])[SENTENCE_LEVEL]
        >>> scores["model"].f1, scores["left-branching"].f1
        (1.0, 0.0)
    """
    conventions = [conventions] if isinstance(conventions, Convention) else list(conventions)
    if not conventions:
        raise ValueError("expected one convention or more, got none")
    for convention in conventions:
        if not isinstance(convention, Convention):
            raise TypeError(f"expected conventions to be of type Convention, got {convention!r}")
        _check_convention(convention)
    gold_spans = read_spans(gold, "gold")
    if isinstance(predicted, Mapping):
        predicted_spans = {name: read_spans(trees, name) for name, trees in predicted.items()}
    else:
        predicted_spans = {"model": read_spans(predicted, "predicted")}
    for name, trees in baselines([sentence.size for sentence in gold_spans], seed).items():
        if name in predicted_spans:
            raise ValueError(f"expected other names of predicted trees than that of a baseline, got {name!r}")
        predicted_spans[name] = read_spans(trees, name)
    return {
        convention: {
            name: score_spans(tree_spans, gold_spans, convention)
            for name, tree_spans in predicted_spans.items()
        }
        for convention in conventions
    }


def format_report(scores: Mapping[Convention, Mapping[str, SpanF1]], *, punctuation: str) -> str:
    """Format scores as tables, with their conventions.

    Args:
        scores: result of `compare`.
        punctuation: how punctuation was treated, such as "dropped" or "kept"; part of the text.
    Returns:
        Several lines of text.
    Example:
        >>> scores = compare([0], [0], conventions=[CORPUS_LEVEL])
        >>> print(format_report(scores, punctuation="kept"))
        unlabeled span F1 of 1 sentence, corpus level, with the whole-sentence span;
        punctuation: kept. Spans of one token never count.
                          F1         precision  recall
                   model  1.0000     1.0000     1.0000
          left-branching  1.0000     1.0000     1.0000
         right-branching  1.0000     1.0000     1.0000
                balanced  1.0000     1.0000     1.0000
                  random  1.0000     1.0000     1.0000
    """
    tables = []
    for convention, rows in scores.items():
        sentences = next(iter(rows.values())).sentences
        width = max(16, *map(len, rows))
        lines = [
            f"unlabeled span F1 of {sentences:,} sentence{'s' * (sentences != 1)}, {convention};",
            f"punctuation: {punctuation}. {ONE_TOKEN}",
            f"{'':{width}}  F1         precision  recall",
        ]
        lines += [
            f"{name:>{width}}  {fraction_text(score.f1):9}  {fraction_text(score.precision):9}  "
            f"{fraction_text(score.recall)}"
            for name, score in rows.items()
        ]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def fraction_text(value: float, digits: int = 4, *, whole: float = 1.0) -> str:
    """Format a fraction, with more digits if rounding would turn a smaller value into `whole`.

    Args:
        value: in [0, whole].
        digits: number of decimals; a value that would be rounded up to the whole gets more, up to 9.
        whole: 1, or 100 for a percentage.
    Example:
        >>> fraction_text(0.87654), fraction_text(0.99996), fraction_text(1)
        ('0.8765', '0.99996', '1.0000')
    """
    while value < whole and round(value, digits) >= whole and digits < 9:
        digits += 1
    return f"{value:.{digits}f}"


def _is_one_tree(trees: object) -> bool:
    """Whether the argument is a tree. A tuple of several trees is not: each begins with leaf 0."""
    if isinstance(trees, tuple) and len(trees) > 1:
        try:
            leaves(trees)
        except (TypeError, ValueError):
            return False
        return True
    return integer_or_none(trees) is not None


def _read_tree(tree: Tree, name: str) -> TreeSpans:
    tree_spans = spans(tree, name)
    # The whole tree comes last; a tree without spans is a single leaf.
    first, last = tree_spans[-1] if tree_spans else leaves(tree) * 2
    if first != 0:
        raise ValueError(f"expected {name} to have the leaves 0, 1, …, got {first} as the first")
    return TreeSpans(last + 1, frozenset(tree_spans))


def _check_convention(convention: Convention) -> None:
    check_name("level", convention.level, LEVELS)
    check_flags(whole_sentence=convention.whole_sentence)


def _count_spans(
    index: int, predicted: TreeSpans, gold: TreeSpans, whole_sentence: bool
) -> tuple[int, int, int]:
    """The numbers of matched, predicted and gold spans of one sentence."""
    if predicted.size != gold.size:
        raise ValueError(
            f"expected trees over the same leaves, got {predicted.size} leaves in predicted[{index}] and "
            f"{gold.size} in gold[{index}]"
        )
    excluded = set() if whole_sentence else {(0, gold.size - 1)}
    predicted_spans, gold_spans = predicted.spans - excluded, gold.spans - excluded
    return len(predicted_spans & gold_spans), len(predicted_spans), len(gold_spans)


def _precision_recall_f1(num_matched: int, num_predicted: int, num_gold: int) -> tuple[float, float, float]:
    precision = num_matched / num_predicted if num_predicted else 1.0
    recall = num_matched / num_gold if num_gold else 1.0
    # From the counts, so that F1 is exactly symmetric in the two trees.
    f1 = 2 * num_matched / (num_predicted + num_gold) if num_predicted + num_gold else 1.0
    return precision, recall, f1
