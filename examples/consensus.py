"""Are the trees that several runs agree on better than those of each run? F1 of both, with the baselines.

python -m tasks.logic evaluate --checkpoint A --predictions a.jsonl    # the same for B and C
python examples/consensus.py a.jsonl b.jsonl c.jsonl

The files hold predictions for the same examples, of ListOps, logic, sentiment or a task of your own. Those of
tasks.parsing have several trees for each sentence, by layer and algorithm. Say which:

python examples/consensus.py a.jsonl b.jsonl c.jsonl --trees "layer 2, unbiased"
"""

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

from ordered_memory.brackets import from_brackets
from ordered_memory.consensus import consensus_trees
from ordered_memory.span_f1 import compare, format_report
from ordered_memory.trees import Tree


class Run(NamedTuple):
    """What a run predicts: for each sentence its words, the true tree and the predicted one."""

    words: list[list[str]]
    true: list[Tree]
    predicted: list[Tree]


def read(path: Path, source: str | None) -> Run:
    """Read a file of predictions; of tasks.parsing, with the trees of one source."""
    run = Run([], [], [])
    try:
        with path.open(encoding="utf-8") as file:  # splitlines() would also split within a text
            for row in map(json.loads, file):
                trees = row["trees"] if source is None else [row["trees"][source]]
                true_trees = row["true_trees"] if source is None else [row["true_tree"]]
                for text, true_text in zip(trees, true_trees, strict=True):
                    tree, words = from_brackets(text)
                    run.words.append(words)
                    run.predicted.append(tree)
                    run.true.append(from_brackets(true_text)[0])
    except (KeyError, TypeError, ValueError):
        sys.exit(f"{path}: not what `evaluate --predictions` writes, with trees and true trees")
    return run


def main(paths: list[Path], source: str | None) -> None:
    """Print the F1 of the trees of each file, of their consensus, and of the baselines."""
    runs = {str(path): read(path, source) for path in paths}
    first = runs[str(paths[0])]
    for name, run in runs.items():
        if run.words != first.words:
            sys.exit(f"{paths[0]} and {name} are predictions for different examples")
    predicted = {name: run.predicted for name, run in runs.items()}
    predicted["consensus"] = consensus_trees(list(predicted.values()))
    print(format_report(compare(predicted, first.true), punctuation="as it was for the predictions"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="predictions, three files or more")
    parser.add_argument("--trees", help="of tasks.parsing, which trees")
    arguments = parser.parse_args()
    main(arguments.files, arguments.trees)
