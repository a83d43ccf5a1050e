"""The benchmark's verb `logic`."""

import json

from tasks.benchmark.__main__ import main


def test_every_model_is_timed_on_the_same_pairs(tmp_path, capsys):
    target = tmp_path / "speed.json"
    assert main(["logic", "--quick", "--json", str(target)]) == 0
    rows = json.loads(target.read_text())["contenders"]
    assert len(rows) == 8
    for row in rows.values():
        assert row["train_pairs_per_s"] > 0
        assert row["infer_pairs_per_s"] > 0
        assert row["parameters"] > 0
    out = capsys.readouterr().out
    assert all(name in out for name in rows)
    assert "× LSTM" in out
    assert "× floor" not in out


def test_more_batches_than_there_are(capsys, monkeypatch):
    monkeypatch.setattr("tasks.benchmark.logic_models.DRAWN", 400)
    assert main(["logic", "--batches", "900", "--batch-size", "4", "--models", "lstm"]) == 2
    assert "--batches 900: there are only" in capsys.readouterr().err
