"""Ordered Memory's stack, token by token, with the ListOps model that comes with the project.

python examples/stack.py            # what every slot holds
python examples/stack.py FILE.svg   # and a picture of it
"""

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import torch
from torch import Tensor

from tasks.listops.data import Dataset
from tasks.pretrained import pretrained

EXPRESSION = "[MAX 2 [MIN 8 3 ] ]"
SHOWN = 3  # slots, from the bottom
WIDTH, HEIGHT, LEFT, TOP = 122, 44, 56, 30
WITHOUT_PARENTHESES = str.maketrans("", "", "()")
STYLE = "rect{fill:#5b7fd9;stroke:#999}text{font:11px monospace;text-anchor:middle}.token{font-weight:700}"


def attend(expression: str) -> Tensor:
    """The attention of every token over the slots, (T, N)."""
    model, data = pretrained("listops"), Dataset.from_texts([expression])
    with torch.inference_mode():
        attention: Tensor = model(data.batch([0])).encoded.attention
    return attention[0]


def simulate(pointers: Sequence[int], tokens: Sequence[str], num_slots: int) -> list[tuple[list[str], str]]:
    """What the memory M holds after each token, and the root M̂_N, where every token attends to one slot."""
    memory, candidate = [""] * num_slots, [tokens[0]] * num_slots
    steps = [(memory, tokens[0])]
    for token, slot in zip(tokens[1:], pointers[1:], strict=True):
        # Up to the slot attended to, the memory takes the candidate; below it, it stays as it was.
        memory = [candidate[i] if i <= slot else memory[i] for i in range(num_slots)]
        candidate = [token] * num_slots
        below = token
        for i in range(slot, num_slots):
            below = candidate[i] = f"({memory[i]} {below})"
        steps.append(([""] * slot + memory[slot:], candidate[-1]))  # above it, slots are free
    return steps


def draw(attention: Tensor, tokens: Sequence[str], steps: Sequence[tuple[list[str], str]]) -> str:
    """One column a token, one row a slot: darker with more attention, with the words that the slot holds."""
    first = attention.shape[1] - SHOWN
    parts = []
    for i in range(SHOWN):
        y = TOP + i * HEIGHT
        parts.append(f'<text x="{LEFT / 2}" y="{y + HEIGHT / 2 + 4}">slot {first + i + 1}</text>')
        for t, (memory, _) in enumerate(steps):
            x, p = LEFT + t * WIDTH, float(attention[t, first + i])
            words = escape(memory[first + i].translate(WITHOUT_PARENTHESES))
            parts.append(
                f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill-opacity="{0.6 * p:.2f}"/>'
                f'<text x="{x + WIDTH / 2}" y="{y + HEIGHT / 2 + 4}">{words}</text>'
            )
    for t, token in enumerate(tokens):
        parts.append(f'<text class="token" x="{LEFT + (t + 0.5) * WIDTH}" y="{TOP - 10}">{token}</text>')
    width, height = LEFT + len(tokens) * WIDTH + 4, TOP + SHOWN * HEIGHT + 4
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" style="background:#fff">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


if __name__ == "__main__":
    tokens, attention = EXPRESSION.split(), attend(EXPRESSION)
    steps = simulate(attention.argmax(-1).tolist(), tokens, attention.shape[1])
    slots = [f"slot {attention.shape[1] - above}" for above in reversed(range(SHOWN))]
    rows = [["token", *slots, "root"]]
    rows += [[token, *memory[-SHOWN:], root] for token, (memory, root) in zip(tokens, steps, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(f"{cell or '·':{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(draw(attention, tokens, steps), encoding="utf-8")
