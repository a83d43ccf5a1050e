"""The subcommands that tasks share: what they read and write, and which options they warn of."""

import json
import re
from pathlib import Path

import pytest
import torch

from ordered_memory.draw import attention_figure
from tasks.classifiers.commands import ReadConfig, show_trees
from tasks.classifiers.evaluation import predict_example
from tasks.listops.__main__ import main as listops
from tasks.listops.config import ListOpsConfig
from tasks.listops.data import Dataset, write_tsv
from tasks.listops.model import ListOpsModel
from tasks.logic.config import LogicConfig
from tasks.logic.data import Dataset as LogicDataset
from tasks.logic.model import LogicModel
from tasks.reporting.drawing import figure_png
from tasks.runs.checkpoints import save_tensors
from tasks.runs.run_directory import RunDirectory
from tasks.runs.saved_config import config_to_dict
from tests.commands import MAIN
from tests.tasks.classifiers.tiny import TINY


@pytest.mark.parametrize(("names", "second"), [(("left one", "right one"), "right"), (("", ""), "2")])
def test_each_sentence_of_an_example_has_its_heat_map(names, second, tmp_path, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr("tasks.logic.data.SIDES", names)
    data = LogicDataset.from_texts([("( not a )", "b")])
    prediction = predict_example(LogicModel(LogicConfig(embedding_size=6, **TINY)), data, 0)
    show_trees(ReadConfig(heat_map=tmp_path / "map.png"), data, prediction)
    assert {path.name for path in tmp_path.iterdir()} == {"map.png", f"map-{second}.png"}
    for name, sentence, attention in zip(
        ("map", f"map-{second}"), data.sentences(0), prediction.attention, strict=True
    ):
        figure = attention_figure(attention, sentence.tokens)
        assert (tmp_path / f"{name}.png").read_bytes() == figure_png(figure)


def test_slots_threshold_and_batch_size_of_a_command_are_those_of_the_model(tmp_path, monkeypatch):
    config = ListOpsConfig(embedding_size=6, **TINY, test_num_slots=7, occupancy_threshold=0.01)
    checkpoint, texts, data = (tmp_path / name for name in ("best.safetensors", "texts.txt", "test.tsv"))
    save_tensors(checkpoint, ListOpsModel(config).state_dict(), config_to_dict(config))
    expressions = ["[MAX 2 9 ]", "3", "[MIN 1 [SM 4 5 ] ]", "7"]
    texts.write_text("".join(f"{text}\n" for text in expressions))
    write_tsv(data, Dataset.from_texts(expressions))
    read, forward = [], ListOpsModel.forward

    def noted(model, batch):
        read.append((model.encoder.num_slots, model.encoder.occupancy_threshold, len(batch.lengths)))
        return forward(model, batch)

    monkeypatch.setattr(ListOpsModel, "forward", noted)
    evaluate = ["evaluate", "--file", data, "--batch-size", "3"]
    predict_file = ["predict-file", texts, "--batch-size", "3"]
    predict, trace = ["predict", expressions[0]], ["trace", expressions[0], "--html", tmp_path / "trace.html"]
    cases = [
        (words, options, slots, 0.01, sizes)
        for words, sizes in ((evaluate, (3, 1)), (predict_file, (3, 1)), (predict, (1,)), (trace, (1,)))
        for options, slots in (([], 7), (["--num-slots", "5"], 5))
    ]
    cases.append((evaluate, ["--occupancy-threshold", "0.3"], 7, 0.3, (3, 1)))
    cases += [(words, ["--batch-size", "1"], 7, 0.01, (1,) * 4) for words in (evaluate, predict_file)]
    for words, options, slots, threshold, sizes in cases:
        read.clear()
        assert listops([*map(str, words), "--checkpoint", str(checkpoint), *options]) == 0
        assert read == [(slots, threshold, size) for size in sizes]


def test_options_of_a_memory_are_named_where_a_model_has_none(tmp_path, capsys):
    checkpoint, texts, data = (tmp_path / name for name in ("best.safetensors", "texts.txt", "test.tsv"))
    config = ListOpsConfig(embedding_size=6, model="mean")
    save_tensors(checkpoint, ListOpsModel(config).state_dict(), config_to_dict(config))
    texts.write_text("3\n")
    write_tsv(data, Dataset.from_texts(["3"]))
    slots, threshold = ["--num-slots", "5"], ["--occupancy-threshold", "0.3"]
    for words, options in (
        (["evaluate", "--file", data], [*slots, *threshold]),
        (["predict-file", texts], slots),
        (["predict", "3"], slots),
        (["trace", "3", "--html", tmp_path / "trace.html"], slots),
    ):
        assert listops([*map(str, words), "--checkpoint", str(checkpoint), *options]) == 0
        warnings = capsys.readouterr().err.splitlines()
        names = [re.fullmatch("warning: (--.+?) .+ has no effect .+mean", line)[1] for line in warnings]
        assert names == options[::2]


def test_the_test_data_of_a_run_are_read_again_from_its_directory(tmp_path, capsys):
    checkpoint = tmp_path / "best.safetensors"
    config = ListOpsConfig(embedding_size=6, model="mean", data_dir=tmp_path)
    save_tensors(checkpoint, ListOpsModel(config).state_dict(), config_to_dict(config))
    write_tsv(tmp_path / "test_d20s.tsv", Dataset.from_texts(["3", "4", "[MAX 2 9 ]"]))
    assert listops(["evaluate", "--checkpoint", str(checkpoint)]) == 0
    assert "on 3 expressions" in capsys.readouterr().out


@pytest.mark.parametrize("task", ["listops", "logic", "sst"])
def test_on_its_validation_data_a_model_is_as_accurate_as_in_its_run(task, small_runs, tmp_path, capsys):
    [row] = RunDirectory(Path(small_runs[f"{task}_run"])).read_metrics()
    results, predictions = tmp_path / "results.json", tmp_path / "predictions.jsonl"
    command = ["evaluate", "--part", "validation", "--checkpoint", small_runs[task], "--num-slots", "3"]
    assert MAIN[task]([*command, "--json", str(results), "--predictions", str(predictions)]) == 0
    evaluated = json.loads(results.read_text())
    assert evaluated["accuracy"] == pytest.approx(row["validation_accuracy"])
    assert evaluated["part"] == "validation"
    assert evaluated["span_f1"]
    assert len(predictions.read_text().splitlines()) == evaluated["examples"]
    assert "validation accuracy" in capsys.readouterr().out
