"""The logic model that comes with the project."""

import pytest

from tasks.classifiers.evaluation import evaluate
from tasks.logic.__main__ import main
from tasks.logic.data import TRAIN_OPERATIONS, Dataset
from tasks.logic.generator import longer
from tasks.logic.model import PRETRAINED, LogicModel
from tasks.runs.checkpoints import read_metadata


@pytest.mark.parametrize(
    ("left", "right", "answer"),
    [
        ("( a ( and b ) )", "( a ( or ( not c ) ) )", "< forward entailment"),
        ("( not ( a ( or b ) ) )", "( ( not a ) ( and ( not b ) ) )", "= equivalence"),
        ("( a ( or b ) )", "( not ( c ) )", "# independence"),
        ("(a(or b))", "(not(c))", "# independence"),
    ],
)
def test_it_answers_without_being_named(left, right, answer, capsys):
    assert main(["predict", left, right]) == 0
    said = capsys.readouterr().out.splitlines()[0]
    assert said.startswith(f"answer: {answer} (probability ")
    assert said.endswith("; right)")


def test_it_is_as_good_as_said_on_longer_formulas_than_it_has_seen():
    model = LogicModel.from_pretrained(PRETRAINED)
    pairs = [
        pair
        for operations in range(TRAIN_OPERATIONS + 1, TRAIN_OPERATIONS + 4)
        for pair in longer(operations, 60, seed=987_654)
    ]
    found = evaluate(model, Dataset(pairs))
    assert found.correct.mean() >= 0.9


def test_it_names_no_directory():
    metadata = read_metadata(PRETRAINED)
    assert metadata["run_dir"] is metadata["data_dir"] is None
