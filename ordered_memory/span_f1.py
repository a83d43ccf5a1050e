"""Unlabelled span F1 between trees, with every convention that papers differ in as an argument.

Spans are compared as sets. The charts of `trees.to_chart` hold the same spans and `trees.from_chart` reads
them, but T × T tensors for T - 1 spans took ten times as long on 10,000 ListOps expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ordered_memory.baseline_trees import balanced, left_branching, random_trees, right_branching
from ordered_memory.trees import Tree, leaves, spans

Level = Literal["corpus", "sentence"]


class SpanF1(NamedTuple):
    """How well predicted spans agree with gold ones, and under which conventions.

    Args:
        precision: fraction in [0, 1].
        recall: fraction in [0, 1].
        f1: fraction in [0, 1].
        sentences: how many were scored.
        level: "corpus" or "sentence".
        whole_sentence: whether the span of the whole sentence counts.
        matched: spans that are both predicted and gold, in all sentences together.
        predicted: spans likewise.
        gold: spans likewise.
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


def span_f1(predicted: Sequence[Tree], gold: Sequence[Tree], *, level: Level, whole_sentence: bool) -> SpanF1:
    """Score predicted trees against gold ones. Spans of one token never count.

    `level="corpus", whole_sentence=True` is EVALB's convention: counts of all sentences are pooled.
    `level="sentence", whole_sentence=False` is that of ON-LSTM's evaluation: the mean of each sentence's
    scores. At either level, where nothing was predicted precision is 1, where there is nothing to find
    recall is 1, so a sentence of one word scores 1; where precision and recall are 0, F1 is 0.

    Args:
        predicted: trees.
        gold: trees over the same leaves, in the same order; need not be binary.
        level: "corpus" pools the counts, "sentence" averages precision, recall and F1.
        whole_sentence: whether the span of the whole sentence counts.
    Returns:
        The scores and their conventions.
    Raises:
        ValueError: no sentences, unequal numbers of trees, other leaves, or an unknown level.
    Example:
        >>> span_f1([((0, 1), 2)], [(0, (1, 2))], level="corpus", whole_sentence=True).f1
        0.5
    """
    if level not in ("corpus", "sentence"):
        raise ValueError(f"level must be 'corpus' or 'sentence', got {level!r}")
    if len(predicted) != len(gold):
        raise ValueError(f"{len(predicted)} predicted trees for {len(gold)} gold ones")
    if not gold:
        raise ValueError("no sentences to score")
    counts = [_count(i, *pair, whole_sentence) for i, pair in enumerate(zip(predicted, gold, strict=True))]
    matched, found, wanted = (sum(column) for column in zip(*counts, strict=True))
    if level == "corpus":
        precision, recall, f1 = _scores(matched, found, wanted)
    else:
        each = [_scores(*count) for count in counts]
        precision, recall, f1 = (sum(column) / len(each) for column in zip(*each, strict=True))
    return SpanF1(precision, recall, f1, len(gold), level, whole_sentence, matched, found, wanted)


def baselines(lengths: Sequence[int], seed: int = 0) -> dict[str, list[Tree]]:
    """Trees that know nothing of the sentence but its length: what any parser has to beat.

    Args:
        lengths: tokens of each sentence, at least 1.
        seed: of the random trees.
    Returns:
        By name: left-branching, right-branching, balanced, random (uniform).
    Raises:
        ValueError: a length below 1.
    Example:
        >>> baselines([3])["balanced"]
        [((0, 1), 2)]
    """
    return {
        "left-branching": [left_branching(n) for n in lengths],
        "right-branching": [right_branching(n) for n in lengths],
        "balanced": [balanced(n) for n in lengths],
        "random": random_trees(lengths, seed),
    }


def compare(
    predicted: Sequence[Tree], gold: Sequence[Tree], *, level: Level, whole_sentence: bool, seed: int = 0
) -> dict[str, SpanF1]:
    """`span_f1` of a model's trees and of every baseline.

    Args:
        predicted, gold, level, whole_sentence: see `span_f1`.
        seed: of the random trees.
    Returns:
        By name: "model", then the baselines.
    Raises:
        ValueError: as `span_f1`.
    Example:
        >>> scores = compare([(0, (1, 2))], [(0, (1, 2))], level="sentence", whole_sentence=False)
        >>> scores["model"].f1, scores["left-branching"].f1
        (1.0, 0.0)
    """
    systems = {"model": predicted, **baselines([len(leaves(tree)) for tree in gold], seed)}
    return {
        name: span_f1(trees, gold, level=level, whole_sentence=whole_sentence)
        for name, trees in systems.items()
    }


def format_report(scores: dict[str, SpanF1], *, punctuation: str) -> str:
    """A table that says what was measured as well as what came out.

    Args:
        scores: from `compare`.
        punctuation: what was done with it, for the reader: "dropped", "kept", …
    Returns:
        Several lines of text.
    Example:
        >>> print(format_report(compare([0], [0], level="corpus", whole_sentence=True), punctuation="kept"))
        unlabelled span F1: 1 sentences, corpus level, with the whole-sentence span,
        spans of one token never count, punctuation: kept
                              F1  precision  recall
                   model  1.0000     1.0000  1.0000
          left-branching  1.0000     1.0000  1.0000
         right-branching  1.0000     1.0000  1.0000
                balanced  1.0000     1.0000  1.0000
                  random  1.0000     1.0000  1.0000
    """
    first = next(iter(scores.values()))
    lines = [
        f"unlabelled span F1: {first.sentences:,} sentences, {first.level} level, "
        f"{'with' if first.whole_sentence else 'without'} the whole-sentence span,",
        f"spans of one token never count, punctuation: {punctuation}",
        f"{'':16}      F1  precision  recall",
    ]
    lines += [
        f"{name:>16}  {score.f1:.4f}     {score.precision:.4f}  {score.recall:.4f}"
        for name, score in scores.items()
    ]
    return "\n".join(lines)


def _count(index: int, predicted: Tree, gold: Tree, whole_sentence: bool) -> tuple[int, int, int]:
    """Matched, predicted and gold spans of one sentence."""
    ours, theirs = leaves(predicted), leaves(gold)
    if ours != theirs:
        raise ValueError(
            f"sentence {index}: the predicted tree has {len(ours)} leaves, the gold tree {len(theirs)}"
            if len(ours) != len(theirs)
            else f"sentence {index}: the two trees have different leaves"
        )
    found, wanted = set(spans(predicted)), set(spans(gold))
    if not whole_sentence:
        whole = {(0, len(theirs) - 1)}
        found, wanted = found - whole, wanted - whole
    return len(found & wanted), len(found), len(wanted)


def _scores(matched: int, found: int, wanted: int) -> tuple[float, float, float]:
    precision = matched / found if found else 1.0
    recall = matched / wanted if wanted else 1.0
    # The harmonic mean of the two, from counts: swapping the trees gives the same number exactly.
    f1 = 2 * matched / (found + wanted) if found + wanted else 1.0
    return precision, recall, f1
