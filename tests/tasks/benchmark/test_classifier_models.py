"""The benchmark's subcommands `logic` and `sst`."""

import json
from typing import get_args

import pytest

from tasks.benchmark import classifier_models
from tasks.benchmark.__main__ import main
from tasks.classifiers.config import ModelName


@pytest.mark.parametrize(
    ("subcommand", "unit"), [("logic", "pairs"), ("sst", "phrases")], ids=["logic", "sst"]
)
def test_every_model_is_timed_on_the_same_batches(tmp_path, capsys, timed_by, subcommand, unit):
    target, timed = tmp_path / "speed.json", timed_by(classifier_models)
    assert main([subcommand, "--quick", "--json", str(target), "--precision", "bf16-mixed"]) == 0
    results = json.loads(target.read_text())
    sizes = {"batches": 2, "batch_size": 4, "slot_size": 80, "precision": "bf16-mixed"}
    assert results.items() >= sizes.items()
    rows = results["contenders"]
    assert set(rows) == set(get_args(ModelName))
    for row in rows.values():
        assert row[f"train_{unit}_per_s"] > 0
        assert row[f"infer_{unit}_per_s"] > 0
        assert row["parameters"] > 0
        assert row["epoch_s"] > sum(row["train_ms_per_batch"]) / 1000
    [contenders] = timed
    read = [
        [batch.words if unit == "phrases" else batch.tokens.tolist() for batch in contender.batches]
        for contender in contenders.values()
    ]
    assert all(one == read[0] for one in read)
    out = capsys.readouterr().out
    assert all(name in out for name in rows)
    assert "× LSTM" in out
    assert "epoch s" in out
    assert "× floor" not in out


def test_more_batches_than_there_are(capsys):
    options = ["--batches", "900", "--batch-size", "4", "--models", "lstm", "--pairs", "400"]
    assert main(["logic", *options]) == 2
    assert "--batches 900: there are only" in capsys.readouterr().err
