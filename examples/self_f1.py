"""Do runs of a model find the same trees? Self-F1: how well the trees of any two runs agree.

python -m tasks.logic evaluate --checkpoint A --predictions a.jsonl    # the same for B and C
python examples/self_f1.py a.jsonl b.jsonl c.jsonl

The files hold predictions for the same examples, of ListOps, logic, sentiment or a task of your own.
"""

import json
import sys
from itertools import combinations
from pathlib import Path

from ordered_memory.baseline_trees import random_trees
from ordered_memory.brackets import from_brackets
from ordered_memory.span_f1 import CONVENTIONS, TreeSpans, read_spans, score_spans
from ordered_memory.trees import Tree

FEWEST_WORDS = 3
"""All trees over fewer words are the same."""


def read(path: Path) -> tuple[list[list[str]], list[Tree]]:
    """The words of each sentence, and its tree."""
    try:
        with path.open(encoding="utf-8") as file:  # splitlines() would also split within a text
            parsed = [from_brackets(text) for line in file for text in json.loads(line)["trees"]]
    except (KeyError, TypeError, ValueError):
        sys.exit(f"{path}: not what `evaluate --predictions` of a classifier writes, with trees")
    kept = [(words, tree) for tree, words in parsed if len(words) >= FEWEST_WORDS]
    if not kept:
        sys.exit(f"{path}: no tree over {FEWEST_WORDS} words or more")
    return [words for words, _ in kept], [tree for _, tree in kept]


def main(paths: list[Path]) -> None:
    """Print the F1 between the trees of any two files, its mean, and that with random trees."""
    runs = {path: read(path) for path in paths}
    sentences, _ = runs[paths[0]]
    for path, (others, _) in runs.items():
        if others != sentences:
            sys.exit(f"{paths[0]} and {path} are predictions for different examples")
    spans: dict[Path, list[TreeSpans]] = {path: read_spans(trees) for path, (_, trees) in runs.items()}
    random = read_spans(random_trees([len(words) for words in sentences], seed=1))
    for convention in CONVENTIONS:
        print(f"F1 of {len(sentences):,} trees over {FEWEST_WORDS} words or more, {convention}")
        scores = []
        for first, second in combinations(paths, 2):
            scores.append(score_spans(spans[first], spans[second], convention).f1)
            print(f"  {first} and {second}: {scores[-1]:.4f}")
        with_random = [score_spans(random, trees, convention).f1 for trees in spans.values()]
        print(f"  mean, self-F1: {sum(scores) / len(scores):.4f}")
        print(f"  with random trees: {sum(with_random) / len(with_random):.4f}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main([Path(name) for name in sys.argv[1:]])
