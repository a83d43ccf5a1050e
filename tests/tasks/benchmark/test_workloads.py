"""What is read: expressions, formulas, and their batches."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.benchmark.workloads import build_workload, nested_expression, random_formula, spread_batches
from tasks.listops.expressions import decode
from tasks.listops.expressions import parse as parse_expression
from tasks.listops.generator import generate
from tasks.logic.formulas import decode as decode_formula
from tasks.logic.formulas import parse


@given(st.integers(1, 400).filter(lambda length: length != 2), st.integers(1, 6), st.integers(0, 99))
def test_nested_expressions_have_the_length_asked_for_and_nest_no_deeper(length, depth, seed):
    words = decode(nested_expression(np.random.default_rng(seed), length, depth))
    assert parse_expression(words).depth <= depth
    assert len(words) == length


@given(st.integers(0, 12), st.integers(0, 99))
def test_random_formulas_are_those_of_the_logic_task(operators, seed):
    formula = decode_formula(random_formula(np.random.default_rng(seed), operators))
    assert parse(formula).operations == operators
    binary = operators - formula.count("not")
    assert len(formula) == 1 + 3 * formula.count("not") + 6 * binary


def test_the_configurations_have_the_sizes_of_the_papers():
    workloads = {name: build_workload(name, batches=2) for name in ("logic", "sst")}
    slots = [(workload.sizes.slot_size, workload.sizes.num_slots) for workload in workloads.values()]
    assert slots == [(200, 12), (300, 15)]
    assert [batch.tokens.shape[1] for batch in workloads["logic"].batches] == [256, 256]
    for workload in workloads.values():
        lengths = [len(batch.tokens) for batch in workload.batches]
        assert lengths == sorted(lengths)


@pytest.mark.parametrize(
    ("count", "expected"), [(2, [{3, 4}, {9, 10}]), (3, [{3, 4}, {7, 8}, {11, 12}]), (1, [{7, 8}])]
)
def test_batches_are_from_the_middle_of_equal_parts_of_an_epoch(count, expected):
    lengths = [7, 1, 13, 4, 10, 2, 12, 5, 9, 3, 11, 6, 8]  # the longest makes a batch of one: it is left out
    chosen = spread_batches(lengths, 2, count, seed=1)
    assert [{lengths[i] for i in batch} for batch in chosen] == expected


def test_expressions_have_at_most_the_maximum_length(monkeypatch):
    drawn = SimpleNamespace(train=generate(800, seed=1))
    monkeypatch.setattr("tasks.benchmark.workloads.standard", lambda seed: drawn)
    workload = build_workload("listops", batches=2, max_length=30)
    assert all(batch.lengths.shape == (128,) for batch in workload.batches)
    assert max(batch.lengths.max() for batch in workload.batches) <= 30


@pytest.mark.slow
def test_the_long_configuration_has_a_thousand_tokens():
    workload = build_workload("long", batches=2)
    assert (workload.sizes.slot_size, workload.sizes.num_slots) == (128, 21)
    (batch,) = workload.batches
    assert batch.lengths.shape == (8,)
    assert batch.lengths.min() > 980
    assert batch.lengths.max() in range(990, 1001)
