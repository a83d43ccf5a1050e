"""Every small tree, and its spans by recursion."""

import functools


@functools.cache
def all_trees(first, last):
    """Every binary tree over the leaves first..last."""
    if first == last:
        return [first]
    return [
        (left, right)
        for middle in range(first, last)
        for left in all_trees(first, middle)
        for right in all_trees(middle + 1, last)
    ]


def naive_spans(tree):
    if isinstance(tree, int):
        return (tree, tree), set()
    parts = [naive_spans(child) for child in tree]
    span = (parts[0][0][0], parts[-1][0][1])
    below = set().union(*(found for _, found in parts))
    return span, below | ({span} if span[0] < span[1] else set())


def total(tree, scores):
    """The sum of the scores (T, T) of a tree's spans."""
    return sum(scores[span].item() for span in naive_spans(tree)[1])
