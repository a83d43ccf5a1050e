"""Sentiment from the command line: every subcommand and model, without any download."""

import json
import re
import signal

import pytest
import torch
from safetensors.torch import load_file

from tasks.classifiers.classification import ClassificationObjective
from tasks.runs.checkpoints import read_metadata, save_tensors
from tasks.runs.errors import UserError
from tasks.sst.__main__ import main
from tasks.sst.commands import _signs
from tasks.sst.grammar import generate_treebank
from tasks.sst.model import CLASSES, SentimentModel
from tasks.sst.stats import stats_text
from tests.commands import refusal
from tests.interrupts import interrupt_before
from tests.tasks.reporting.pages import embedded
from tests.tasks.sst.tiny_encoder import write_encoder

TINY = [
    *("--generated", "60", "--vectors", "none", "--epochs", "1", "--batch-size", "64", "--classes", "5"),
    *("--embedding-size", "6", "--slot-size", "8", "--num-slots", "3", "--chunk-size", "2"),
]


def train(directory, *options):
    return main(["train", "--run-dir", str(directory), *TINY, *options])


def results_of(directory):
    return json.loads((directory / "results.json").read_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sst") / "run"
    assert train(directory, "--average-decay", "0.9") == 0
    return directory


def test_the_results_say_everything(run):
    results = results_of(run)
    assert results["classes"] == list(CLASSES[5])
    assert sum(map(sum, results["confusion"])) == results["examples"] == 6
    assert list(results["accuracy_by"]) == ["length", "sentences with", "nodes"]
    nodes = results["accuracy_by"]["nodes"]
    assert nodes["all"][1] == sum(count for name, (_, count) in nodes.items() if name != "all")
    assert len(results["span_f1"]) == 2
    page = (run / "report.html").read_text()
    assert "<h1>SST-5: ordered-memory" in page
    traces = embedded(page)
    assert traces
    for trace in traces:
        assert all(-1 <= node["value"] <= 1 for node in trace["nodes"] + trace["true_nodes"])
        assert len(trace["token_values"]) == len(trace["true_token_values"]) == len(trace["tokens"])


def test_runs_with_two_and_with_five_classes_are_not_compared(run, tmp_path, capsys):
    two = tmp_path / "two"
    assert train(two, "--classes", "2") == 0
    assert main(["report", str(run), str(two), "--output", str(tmp_path / "page.html")]) == 2
    five, pair = ", ".join(CLASSES[5]), ", ".join(CLASSES[2])
    expected = f"runs with different classes cannot be compared: {run} has {five}; {two} has {pair}"
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_a_finished_run_resumes_to_its_results(run, capsys):
    before = (run / "results.json").read_bytes()
    assert main(["train", "--run-dir", str(run), "--resume"]) == 0
    assert (run / "results.json").read_bytes() == before


def test_an_interrupted_run_resumes_to_the_same_numbers(tmp_path, monkeypatch):
    options = ["--average-decay", "0.9", "--epochs", "2", "--phrases", "distinct", "--save-every", "2"]
    assert train(tmp_path / "whole", *options) == 0
    interrupt_before(monkeypatch, ClassificationObjective, {3}, signal.SIGINT)
    assert train(tmp_path / "parts", *options) == 130
    assert main(["train", "--run-dir", str(tmp_path / "parts"), "--resume"]) == 0
    assert results_of(tmp_path / "parts") == results_of(tmp_path / "whole")
    whole, parts = (load_file(tmp_path / name / "best.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_evaluating_again_gives_the_same(run, tmp_path):
    target = tmp_path / "again.json"
    checkpoint = ["--checkpoint", str(run / "best.safetensors"), "--json", str(target)]
    assert main(["evaluate", *checkpoint, "--batch-size", "7"]) == 0
    results = results_of(run)
    del results["data"]  # an evaluation does not know all data of the run
    assert json.loads(target.read_text()) == results
    path = tmp_path / "trees.txt"
    path.write_text("(3 (2 It) (4 (2 's) (4 goood)))\n\n\n")
    assert main(["evaluate", *checkpoint, "--file", str(path)]) == 0
    assert json.loads(target.read_text())["examples"] == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--model", "lstm"],
        ["--model", "onlstm", "--bidirectional", "--phrases", "sentences"],
        ["--model", "mean", "--classes", "2"],
        ["--model", "gumbel-tree-lstm"],
        ["--model", "gold-tree-lstm"],
        ["--model", "gold-tree-cell"],
        ["--bidirectional"],
    ],
)
def test_other_models(options, tmp_path, capsys):
    assert train(tmp_path / "run", *options) == 0
    out = capsys.readouterr().out
    assert "sentences with" in out
    assert ("span F1" in out) == bool({"--bidirectional", "gumbel-tree-lstm"} & set(options))
    checkpoint = ["--checkpoint", str(tmp_path / "run" / "best.safetensors")]
    needs_trees = options[-1].startswith("gold-tree")  # and the tree of a typed sentence is not known
    assert main(["predict", "It is n't good .", *checkpoint]) == (2 if needs_trees else 0)
    assert ("needs the true tree" in capsys.readouterr().err) == needs_trees


def test_seeds_write_what_they_print(tmp_path, capsys):
    options = ["--model", "mean", "--seeds", "2", "--seed", "3"]
    assert train(tmp_path, *options) == 0
    out = capsys.readouterr().out
    path = tmp_path / "seed-3-to-4.json"
    assert out.endswith(f"written: {path}\n")
    summary = json.loads(path.read_text())
    assert summary["runs"] == {"3": "seed-3", "4": "seed-4"}
    for name, row in summary["results"].items():
        each = " ".join(f"{value:.4f}" for value in row["values"].values())
        assert f"{name}  {row['mean']:.4f} ± " in out
        assert row["n"] == len(row["values"])
        missing = "" if row["n"] == 2 else f", n {row['n']}"
        assert f"({each}{missing})" in out
    assert any(row["n"] == 1 for row in summary["results"].values())  # the drawn data of a seed lack a group
    results = [json.loads((tmp_path / f"seed-{seed}" / "results.json").read_text()) for seed in (3, 4)]
    first, second = (of_run["accuracy"] for of_run in results)
    accuracy = summary["results"]["accuracy"]
    assert accuracy["values"] == {"3": first, "4": second}
    assert accuracy["mean"] == pytest.approx((first + second) / 2)
    assert accuracy["deviation"] == pytest.approx(abs(first - second) / 2**0.5)
    (tmp_path / "seed-4" / "results.json").unlink()
    (tmp_path / "seed-4" / "last.safetensors").write_bytes(b"damaged")
    assert train(tmp_path, *options, "--resume") == 2
    assert not path.exists(), "a summary of results that are no more"


@pytest.mark.parametrize("value", ["NaN", "true", "1" * 400])
def test_results_that_are_no_numbers_have_no_mean(value, tmp_path):
    options = ["--model", "mean", "--seeds", "2"]
    assert train(tmp_path, *options) == 0
    results, summary = tmp_path / "seed-2" / "results.json", tmp_path / "seed-1-to-2.json"
    before = results.read_text(), summary.read_text()
    results.write_text(re.sub(r'"accuracy": [^,]+', f'"accuracy": {value}', before[0], count=1))
    assert train(tmp_path, *options, "--resume") == 0
    assert (results.read_text(), summary.read_text()) == before


def test_predict_draws_a_sentiment_at_every_node(run, tmp_path, capsys):
    options = ["--checkpoint", str(run / "best.safetensors"), "--heat-map", str(tmp_path / "map.png")]
    assert main(["predict", "Neither bad nor dull.", *options]) == 0
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].removeprefix("answer: ").partition(" (")[0] in CLASSES[5]
    probabilities = [float(line.split()[-1]) for line in lines[1:6]]
    assert sum(probabilities) == pytest.approx(1, abs=1e-3)
    assert ["Neither", "bad", "nor", "dull", "."] in [line.split() for line in lines]


@pytest.mark.parametrize(
    ("words", "content"),
    [
        (["predict", "a goood goood film"], None),
        (["predict-file"], "a goood goood film"),
        (["evaluate", "--file"], "(3 (2 a) (3 (4 goood) (3 (4 goood) (2 film))))"),
    ],
)
def test_words_are_named_that_a_model_with_learned_embeddings_does_not_know(
    words, content, run, tmp_path, capsys
):
    if content is not None:
        (tmp_path / "file.txt").write_text(f"{content}\n")
        words = [*words, str(tmp_path / "file.txt")]
    assert main([*words, "--checkpoint", str(run / "best.safetensors")]) == 0
    found = re.search(r"unknown words, which share one vector: (\d+) \((.+)\)", capsys.readouterr().err)
    assert found[2].split().count("goood") == 1
    assert int(found[1]) == len(found[2].split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", " "], "the sentence must have one word or more, got ' '"),
        (["predict", "good", "--checkpoint", "missing"], "missing: no such checkpoint"),
        (["stats", "--generated", "-1"], "--generated must not be negative"),
        (["stats", "--data-dir", "missing"], "missing: no such directory"),
    ],
)
def test_bad_input_is_a_line(words, message, capsys):
    assert message in refusal(main, capsys, *words)


def test_stats_of_generated_sentences_are_those_of_the_seed(capsys):
    printed = []
    for seed in ("0", "1"):
        assert main(["stats", "--generated", "50", "--seed", seed]) == 0
        printed.append(capsys.readouterr().out)
        assert printed[-1].rstrip("\n") == stats_text(generate_treebank(50, int(seed)))
    assert printed[0] != printed[1]


def test_files_of_vectors(tmp_path, capsys):
    words = ["film", "the", "is", "not", "good", "bad", "and", "but", "dull", "funny", "zany"]
    for name, size in (("a.txt", 3), ("b.txt", 2)):
        lines = [" ".join([word, *(str((len(word) * k) % 7 / 7) for k in range(size))]) for word in words]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    assert train(tmp_path / "run", "--model", "lstm", "--vectors", *files) == 0
    printed = capsys.readouterr()
    assert "a.txt: " in printed.out
    warning = f"warning: --vectors {' '.join(files)}: 5 dimensions; the paper has GloVe 840B in 300"
    assert warning in printed.err
    checkpoint = str(tmp_path / "run" / "best.safetensors")
    assert main(["predict", "a goood funny film", "--checkpoint", checkpoint]) == 0
    assert "random vectors: 1 (goood)" in capsys.readouterr().err
    model = SentimentModel.from_pretrained(checkpoint)
    random = model.embedding([["goood"]])
    assert model.unknown_words(model.read_text("a goood zany film")) == ["goood", "zany"]
    model.answer("a goood zany film")  # as `predict`, it looks for words in the files
    assert "random vectors: 1 (goood)" in capsys.readouterr().err
    assert torch.allclose(model.embedding([["zany"]])[0, 0], torch.tensor([0, 4, 1, 0, 4]) / 7)
    assert torch.equal(model.embedding([["goood"]]), random)
    model.answer("a Goood zany film")
    assert capsys.readouterr().err == "random vectors, as before: 1 (goood)\n"
    text = (tmp_path / "b.txt").read_text()
    (tmp_path / "b.txt").write_text("".join(f"{line} 1\n" for line in text.splitlines()))
    assert main(["predict", "a goood film", "--checkpoint", checkpoint]) == 0
    assert "expected 5 numbers, got 6" in capsys.readouterr().err
    (tmp_path / "b.txt").write_text(text.replace("0", "1"))
    assert train(tmp_path / "run", "--resume", "--epochs", "3", "--model", "lstm", "--vectors", *files) == 2
    assert "started with another embedding.weight" in capsys.readouterr().err
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).unlink()  # the checkpoint has what it needs
    assert main(["predict", "a goood film", "--checkpoint", checkpoint]) == 0
    assert "words without a vector" in capsys.readouterr().err


@pytest.mark.parametrize("fine_tune", [False, True])
def test_a_contextual_encoder(tmp_path, capsys, fine_tune):
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    write_encoder(encoder, longest=200)
    options = ["--encoder", str(encoder), *(["--fine-tune"] if fine_tune else [])]
    assert train(tmp_path / "run", *options, "--phrases", "sentences") == 0
    assert train(tmp_path / "alone", *options, "--phrases", "sentences", "--model", "mean") == 0
    checkpoint = ["--checkpoint", str(tmp_path / "run" / "best.safetensors")]
    assert main(["predict", "a film", *checkpoint]) == 0
    write_encoder(encoder, seed=1, longest=200)
    assert main(["predict", "a film", *checkpoint]) == 2
    assert "has changed since training" in capsys.readouterr().err
    before = (tmp_path / "run" / "config.json").read_text()
    assert main(["train", "--run-dir", str(tmp_path / "run"), "--resume", "--epochs", "3"]) == 2
    assert "started with another embedding" in capsys.readouterr().err
    assert (tmp_path / "run" / "config.json").read_text() == before


def test_a_model_over_a_frozen_encoder_is_fine_tuned(tmp_path, capsys):
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    write_encoder(encoder, longest=200)
    options = ["--encoder", str(encoder), "--phrases", "sentences"]
    assert train(tmp_path / "frozen", *options) == 0
    frozen = tmp_path / "frozen" / "best.safetensors"
    still = ["--learning-rate", "1e-30", "--encoder-learning-rate", "1e-30", "--weight-decay", "0"]
    tuned = [*options, "--fine-tune", "--initial-weights", str(frozen), *still]
    assert train(tmp_path / "tuned", *tuned) == 0
    best = tmp_path / "tuned" / "best.safetensors"
    before, after = (SentimentModel.from_pretrained(path).answer("a film") for path in (frozen, best))
    assert after.probabilities == pytest.approx(before.probabilities, abs=1e-5)
    assert train(tmp_path / "words", "--initial-weights", str(frozen)) == 2
    assert "--encoder None: " in capsys.readouterr().err
    metadata = read_metadata(best)
    lacking = {name: tensor for name, tensor in load_file(best).items() if not name.startswith("embedding.")}
    save_tensors(best, lacking, metadata)  # a trained encoder must be in its checkpoint
    with pytest.raises(UserError, match="does not fit the model: embedding"):
        SentimentModel.from_pretrained(best)


def test_a_checkpoint_has_its_own_number_of_classes(capsys):
    assert main(["predict", "good", "--classes", "2", "--checkpoint", "best.safetensors"]) == 2
    assert "--checkpoint best.safetensors and --classes 2: give one of them" in capsys.readouterr().err


def test_the_sign_of_a_node_is_that_of_its_most_probable_class():
    signs = ["--", "-", "0", "+", "++"]
    rows = {
        (0, 0): [0.4, 0, 0, 0.25, 0.35],  # neutral on average
        (1, 1): [0.1, 0.2, 0.4, 0.2, 0.1],
        (0, 1): [0.1, 0.2, 0.4, 0.2, 0.1],
        (2, 2): [0, 0.1, 0.2, 0.4, 0.3],
    }
    found = _signs({node: torch.tensor(row) for node, row in rows.items()}, signs)
    assert found == {(0, 0): "--", (0, 1): "0", (2, 2): "+"}
    two = {(0, 0): torch.tensor([0.51, 0.49]), (1, 1): torch.tensor([0.49, 0.51])}
    assert _signs(two, ["-", "+"]) == {(0, 0): "-", (1, 1): "+"}


@pytest.mark.parametrize(
    ("classes", "legend"),
    [("2", "- +: from negative to positive"), ("5", "-- - 0 + ++: from very negative to very positive")],
)
def test_the_signs_of_a_drawing_are_those_of_the_answers(classes, legend, capsys):
    # The last is neutral on average, and most probably positive.
    for text in ("neither bad nor dull", "a bad film", "I loved it and hated it"):
        assert main(["predict", text, "--classes", classes]) == 0
        out = capsys.readouterr().out
        answer, *lines = out.splitlines()
        drawing = out.partition("\n\n")[2].partition(f"\n\n{legend}")[0]
        assert lines[-1] == legend
        signs = set(re.findall(r"(?<!\S)(?:--?|0|\+\+?)(?!\S)", drawing))
        assert signs
        assert signs <= set(legend.partition(":")[0].split())
        assert drawing.split()[0] == answer.removeprefix("answer: ").split()[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stats", "--generated", "50"], "--generated 50 has no effect with --data-dir"),
        (["stats", "--seed", "2"], "--seed 2 has no effect with --data-dir"),
        (["train", "--generated", "50"], "warning: --generated 50 has no effect with --data-dir"),
    ],
)
def test_a_directory_is_read_in_place_of_generated_sentences(words, message, tmp_path, capsys):
    assert main([*words, "--data-dir", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
