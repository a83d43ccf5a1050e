"""Three ways to read trees off the attention, with the logic model that comes with the project.

python examples/readings.py             # 20 generated pairs
python examples/readings.py DIR 1000    # 1,000 test pairs of the official files
"""

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ordered_memory.span_f1 import CORPUS_LEVEL, SENTENCE_LEVEL, span_f1
from ordered_memory.tree_recovery import shift_reduce
from ordered_memory.trees import Tree, keep_leaves, spans
from tasks.classifiers.evaluation import predict_example
from tasks.logic.config import LogicConfig
from tasks.logic.task import LOGIC
from tasks.logic.valid_trees import valid_spans
from tasks.pretrained import pretrained

Reading = Callable[[list[int], Sequence[int], int], Tree]


def all_tokens(pointers: list[int], words: Sequence[int], num_slots: int) -> Tree:
    """Algorithm 2 on all tokens; then the parentheses are dropped."""
    return keep_leaves(shift_reduce(pointers, num_slots), words)


def words_only(pointers: list[int], words: Sequence[int], num_slots: int) -> Tree:
    """The parentheses are dropped first; Algorithm 2 gets the choices of the words."""
    return shift_reduce([pointers[position] for position in words], num_slots)


def one_token_earlier(pointers: list[int], words: Sequence[int], num_slots: int) -> Tree:
    """Like `all_tokens`, but each token gets the choice of the next token."""
    return keep_leaves(shift_reduce([*pointers[1:], num_slots - 1], num_slots), words)


READINGS: dict[str, Reading] = {
    "all tokens (the paper's)": all_tokens,
    "words only": words_only,
    "one token earlier": one_token_earlier,
}


def main(directory: str | None = None, size: str = "20") -> None:
    """Score the readings on test pairs."""
    config = LogicConfig(data_dir=None if directory is None else Path(directory), generated=2000)
    data, model = LOGIC.load_splits(config).test, pretrained("logic")
    gold: list[Tree] = []
    valid: dict[str, list[bool]] = {name: [] for name in READINGS}
    predicted: dict[str, list[Tree]] = {name: [] for name in READINGS}
    for index in random.Random(1).sample(range(len(data.labels)), int(size)):
        attention = predict_example(model, data, index).attention or []
        for sentence, p in zip(data.sentences(index), attention, strict=True):
            if sentence.tree is not None and len(sentence.words) > 1:
                gold.append(sentence.tree)
                allowed = valid_spans(sentence.tree, sentence.words)
                for name, reading in READINGS.items():
                    tree = reading(p.argmax(-1).tolist(), sentence.positions, p.shape[1])
                    predicted[name].append(tree)
                    valid[name].append(set(spans(tree)) <= allowed)
    print(f"{f'{len(gold)} formulas':26}valid trees  F1, corpus  F1, sentence")
    for name, trees in predicted.items():
        scores = [
            span_f1(trees, gold, **convention._asdict()).f1 for convention in (CORPUS_LEVEL, SENTENCE_LEVEL)
        ]
        print(f"{name:26}{sum(valid[name]) / len(gold):11.3f}{scores[0]:12.3f}{scores[1]:14.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
