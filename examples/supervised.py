"""Ordered Memory learns to parse from trees: the slots that a tree needs are targets of the attention.

python examples/supervised.py
"""

import random

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ordered_memory import OrderedMemory
from ordered_memory.span_f1 import CORPUS_LEVEL, span_f1
from ordered_memory.tree_recovery import from_attention, to_pointers
from ordered_memory.trees import Tree

VOCABULARY = "[]abcdef"
NUM_SLOTS = 8


def expression(rng: random.Random, depth: int, start: int = 0) -> tuple[str, Tree]:
    """Draw an expression such as "[a[bc]d]" and its tree, in which each part joins what is before it."""
    text = "["
    tree: Tree = start
    for _ in range(rng.randint(2, 4)):
        part = rng.choice("abcdef")
        part_tree: Tree = start + len(text)
        if depth > 1 and rng.random() < 0.5:
            part, part_tree = expression(rng, depth - 1, start + len(text))
        text, tree = text + part, (tree, part_tree)
    return text + "]", (tree, start + len(text))


class Parser(nn.Module):
    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1 + len(VOCABULARY), size)
        self.layer = OrderedMemory(size, size, NUM_SLOTS, batch_first=True)

    def forward(self, texts: list[str]) -> tuple[Tensor, list[int]]:
        """The attention of each token, (B, T, N), and the lengths."""
        rows = [torch.tensor([1 + VOCABULARY.index(token) for token in text]) for text in texts]
        lengths = [len(row) for row in rows]
        embedded = self.embedding(pad_sequence(rows, batch_first=True))
        return self.layer(embedded, lengths=lengths).attention, lengths


def main() -> None:
    """Train on expressions of at most three levels, and parse some of up to six."""
    torch.manual_seed(1)
    rng = random.Random(1)
    parser = Parser()
    optimizer = torch.optim.Adam(parser.parameters(), lr=0.003)
    for step in range(1, 101):
        texts, trees = zip(*(expression(rng, depth=3) for _ in range(32)), strict=True)
        attention, _ = parser(texts)
        # nll_loss leaves out targets of -100: first tokens attend to no slot, and padding is not read.
        targets = pad_sequence([to_pointers(tree, NUM_SLOTS) for tree in trees], True, padding_value=-100)
        loss = nn.functional.nll_loss(attention.clamp(min=1e-6).log().transpose(1, 2), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parser.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step}  loss {loss.item():.3f}")
    texts, trees = zip(*(expression(rng, depth=6) for _ in range(200)), strict=True)
    with torch.no_grad():
        attention, lengths = parser(texts)
    parsed = from_attention(attention, lengths, batch_first=True)
    f1 = span_f1(parsed, trees, **CORPUS_LEVEL._asdict()).f1
    print(f"F1 of {len(trees)} expressions of up to {max(lengths)} tokens: {f1:.4f}")


if __name__ == "__main__":
    main()
