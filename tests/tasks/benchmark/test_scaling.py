"""`python -m tasks.benchmark scaling`."""

import csv
import json
import re

import pytest

from tasks.benchmark.__main__ import main
from tasks.benchmark.measure import Times, interleave
from tests.tasks.benchmark.tiny import fails


def test_scaling_writes_a_table_and_plots(tmp_path, capsys):
    options = ["--directory", str(tmp_path / "new" / "scaling"), "--json", str(tmp_path / "speed.json")]
    assert main(["scaling", "--quick", "--no-memory", *options]) == 0
    directory = tmp_path / "new" / "scaling" / "quick"  # where it replaces no real measurement
    assert {path.name for path in directory.iterdir()} == {
        "scaling.csv",
        *(f"scaling_{axis}.png" for axis in "TBND"),
    }
    with (directory / "scaling.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["sweep"] for row in rows if row["recompute_every"] == ""] == list("TTBBNNDD")
    for row in rows:
        steps = int(row["T"]) * int(row["B"])
        assert float(row["train_us_per_token"]) == pytest.approx(float(row["train_ms"]) * 1000 / steps)
    assert "peak MiB" in capsys.readouterr().out
    results = json.loads((tmp_path / "speed.json").read_text())
    assert results.items() >= {"device": "cpu", "threads": 1, "nesting": 5, "quick": True}.items()
    assert [str(row["train_ms"]) for row in results["rows"]] == [row["train_ms"] for row in rows]


def test_each_point_of_a_sweep_has_its_sizes_and_its_times(tmp_path, monkeypatch, capsys):
    timed = []

    def known_times(contenders, batches, **options):
        timed.append(contenders)
        first = 6.0 * len(timed)
        return {name: Times([first + i], [first / 2 + i]) for i, name in enumerate(contenders)}

    monkeypatch.setattr("tasks.benchmark.scaling.interleave", known_times)
    monkeypatch.setattr("tasks.benchmark.scaling.figure_png", lambda figure: b"")
    path = tmp_path / "speed.json"
    options = ["--directory", str(tmp_path), "--json", str(path)]
    assert main(["scaling", "--quick", "--no-memory", *options]) == 0
    rows = json.loads(path.read_text())["rows"]
    printed = re.findall(r"^auto.*", capsys.readouterr().out, re.MULTILINE)
    full = (12, 2, 3, 8)
    points = [(6, 2, 3, 8), full, (12, 1, 3, 8), full, (12, 2, 2, 8), full, (12, 2, 3, 4), full]
    for i, ((T, B, N, D), contenders) in enumerate(zip(points, timed, strict=True)):
        for j, recompute_every in enumerate((None, {6: 3, 12: 4}[T])):  # about √T segments
            name, row = ("auto", "auto, checkpoints")[j], rows[2 * i + j]
            layer, (batch,) = contenders[name].module, contenders[name].batches
            assert batch.lengths.tolist() == [T] * B
            assert batch.inputs.shape == (T, B, D)
            assert (layer.num_slots, layer.slot_size, layer.recompute_every) == (N, D, recompute_every)
            train, infer = 6.0 * (i + 1) + j, 3.0 * (i + 1) + j
            per_token = [1000 * ms / (T * B) for ms in (train, infer)]
            times = (train, infer, *map(pytest.approx, per_token))
            assert tuple(row.values()) == ("TBND"[i // 2], T, B, N, D, name, recompute_every, *times, None)
            cells = [f"{value:,.1f}" for value in (train, infer)] + [f"{value:,.2f}" for value in per_token]
            swept = str((T, B, N, D)[i // 2])
            assert re.split("  +", printed[2 * i + j].strip()) == [name, swept, *cells, "–"]


def test_scaling_shows_and_saves_what_was_measured_before_ctrl_c(tmp_path, monkeypatch, capsys):
    measured = []

    def interleave_until_ctrl_c(*arguments, **options):
        measured.append(interleave(*arguments, **options))
        if len(measured) == 4:
            raise KeyboardInterrupt
        return measured[-1]

    monkeypatch.setattr("tasks.benchmark.scaling.interleave", interleave_until_ctrl_c)
    options = ["--axes", "T", "B", "D", "--directory", str(tmp_path), "--json", str(tmp_path / "speed.json")]
    assert main(["scaling", "--quick", "--no-memory", *options]) == 130
    rows = json.loads((tmp_path / "speed.json").read_text())["rows"]
    points = [(row["sweep"], row[row["sweep"]]) for row in rows]  # each without and with checkpoints
    assert points == [("T", 6), ("T", 6), ("T", 12), ("T", 12), ("B", 1), ("B", 1)]
    with (tmp_path / "quick" / "scaling.csv").open() as file:
        assert [row["train_ms"] for row in csv.DictReader(file)] == [str(row["train_ms"]) for row in rows]
    assert {path.stem for path in (tmp_path / "quick").glob("*.png")} == {"scaling_T", "scaling_B"}
    _, tokens, sequences = capsys.readouterr().out.split("\n\n")
    assert (tokens.count("\nauto"), sequences.count("\nauto")) == (4, 2)


def test_a_directory_that_cannot_be_written_is_told_before_scaling(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tasks.benchmark.scaling.interleave", lambda *arguments, **options: 1 / 0)
    (tmp_path / "quick").mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: "quick" not in str(path))
    complaint = f"--directory {tmp_path}/quick: no permission to write"
    assert fails(capsys, "scaling", "--quick", "--directory", tmp_path) == complaint
