"""The subcommand `trace`: what it prints and writes, the same for every task."""

import json

import pytest
import torch

from ordered_memory.trace import add_true_tree, read_distances, read_tree, to_json
from ordered_memory.tree_recovery import from_attention
from tasks.classifiers.evaluation import predict_example
from tasks.listops.__main__ import main as listops
from tasks.listops.model import ListOpsModel
from tasks.parsing.__main__ import main as parsing
from tasks.reporting.traces import answer_text, explanation, summary_text
from tests.commands import MAIN
from tests.tasks.reporting.pages import embedded
from tests.traces import tree_of

WORDS = {
    "listops": ["[MAX 2 9 [MIN 4 7 ] 0 ]"],
    "logic": ["( a ( or b ) )", "( not ( c ) )"],
    "sst": ["neither bad nor dull"],
}


@pytest.mark.parametrize("task", WORDS)
def test_the_same_trace_is_printed_and_written(task, small_runs, tmp_path, capsys):
    command = ["trace", *WORDS[task], "--checkpoint", small_runs[task], "--json"]
    assert MAIN[task]([*command, "-"]) == 0
    printed = capsys.readouterr().out
    assert MAIN[task]([*command, str(tmp_path / "trace.json")]) == 0
    assert (tmp_path / "trace.json").read_text() == printed
    assert len(json.loads(printed)["traces"]) == len(WORDS[task])
    told = capsys.readouterr().out
    assert told.startswith("answer: ")
    assert "slots in use" in told
    assert ("the true one" in told) == (task != "sst")


def test_no_more_slots_are_in_use_than_there_are(capsys):
    deep = "[MAX 2 9 [MIN 4 [SM 3 [MED 7 1 2 ] 5 ] 0 ] 1 ]"
    assert listops(["trace", deep, "--num-slots", "3"]) == 0
    assert "3 of 3 slots in use" in capsys.readouterr().out


def test_only_a_certain_answer_has_a_probability_of_one():
    answer = {"classes": ["no", "yes"], "probabilities": [0.00004, 0.99996], "true": None}
    assert answer_text(answer) == "answer: yes (probability 0.99996)"


def test_the_tree_is_that_of_algorithm_2(small_runs, capsys):
    [expression] = WORDS["listops"]
    assert listops(["trace", expression, "--checkpoint", small_runs["listops"], "--json", "-"]) == 0
    [trace] = json.loads(capsys.readouterr().out)["traces"]
    model = ListOpsModel.from_pretrained(small_runs["listops"])
    [attention] = predict_example(model, ListOpsModel.read_text(expression), 0).attention
    [tree] = from_attention(attention.unsqueeze(0), batch_first=True)
    assert tree_of(trace["nodes"], 9) == tree
    shown = torch.tensor(trace["memory"]["attention"])
    assert torch.allclose(shown, attention, atol=6e-4)


def test_a_language_model_has_distances_and_no_true_tree(small_runs, capsys):
    command = ["trace", "the cat sees 3 zebras", "--checkpoint", small_runs["language_model"]]
    assert parsing([*command, "--layer", "2", "--json", "-"]) == 2
    assert "'3' is not in the vocabulary" in capsys.readouterr().err
    command[1] = "the dog sleeps"
    assert parsing([*command, "--layer", "2", "--json", "-"]) == 0
    [trace] = json.loads(capsys.readouterr().out)["traces"]
    [layer] = trace["layers"]
    assert layer["name"] == "layer 2"
    assert layer["trees"].keys() == {"prpn", "unbiased", "cky"}
    assert not {"answer", "true_nodes", "nodes"} & trace.keys()
    assert parsing(command) == 0
    assert capsys.readouterr().out == "3 tokens; distances of layer 1, layer 2\n"


@pytest.mark.parametrize(("layer", "verdict"), [("layer 1", ""), ("layer 2", "not ")])
def test_the_summary_is_about_the_tree_that_counts(layer, verdict):
    trace = read_distances(torch.tensor([[9.0, 1.0, 5.0], [9.0, 5.0, 1.0]]), ["a", "b", "c"])
    add_true_tree(trace, ((0, 1), 2))
    assert summary_text([trace]) == "3 tokens; distances of layer 1, layer 2"
    trace["default_tree"] = {"layer": layer, "decoding": "unbiased"}
    told = f"; the induced tree is {verdict}the true one"
    assert summary_text([trace]) == f"3 tokens; distances of layer 1, layer 2{told}"


def test_the_distances_of_the_backward_direction_are_explained():
    forward, backward = (
        read_distances(torch.rand(1, 3), ["a", "b", "c"], direction=direction)
        for direction in ("forward", "backward")
    )
    assert "ends before it" in explanation([forward])
    assert "begins after" not in explanation([forward])
    assert "begins after the word" in explanation([forward, backward])


def test_a_failed_write_leaves_the_old_file(small_runs, tmp_path, monkeypatch, capsys):
    path = tmp_path / "trace.json"
    path.write_text("old")

    def fail(source, target):
        raise OSError(28, "full")

    monkeypatch.setattr("tasks.runs.files.os.replace", fail)
    command = ["trace", "3", "--checkpoint", small_runs["listops"], "--json", str(path)]
    assert listops(command) == 2
    assert "full" in capsys.readouterr().err
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]


def test_the_summary_of_two_sequences_has_one_answer():
    traces = []
    for name, tree in (("left", ((0, 1), 2)), ("right", (0, (1, 2)))):
        trace = read_tree(((0, 1), 2), ["a", "b", "c"])
        trace["caption"] = name
        trace["answer"] = {"classes": ["no", "yes"], "probabilities": [0.25, 0.75], "true": 1}
        add_true_tree(trace, tree)
        traces.append(trace)
    assert summary_text(traces).splitlines() == [
        "answer: yes (probability 0.750; right)",
        "left: 3 tokens; the induced tree is the true one",
        "right: 3 tokens; the induced tree is not the true one",
    ]
    assert json.loads(to_json(traces))["traces"] == traces


@pytest.mark.parametrize("task", WORDS)
def test_the_page_shows_the_trace_that_is_printed(task, small_runs, tmp_path, capsys):
    page = tmp_path / "page.html"
    command = ["trace", *WORDS[task], "--checkpoint", small_runs[task], "--html", str(page), "--json", "-"]
    assert MAIN[task](command) == 0
    text = page.read_text()
    assert embedded(text) == json.loads(capsys.readouterr().out)["traces"]
    assert "p is how much a token attends to each slot" in text
    title = {"listops": "ListOps: ordered-memory", "logic": "Logic: ordered-memory", "sst": "SST-"}[task]
    assert f"<h1>{title}" in text
