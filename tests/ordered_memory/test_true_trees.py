"""The true tree of a trace: what is not a tree over its words is refused by name."""

import pytest

from ordered_memory.trace import add_true_tree, read_tree


@pytest.mark.parametrize("words", [["0", "1"], [0.0, 1.0], [True, False], [None, 1]], ids=str)
def test_words_are_integers(words):
    trace = read_tree(((0, 1), 2), list("abc"))
    with pytest.raises(TypeError, match=rf"^expected words to be integers, got words\[0\] = {words[0]!r}$"):
        add_true_tree(trace, (0, 1), words)
    assert "true_nodes" not in trace
