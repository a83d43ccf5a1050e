"""The floor: the matrix products that a call cannot do without."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ordered_memory import OrderedMemory
from ordered_memory.memory import initial_state, step
from tasks.benchmark.contenders import Setup, build_batches, build_layer
from tasks.benchmark.floor import Counts, Floor, count, products
from tasks.benchmark.workloads import embed
from tests.tasks.benchmark.tiny import SIZES, some_batches


def count_by_stepping(layer, batch):
    """What the floor counts, read off the states of the definition one token at a time."""
    maps = layer.directions[0].recurrent_modules()
    projected = maps.norm(layer.directions[0].projection(batch.inputs))
    state = initial_state(projected.shape[1], layer.num_slots, projected)
    tokens = attended = active = 0
    for t, x in enumerate(projected):
        occupied = state.occupancy[:, 1:] >= layer.occupancy_threshold
        state, _ = step(x, state, maps)
        for b, length in enumerate(batch.lengths.tolist()):
            if t < length:
                tokens += 1
                attended += int(occupied[b].sum())
                active += int((state.occupancy[b, :-1] > 0).sum())
    return tokens, attended, active, tokens * layer.num_slots


@pytest.mark.parametrize("threshold", [1e-5, 0.3])
def test_the_floor_counts_the_pairs_that_matter(threshold):
    (tokens,) = some_batches([7, 1, 4, 2])
    layer = OrderedMemory(5, 6, 4, occupancy_threshold=threshold).eval()
    with torch.no_grad():
        # Scores so far apart that many slots get exactly nothing.
        layer.directions[0].score.output.weight.mul_(3000)
        batch = embed(tokens, torch.randn(10, 5), SIZES, seed=0)
        counts = count(layer(batch.inputs, lengths=batch.lengths).attention, batch.lengths, threshold)
        assert tuple(counts) == count_by_stepping(layer, batch)
    assert 0 < counts.active < counts.pairs
    assert 0 < counts.attended < counts.pairs


def test_the_floor_has_one_product_for_each_map():
    layer = OrderedMemory(5, 6, 4)
    counts = Counts(tokens=3, attended=4, active=5, pairs=12)
    work = [(tuple(weight.shape), rows) for weight, rows in products(layer, counts)]
    assert work == [((6, 5), 3), ((6, 6), 3), ((6, 6), 4), ((24, 6), 5), ((24, 6), 5), ((24, 24), 5)]
    assert len(products(OrderedMemory(5, 6, 4, cell="tree-rnn"), counts)) == 5


def test_an_occupancy_exactly_at_the_threshold_is_attended():
    attention = torch.tensor([[[0.0, 0.0, 0.0]], [[0.0, 0.5, 0.5]], [[0.0, 0.0, 1.0]]])
    attended = [count(attention, torch.tensor([3]), threshold).attended for threshold in (0.5, 0.51)]
    assert attended == [1 + 3, 1 + 2]


def test_the_floor_counts_with_dropout_in_training_only_and_with_the_threshold_of_the_layer():
    torch.manual_seed(0)
    layer = OrderedMemory(5, 6, 4, cell_dropout=0.5, attention_dropout=0.5, occupancy_threshold=0.3)
    batches = build_batches(Setup(SIZES, 0, "cpu"), some_batches([9] * 20))
    torch.manual_seed(1)
    floor = Floor(layer, batches)
    torch.manual_seed(1)
    expected = []
    for training in (True, False):
        with torch.no_grad():
            layer.train(training)
            attention = layer(batches[0].inputs, lengths=batches[0].lengths).attention
        expected.append(count(attention, batches[0].lengths, 0.3))
        assert expected[-1] != count(attention, batches[0].lengths)
    assert [*floor.train_counts, *floor.infer_counts] == expected
    assert expected[0] != expected[1]


def test_the_floor_does_as_many_operations_as_it_counts(monkeypatch):
    monkeypatch.setattr("tasks.benchmark.floor.CHUNK", 7)
    batches = build_batches(Setup(SIZES, 0, "cpu"), some_batches([9, 9, 3]))
    floor = Floor(build_layer(Setup(SIZES, 0, "cpu")), batches)
    expected = {
        kind: sum(2 * rows * weight.numel() for weight, rows in products(floor.layer, counts[0]))
        for kind, counts in (("train", floor.train_counts), ("infer", floor.infer_counts))
    }
    for run, operations in (
        (floor.evaluation(0), expected["infer"]),
        (floor.training_step(0), 3 * expected["train"]),
    ):
        with FlopCounterMode(display=False) as counter:
            run()
        assert counter.get_total_flops() == operations
