"""What a classification task does with the parts of its data."""

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tasks.classifiers.classification import check_data, digest_of_sizes, fingerprint, iterate_batches
from tasks.listops.config import PRESETS
from tasks.listops.data import Dataset as Expressions
from tasks.listops.task import LISTOPS
from tasks.logic.data import Dataset as Pairs
from tasks.runs.checkpoints import save_tensors
from tasks.runs.errors import UserError
from tasks.runs.interfaces import Scores
from tasks.runs.saved_config import config_to_dict


def tokens(batches):
    return sorted(row for batch in batches for row in batch.tokens.flatten().tolist() if row)


def test_each_part_of_the_data_has_its_own_use():
    config = replace(
        PRESETS["demo"], expressions=300, validation_size=40, model="mean", batch_size=32, curriculum_epochs=0
    )
    train, validation, test = LISTOPS.load_splits(config)
    task = LISTOPS.prepare(config).objective
    drawn = [task.shard(batch, 0, 1).batch for batch in task.training_batches(1, 32)]
    assert tokens(drawn) == tokens([train.batch(range(len(train)))])
    assert tokens(task.validation_batches(1)) == tokens([validation.batch(range(len(validation)))])
    assert len({int(part.lengths.sum()) for part in (train, validation, test)}) == 3


@pytest.mark.parametrize(
    ("labels", "lengths", "message"),
    [
        ([0, 3], [(1, 1), (1, 1)], r"data, example 1: labels must lie in 0\.\.2, got 3"),
        ([-1, 2], [(1, 1), (1, 1)], r"data, example 0: labels must lie in 0\.\.2, got -1"),
        ([0, 2], [(1, 1), (3, 0)], "data, example 1: expected one token or more, got none"),
    ],
)
def test_labels_are_classes_and_no_sentence_is_empty(labels, lengths, message):
    data = SimpleNamespace(labels=np.array(labels), sentence_lengths=np.array(lengths))
    with pytest.raises(UserError, match=message):
        check_data(data, 3, "data")
    check_data(
        SimpleNamespace(labels=np.array([0, 2]), sentence_lengths=np.array([(1, 2), (3, 1)])), 3, "data"
    )


def test_the_epoch_with_the_best_accuracy_is_the_best_one():
    config = replace(PRESETS["demo"], expressions=300, validation_size=40, model="mean")
    task = LISTOPS.prepare(config).objective
    assert task.selection_score(Scores(loss=2.0, accuracy=0.9)) > task.selection_score(Scores(1.0, 0.8))


def test_processes_share_a_batch():
    config = replace(PRESETS["demo"], expressions=300, validation_size=40, model="mean")
    task = LISTOPS.prepare(config).objective
    for batch in (task.training_batches(1, 32)[0], np.array([5, 6])):
        parts = [task.shard(batch, rank, 3) for rank in range(3)]
        assert {part.global_batch_size for part in parts} == {len(batch)}
        assert [part.has_examples for part in parts] == [True, True, len(batch) > 2]
        shared = [part.batch for part in parts if part.has_examples]
        assert tokens(shared) == tokens([task.train.batch(batch)])


def test_the_tokens_of_a_batch_are_limited_by_the_longer_sentence_of_each_example(monkeypatch):
    monkeypatch.setattr("tasks.classifiers.classification.TOKENS_PER_BATCH", 40)
    data = Pairs.from_texts([("a", "( b ( or ( not c ) ) )")] * 3 + [("( b ( or ( not c ) ) )", "a")] * 2)
    batches = list(iterate_batches(data, 256))
    assert sorted(np.concatenate([indices for indices, _ in batches]).tolist()) == [0, 1, 2, 3, 4]
    assert [batch.tokens.numel() for _, batch in batches] == [40, 40, 20]  # padding included


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ([["not", "good"]], [["very", "good"]]),
        (np.array([1, 2]), np.array([1, 3])),
        (torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [3.0]])),
        ([torch.tensor([1, 2]), torch.tensor([3])], [torch.tensor([1, 2]), torch.tensor([4])]),
        ((np.array([1]), [np.array([2])]), (np.array([1]), [np.array([3])])),
        ({"word": 1}, {"word": 2}),
    ],
)
def test_data_differ_in_whatever_models_read_but_not_in_their_trees(field, other):
    trees = Pairs.from_texts([("a", "b")], include_trees=True).batch([0]).trees

    def digest(*fields):
        data = SimpleNamespace(
            labels=np.array([0]), sentence_lengths=np.array([[2]]), batch=lambda indices: (None, *fields)
        )
        return fingerprint([data])

    assert digest(field, trees) == digest(field) != digest(other, trees)


def test_the_fingerprint_of_data_is_what_checkpoints_of_earlier_versions_hold():
    data = Expressions.from_texts(["3", "[MAX 2 9 ]"])
    batch = data.batch([0, 1])
    tokens, lengths, labels = (field.numpy().tobytes() for field in batch[:3])
    sizes = hashlib.sha256(b"(2,)" + labels + b"(2, 1)" + lengths).hexdigest()
    assert fingerprint([data]) == f"{sizes}-{hashlib.sha256(tokens + lengths + labels).hexdigest()}"


def test_another_split_of_the_same_examples_has_the_same_digest_of_sizes():
    def digest(*parts):
        return digest_of_sizes(
            [
                SimpleNamespace(labels=np.array(labels), sentence_lengths=np.array(lengths)[:, None])
                for labels, lengths in parts
            ]
        )

    train, validation = ([0, 1, 1], [2, 3, 5]), ([2], [4])
    expected = digest(train, validation)
    assert digest(([2, 1, 0], [4, 5, 2]), ([1], [3])) == expected
    for other in (
        (([0, 1, 2], [2, 3, 5]), validation),  # another label
        (([0, 1, 1], [2, 3, 6]), validation),  # another length
        (([1, 0, 1], [2, 3, 5]), validation),  # the same labels and lengths, of other examples
        (([0, 1], [2, 3]), ([1, 2], [5, 4])),  # other sizes of the parts
    ):
        assert digest(*other) != expected


SLOTS = replace(PRESETS["demo"], expressions=300, validation_size=40, num_slots=3, test_num_slots=5)


def test_a_trained_model_has_the_slots_of_the_test_and_one_to_train_those_of_training(tmp_path):
    path = tmp_path / "best.safetensors"
    model = LISTOPS.prepare(SLOTS).model
    assert model.encoder.num_slots == 3
    save_tensors(path, model.state_dict(), config_to_dict(SLOTS))
    assert LISTOPS.model_class.from_pretrained(path).encoder.num_slots == 5
    other = replace(SLOTS, test_num_slots=None)
    assert LISTOPS.model_class.from_pretrained(path, config=other).encoder.num_slots == 3
    further = replace(SLOTS, initial_weights=path, data_seed=SLOTS.seed)
    assert LISTOPS.prepare(further).model.encoder.num_slots == 3


def test_slots_of_a_model_without_slots_have_no_effect():
    model = LISTOPS.prepare(replace(SLOTS, model="mean")).model
    model.set_num_slots(7)
    assert not hasattr(model.encoder, "num_slots")


def test_an_error_in_the_groups_of_accuracies_shows_before_training():
    def groups(config, data):
        raise KeyError("a typing error")

    with pytest.raises(KeyError, match="a typing error"):
        replace(LISTOPS, accuracy_groups=groups).prepare(SLOTS)
