"""The trees of predictions: joined neighbours, attention, and words without parentheses."""

import pytest
import torch

from ordered_memory.tree_recovery import greedy
from ordered_memory.trees import spans
from tasks.classifiers.encoded import Encoded
from tasks.classifiers.tree_reading import read_trees, tree_from_merges
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset as Expressions
from tasks.listops.model import ListOpsModel
from tasks.logic.data import Dataset
from tests.tasks.classifiers.tiny import TINY

SUMMARY = torch.zeros(2, 7)


def test_neighbours_are_joined_in_order():
    assert tree_from_merges([]) == 0
    assert tree_from_merges([0, 0, 0]) == (((0, 1), 2), 3)
    assert tree_from_merges([2, 1, 0]) == (0, (1, (2, 3)))
    assert tree_from_merges([2, 0, 0]) == ((0, 1), (2, 3))
    assert len(spans(tree_from_merges([0] * 3000))) == 3000


def test_steps_after_the_last_of_a_sequence_have_no_meaning():
    encoded = Encoded(SUMMARY, merges=torch.tensor([[1, 0, 0], [7, 7, 7], [0, 7, 7]]))
    assert read_trees(encoded, torch.tensor([4, 1, 2])) == [((0, (1, 2)), 3), 0, (0, 1)]


def test_attention_is_read_by_algorithm_2():
    # The second token points at slot 2 of 2 and joins nothing; the third closes both.
    attention = torch.tensor([[[0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    assert read_trees(Encoded(SUMMARY, attention), torch.tensor([3])) == [((0, 1), 2)]
    assert read_trees(Encoded(SUMMARY), torch.tensor([3])) is None


@pytest.mark.parametrize("bidirectional", [False, True])
def test_on_lstms_trees_are_those_of_its_forget_distances(bidirectional):
    """In the forward direction, by the top-down algorithm of the paper; padding has no effect."""
    config = ListOpsConfig(embedding_size=6, **TINY | {"model": "onlstm", "bidirectional": bidirectional})
    model = ListOpsModel(config).eval()
    data = Expressions.from_texts(["[MAX 2 9 [MIN 4 7 ] 0 ]", "[SM 1 2 ]", "3"])
    batch = data.batch([0, 1, 2])
    trees = read_trees(model(batch).encoded, batch.lengths)
    for tokens, length, tree in zip(batch.tokens, batch.lengths.tolist(), trees, strict=True):
        distances = model.encoder(model.embedding(tokens[:length]).unsqueeze(0), distances=True)[2]
        assert tree == greedy(distances.forget[0, 0], "prpn")


def test_parentheses_are_dropped_from_the_trees_of_formulas():
    data = Dataset.from_texts([("( not a )", "( a ( or b ) )")])
    batch = data.batch([0])
    left = tree_from_merges([0, 0, 0])  # (((( not) a) ))
    right = tree_from_merges([5, 4, 3, 2, 1, 0])  # right-branching
    assert data.word_trees([left, right], batch) == [(0, 1), (0, (1, 2))]
