"""Traces to show, and what is seen of them."""

from __future__ import annotations

from typing import Any

import torch

from ordered_memory.trace import Answer, Trace, add_true_tree, read_attention


def attention_of(size: int, num_slots: int = 4, seed: int = 0) -> torch.Tensor:
    """Attention of a model that does not hesitate much."""
    generator = torch.Generator().manual_seed(seed)
    p = (4 * torch.randn(size, num_slots, generator=generator)).softmax(-1)
    p[0] = 0
    return p


def example(size: int, seed: int = 0, true: int | None = None, **more: Any) -> Trace:
    trace = read_attention(attention_of(size, seed=seed), [f"w{i}" for i in range(size)])
    add_true_tree(trace, left_branching(size))
    trace["answer"] = Answer(classes=["no", "yes"], probabilities=[0.25, 0.75], true=true)
    return trace | more  # type: ignore[return-value]


def left_branching(size: int) -> Any:
    tree: Any = 0
    for leaf in range(1, size):
        tree = (tree, leaf)
    return tree


def drawn(page: Any, states: str = "built new") -> set[tuple[int, int]]:
    """First and last token of the constituents of the induced tree that are drawn."""
    found = page.evaluate(
        """states => [...document.querySelectorAll('.om-tree[aria-label="Induced tree"] .om-node')]
        .filter(node => states.split(" ").includes(node.dataset.state) && node.getBoundingClientRect().width)
        .map(node => [+node.dataset.first, +node.dataset.last])""",
        states,
    )
    return {(first, last) for first, last in found}


def choose(page: Any, name: str, option: str) -> None:
    page.get_by_role("combobox", name=name, exact=True).select_option(option)


def step(page: Any) -> str:
    return str(page.locator(".om-count").first.inner_text())
