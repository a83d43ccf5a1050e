"""The benchmark's subcommands `logic` and `sst`."""

import json
from typing import get_args

import pytest

from tasks.benchmark import classifier_models
from tasks.benchmark.__main__ import main
from tasks.benchmark.classifier_models import LogicModelsConfig, SentimentModelsConfig
from tasks.classifiers.config import ModelName


@pytest.mark.parametrize(
    ("subcommand", "unit", "config"),
    [("logic", "pairs", LogicModelsConfig(pairs=400)), ("sst", "phrases", SentimentModelsConfig(quick=True))],
    ids=["logic", "sst"],
)
def test_every_model_is_timed_on_the_same_batches(tmp_path, capsys, timed_by, subcommand, unit, config):
    target, timed = tmp_path / "speed.json", timed_by(classifier_models)
    assert main([subcommand, "--quick", "--json", str(target), "--precision", "bf16-mixed"]) == 0
    results = json.loads(target.read_text())
    sizes = {"batches": 2, "batch_size": 4, "slot_size": 80, "precision": "bf16-mixed"}
    assert results.items() >= sizes.items()
    rows = results["contenders"]
    assert set(rows) == set(get_args(ModelName))
    [contenders] = timed
    examples, timed_examples = len(config.data().labels), 2 * 4
    for name, row in rows.items():
        for kind in ("train", "infer"):
            seconds = sum(row[f"{kind}_ms_per_batch"]) / 1000
            assert row[f"{kind}_{unit}_per_s"] == pytest.approx(timed_examples / seconds)
        assert row["parameters"] == sum(weight.numel() for weight in contenders[name].module.parameters())
        seconds = sum(row["train_ms_per_batch"]) / 1000
        assert row["epoch_s"] == pytest.approx(seconds * examples / timed_examples)
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
    assert "--batches 900: the number of batches of 4 is only " in capsys.readouterr().err
