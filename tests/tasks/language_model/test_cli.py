"""`python -m tasks.language_model`: training, evaluating, generating, reports."""

import json
import math
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from ordered_memory.trees import spans
from tasks.language_model.__main__ import main
from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.corpus import generate_splits, load_corpus
from tasks.language_model.model import load_model
from tasks.language_model.report import results_text, write_run_report
from tasks.language_model.samples import EMPTY, LONGEST, sample_sentences
from tasks.language_model.task import (
    LanguageModelingObjective,
    perplexity,
    unigram_losses,
    validation_columns,
)
from tasks.reporting.rendering import cell
from tasks.runs.checkpoints import read_checkpoint, read_state, save_tensors
from tasks.runs.run_directory import RunDirectory
from tests.interrupts import interrupt_before
from tests.outcome import outcome
from tests.tasks.language_model.tiny import TINY, options, train
from tests.tasks.reporting.pages import embedded

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("model", ["onlstm", "lstm", "prpn"])
def test_options_that_have_no_effect(model):
    config = LanguageModelConfig(model=model, data_dir=Path("text"), num_layers=1)
    assert config.unused["sentences"] == "with --data-dir"
    assert config.unused["hidden_dropout"] == "with --num-layers 1"
    config = LanguageModelConfig(model=model, sentences=10, num_layers=2)
    assert not {"sentences", "hidden_dropout"} & config.unused.keys()


@pytest.mark.parametrize("model", ["onlstm", pytest.param("lstm", marks=pytest.mark.slow), "prpn"])
def test_interrupted_in_the_middle_of_epochs_a_run_ends_in_the_same_perplexity(
    tmp_path, monkeypatch, capsys, model
):
    options = ["--model", model]
    if model == "prpn":
        options += ["--learning-rate", "0.01", "--batch-size", "12", "--num-layers", "1"]
    assert train(tmp_path / "whole", *options) == 0
    expected = outcome(tmp_path / "whole")
    steps = [row["step"] for row in expected[0]]
    # In the middle of the first epoch, and of the last, when weights are averaged.
    middles = {steps[0] // 2, steps[2] + 5}
    begun = interrupt_before(monkeypatch, LanguageModelingObjective, middles, signal.SIGTERM)
    assert train(tmp_path / "run", *options) == 130
    if model == "prpn":  # the state that is carried over has as many slots
        assert train(tmp_path / "run", *options, "--resume", "--num-slots", "9") == 2
        assert "--num-slots 9: must stay 15 until the end of the epoch" in capsys.readouterr().err
    assert train(tmp_path / "run", *options, "--resume") == 130
    assert train(tmp_path / "run", *options, "--resume") == 0
    assert len(begun) == steps[-1]
    assert outcome(tmp_path / "run") == expected
    assert train(tmp_path / "run", *options, "--resume", "--sentences", "210") == 2  # another text
    assert "this run was started with other training or validation data" in capsys.readouterr().err
    assert train(tmp_path / "run", *options, "--resume", "--seed", "2") == 2
    assert "--seed 2: " in capsys.readouterr().err


def test_a_run_learns_averages_and_its_checkpoint_says_what_it_says(tmp_path, capsys):
    plain = [word for name in ("input", "hidden", "output", "weight") for word in (f"--{name}-dropout", "0")]
    sizes = ["--num-layers", "1", "--embedding-size", "16", "--activation-regularization", "0"]
    options = ["--learning-rate", "10", "--epochs", "8", "--patience", "0"]
    assert train(tmp_path / "run", *plain, *sizes, *options) == 0
    rows, results, _ = outcome(tmp_path / "run")
    assert rows[-1]["validation_perplexity"] < 0.7 * rows[0]["validation_perplexity"]
    average = read_state(tmp_path / "run" / "last.safetensors")["optimization"]["average"]
    best, _ = read_checkpoint(tmp_path / "run" / "best.safetensors")  # of the last epoch
    assert all(torch.equal(weight, average[f"module.{name}"]) for name, weight in best.items())
    assert results["test_perplexity"] == pytest.approx(math.exp(results["test_loss"]))
    capsys.readouterr()
    checkpoint = tmp_path / "run" / "best.safetensors"
    out = tmp_path / "out.json"
    assert main(["evaluate", "--checkpoint", str(checkpoint), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["loss"] == pytest.approx(results["test_loss"])
    text = tmp_path / "some.txt"
    text.write_text("the dog sleeps\n")
    assert main(["evaluate", "--checkpoint", str(checkpoint), "--text", str(text), "--json", str(out)]) == 0
    model, vocabulary, _ = load_model(checkpoint)
    model.cpu()
    words = torch.tensor([0, *vocabulary.encode(["the", "dog", "sleeps"], ""), 0]).unsqueeze(1)
    with torch.no_grad():
        expected = cross_entropy(model(words[:-1]).logits.squeeze(1), words[1:, 0])
    assert json.loads(out.read_text())["loss"] == pytest.approx(float(expected), rel=1e-5)
    text.write_text("the dog barks\n")
    assert main(["evaluate", "--checkpoint", str(checkpoint), "--text", str(text)]) == 2
    assert "line 1: 'barks' is not in the vocabulary" in capsys.readouterr().err


def test_seeds_give_mean_and_deviation_of_the_perplexity_and_may_share_their_sentences(tmp_path, capsys):
    options = ["--seeds", "2", "--seed", "3", "--data-seed", "5", "--epochs", "2", "--learning-rate", "5"]
    assert train(tmp_path, *options) == 0
    out = capsys.readouterr().out
    summary = json.loads((tmp_path / "seed-3-to-4.json").read_text())["results"]["test perplexity"]
    one, other = (
        json.loads((tmp_path / f"seed-{seed}" / "results.json").read_text())["test_perplexity"]
        for seed in (3, 4)
    )
    assert summary["values"] == {"3": one, "4": other}
    assert one != other
    assert summary["mean"] == pytest.approx((one + other) / 2)
    assert summary["deviation"] == pytest.approx(abs(one - other) / 2**0.5)
    text = f"test perplexity  {summary['mean']:.2f} ± {summary['deviation']:.2f}  ({one:.2f} {other:.2f})"
    assert text in out
    assert "2 seeds: mean ± sample standard deviation\n" in out
    models = [load_model(tmp_path / f"seed-{seed}" / "best.safetensors") for seed in (3, 4)]
    first, second = (generate_splits(trained.config)[2] for trained in models)
    assert [sentence.words for sentence in first] == [sentence.words for sentence in second]
    drawn = generate_splits(replace(models[0].config, data_seed=None))[2]
    assert [sentence.words for sentence in drawn] != [sentence.words for sentence in first]
    assert train(tmp_path, *options, "--resume") == 0  # nothing is left to train
    assert capsys.readouterr().out == out[out.index("2 seeds") :]


def test_the_seed_of_the_data_has_no_effect_on_a_text():
    assert "data_seed" in LanguageModelConfig(data_dir=Path("ptb"), data_seed=1).unused
    assert "data_seed" not in LanguageModelConfig(sentences=20, data_seed=1).unused


@pytest.mark.slow
def test_two_processes_equal_one_with_the_doubled_batch(tmp_path):
    plain = ["--epochs", "2", "--learning-rate", "5"]
    for name in ("embedding", "input", "hidden", "output", "weight"):
        plain += [f"--{name}-dropout", "0"]
    assert train(tmp_path / "one", *plain) == 0
    command = [sys.executable, "-m", "tasks.language_model", "train", "--run-dir", str(tmp_path / "two")]
    options = ["--devices", "2", "--strategy", "ddp", "--accelerator", "cpu", "--batch-size", "2"]
    subprocess.run([*command, *TINY, *plain, *options], cwd=ROOT, check=True, capture_output=True)
    for one, two in zip(outcome(tmp_path / "one")[0], outcome(tmp_path / "two")[0], strict=True):
        assert two == pytest.approx(one, rel=1e-4)


def test_evaluation_has_the_words_of_the_checkpoint_whatever_the_training_text_is_now(tmp_path, capsys):
    data = tmp_path / "data"
    data.mkdir()
    for name, text in (("train", "a b\nb c <unk>\n" * 20), ("valid", "a b\n"), ("test", "c b\nd a\n")):
        (data / f"{name}.txt").write_text(text)
    options = ["--epochs", "1", "--evaluation-batch-size", "1"]
    assert train(tmp_path / "run", "--data-dir", str(data), *options) == 0
    (data / "train.txt").write_text("c d b a\n")
    out, checkpoint = tmp_path / "out.json", tmp_path / "run" / "best.safetensors"
    assert main(["evaluate", "--checkpoint", str(checkpoint), "--json", str(out)]) == 0
    found, (rows, results, _) = json.loads(out.read_text()), outcome(tmp_path / "run")
    assert found["loss"] == pytest.approx(results["test_loss"])
    assert rows[0]["validation_loss"] == pytest.approx(results["validation_loss"])
    assert results["validation_loss"] != pytest.approx(results["test_loss"], rel=1e-3)
    assert (found["coverage"], found["unknown"]) == (0.75, 1)  # d is read as <unk>
    assert (
        "on 6 words, ends of sentences included; "
        "1 of 4 words is read as <unk>: 0 are written so, 1 is not in the vocabulary\n"
    ) in capsys.readouterr().out
    generate = ["generate", "--checkpoint", str(checkpoint), "--count", "1", "--start"]
    assert main([*generate, "a d <unk> e d"]) == 0
    assert capsys.readouterr().err == "warning: --start: the model reads d e as <unk>\n"
    assert main([*generate, "a b"]) == 0
    assert not capsys.readouterr().err
    assert (results["validation_unknown"], results["test_unknown"]) == (0, 1)
    assert results_text(results).splitlines()[3].split()[-2:] == ["6", "1"]
    # Of 140 words and ends of sentences for training, and one more of each of 5: 21 a, 41 b, 21 c, 21 <unk>.
    for part, counts in (("validation", (21, 41, 41)), ("test", (21, 41, 41, 21, 21, 41))):
        assert results[f"{part}_unigram_perplexity"] == pytest.approx(
            145 / math.prod(counts) ** (1 / len(counts))
        )
    capsys.readouterr()
    (data / "train.txt").write_text("a b\nb c <unk>\n" * 20)
    (data / "valid.txt").write_text("b a\n")
    assert train(tmp_path / "run", "--data-dir", str(data), *options, "--resume") == 2
    assert "this run was started with other training or validation data" in capsys.readouterr().err
    (data / "valid.txt").write_text("a b\n")
    (data / "train.txt").write_text("a b\nb c <unk>\n" * 20 + "d\n")  # a word more, a larger model
    assert train(tmp_path / "run", "--data-dir", str(data), *options, "--resume") == 2
    assert "this run was started with other training or validation data" in capsys.readouterr().err
    moved = data.rename(tmp_path / "moved")
    assert main(["evaluate", "--checkpoint", str(checkpoint)]) == 2
    assert "the text of the run is not here; --data-dir names its directory" in capsys.readouterr().err
    assert (
        main(["evaluate", "--checkpoint", str(checkpoint), "--data-dir", str(moved), "--columns", "2"]) == 0
    )
    assert "in 2 columns that start without context" in capsys.readouterr().out
    options = ["--data-dir", str(moved), "--columns", "100", "--json", str(out)]
    assert main(["evaluate", "--checkpoint", str(checkpoint), *options]) == 0
    assert "in 6 columns that start without context" in capsys.readouterr().out
    assert json.loads(out.read_text())["columns"] == 6
    options = ["--data-dir", str(moved), "--columns", "4", "--json", str(out)]
    assert main(["evaluate", "--checkpoint", str(checkpoint), *options]) == 0
    assert json.loads(out.read_text())["columns"] == 3  # of two words each


def test_a_model_of_other_sentences_than_those_generated_now_is_refused(small_runs, tmp_path, capsys):
    tensors, metadata = read_checkpoint(Path(small_runs["language_model"]))
    end, first, second, *others = metadata["vocabulary"]
    changed = tmp_path / "changed.safetensors"
    save_tensors(changed, tensors, metadata | {"vocabulary": [end, second, first, *others]})
    assert main(["evaluate", "--checkpoint", str(changed)]) == 2
    assert f"{changed}: its vocabulary is not that of the sentences" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sentences", "30"], "--sentences 30 are too few: generated"),
        (["--embedding-size", "7"], "--embedding-size 7 must be divisible by --chunk-size 2"),
        (["--hidden-size", "9"], "--hidden-size 9 must be divisible by --chunk-size 2"),
        (["--input-dropout", "2"], "--input-dropout must lie in [0, 1], got 2"),
        (["--sentences", "3"], "or --sentences must be at least 10, got 3"),
        (["--batch-size", "5000"], "--batch-size 5000 columns are too many"),
        (["--data-dir", "/nowhere"], "/nowhere: no such directory; it should hold train.txt"),
        (["--patience", "-1"], "--patience must not be negative, got -1"),
    ],
)
def test_bad_options_are_one_line(tmp_path, capsys, words, message):
    assert train(tmp_path / "run", *words) == 2
    *warnings, error = capsys.readouterr().err.splitlines()
    assert message in error
    unused = "warning: --sentences 200 has no effect with --data-dir"
    assert warnings == ([unused] if "--data-dir" in words else [])


def test_another_kind_of_checkpoint(capsys):
    path = ROOT / "tasks" / "listops" / "pretrained.safetensors"
    assert main(["evaluate", "--checkpoint", str(path)]) == 2
    assert "not a checkpoint of a language model" in capsys.readouterr().err


def test_the_perplexity_of_word_frequencies_by_hand():
    losses = unigram_losses(torch.tensor([0, 0, 1]), torch.tensor([1, 2, 0]), 3)
    assert torch.allclose(losses.exp(), torch.tensor([6 / 2, 6 / 1, 6 / 3]).double())


@pytest.mark.parametrize(("reached", "warned"), [(40.0, False), (47.0, True), (48.0, True)])
def test_a_model_that_is_no_better_than_word_frequencies_is_said_to_be(reached, warned):
    results = {"parameters": 1} | {
        f"{part}_{name}": value
        for part in ("validation", "test")
        for name, value in {
            "perplexity": reached,
            "unigram_perplexity": 47.0,
            "loss": 3.8,
            "tokens": 9,
            "unknown": 0,
        }.items()
    }
    results["validation_perplexity"] = 40.0  # the test alone is looked at
    text = results_text(results)
    assert ("not below the unigram perplexity" in text) == ("--learning-rate" in text) == warned
    assert ("its trees, if it has any," in " ".join(text.split())) == warned  # an LSTM has none
    assert "47.00" in text


def test_perplexity_stays_finite():
    assert math.isfinite(perplexity(1e9))


def test_nothing_is_drawn_after_the_sentences_of_a_batch_have_ended(small_runs, monkeypatch):
    monkeypatch.setattr("tasks.language_model.samples.BATCH_SIZE", 2)
    trained = load_model(Path(small_runs["language_model"]))
    read: list[int] = []
    trained.model.register_forward_hook(lambda model, inputs, output: read.append(len(inputs[0])))
    drawn = sample_sentences(trained, count=3, max_words=10**15)
    assert len(read) == 1 + max(map(len, drawn[:2])) + 1 + len(drawn[2])
    assert all(words[-1:] != ["…"] for words in drawn)
    assert drawn == sample_sentences(trained, count=3, max_words=max(map(len, drawn)))


def test_samples_are_drawn_with_the_probabilities_of_the_model(small_runs):
    trained = load_model(Path(small_runs["language_model"]))
    drawn = sample_sentences(trained, seed=3)
    assert drawn == sample_sentences(trained, seed=3) != sample_sentences(trained, seed=4)
    words = {word for sentence in drawn for word in sentence}
    assert words <= {*trained.vocabulary.words, "…"} - {"<eos>"}
    short = sample_sentences(trained, seed=3, count=40, max_words=8)
    truncated = [sentence for sentence in short if sentence[-1:] == ["…"]]
    assert 0 < len(truncated) < 40
    assert {len(sentence) for sentence in truncated} == {9}
    assert all(len(sentence) <= 8 for sentence in short if sentence not in truncated)
    never = trained.vocabulary.words.index("the")
    always = trained.vocabulary.words.index("dog")
    with torch.no_grad():
        trained.model.output_bias[always] = 1e4
        trained.model.output_bias[never] = -1e4
    assert sample_sentences(trained) == [["dog"] * LONGEST + ["…"]] * 12


def test_sampled_words_have_the_probabilities_of_the_model_after_the_start(small_runs):
    trained = load_model(Path(small_runs["language_model"]))
    start, temperature, count = trained.vocabulary.words[3:5], 0.5, 4_000
    drawn = sample_sentences(trained, count=count, max_words=1, temperature=temperature, start=start)
    assert all(sentence[:2] == start and len(sentence) <= 4 for sentence in drawn)
    ids = torch.tensor([0, *trained.vocabulary.encode(start, "")]).unsqueeze(1)
    with torch.no_grad():
        expected = (trained.model(ids).logits[-1, 0].double() / temperature).softmax(-1)
    third = [sentence[2] if len(sentence) > 2 else "<eos>" for sentence in drawn]
    found = torch.tensor([third.count(word) / count for word in trained.vocabulary.words])
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.03)


def test_a_temperature_near_zero_takes_the_most_probable_word(small_runs):
    trained = load_model(Path(small_runs["language_model"]))
    sentences = sample_sentences(trained, count=3, max_words=5, temperature=1e-300)
    assert sentences == [sentences[0]] * 3
    with torch.no_grad():
        best = trained.model(torch.zeros(1, 1, dtype=torch.long)).logits.argmax().item()
    assert (sentences[0] or ["<eos>"])[0] == trained.vocabulary.words[best]


def test_generated_sentences_are_printed_or_written(small_runs, tmp_path, capsys):
    options = ["generate", "--checkpoint", small_runs["language_model"], "--count", "130", "--seed", "2"]
    assert main(options) == 0
    printed = capsys.readouterr().out
    sentences = sample_sentences(load_model(Path(small_runs["language_model"])), seed=2, count=130)
    assert printed == "".join(f"{' '.join(words)}\n" for words in sentences)
    assert main([*options, "--output", str(tmp_path / "text.txt")]) == 0
    assert (tmp_path / "text.txt").read_text() == printed
    given = {"seed": 2, "count": 130, "start": ["the"], "temperature": 0.5, "max_words": 3}
    assert main([*options, "--start", "the", "--temperature", "0.5", "--max-words", "3"]) == 0
    sentences = sample_sentences(load_model(Path(small_runs["language_model"])), **given)
    assert capsys.readouterr().out.splitlines() == [" ".join(words) for words in sentences]
    for bad in (["--temperature", "0"], ["--count", "0"], ["--start", "zebra"], ["--output", "no/file"]):
        assert main([*options, *bad]) == 2
    assert "'zebra' is not in the vocabulary" in capsys.readouterr().err
    assert main([*options, "--start", "the <eos>"]) == 2
    assert "the start: expected no <eos>, which is added at the end" in capsys.readouterr().err
    assert main([*options, "--start", "the \ud800"]) == 2
    assert "--start: expected Unicode text, got '\\ud800' as character 5" in capsys.readouterr().err


def test_the_report_has_trees_of_validation_sentences_and_the_true_ones(small_runs):
    text = (Path(small_runs["language_model_run"]) / "report.html").read_text()
    config = load_model(Path(small_runs["language_model"])).config
    trees = {tuple(sentence.words): sentence.tree for sentence in generate_splits(config)[1]}
    traces = embedded(text)
    assert len(traces) == 4
    for trace in traces:
        tree = trees[tuple(trace["tokens"])]
        assert {(node["first"], node["last"]) for node in trace["true_nodes"]} == set(spans(tree))
        assert [layer["name"] for layer in trace["layers"]] == ["layer 1", "layer 2"]


@pytest.mark.parametrize("reached", [46.0, 47.0])
def test_the_report_has_results_samples_and_options_and_says_if_words_before_do_not_help(
    small_runs, tmp_path, reached
):
    run = RunDirectory(Path(shutil.copytree(small_runs["language_model_run"], tmp_path / "run")))
    trained, results = load_model(Path(small_runs["language_model"])), run.read_results()
    results |= {"test_perplexity": reached, "test_unigram_perplexity": 47.0, "test_unknown": 1234}
    write_run_report(run, trained, results, load_corpus(trained.config).validation, 3)
    text = run.report.read_text()
    assert ("has not learned to use the preceding words" in text) == (reached == 47.0)
    assert f"Test perplexity {reached:.2f} on {results['test_tokens']:,} words" in text
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", text)
    values = (reached, 47.0, results["test_loss"], results["test_tokens"], 1234)
    assert cells[cells.index("test") :][:6] == ["test", *map(cell, values)]
    assert cells[cells.index("chunk_size") + 1] == "2"
    drawn = [" ".join(words) or EMPTY for words in sample_sentences(trained)]
    assert [unescape(sample) for sample in re.findall("<li>(.*)</li>", text)] == drawn


def test_the_report_of_an_lstm_has_samples_but_no_trees(tmp_path):
    options = ["--model", "lstm", "--run-dir", str(tmp_path)]
    assert main(["train", *TINY, *options]) == 0
    text = (tmp_path / "report.html").read_text()
    assert embedded(text) == []
    assert text.count("<li>") == 12


def test_the_report_says_into_how_many_parts_the_validation_text_was_split(tmp_path):
    options_of_run = ["--model", "lstm", "--evaluation-batch-size", "10000", "--run-dir", str(tmp_path)]
    assert main(["train", *TINY, *options_of_run]) == 0
    words = json.loads((tmp_path / "results.json").read_text())["validation_tokens"]
    assert f"is split into {words} parts, each" in (tmp_path / "report.html").read_text()
    config = options(evaluation_batch_size=5)
    assert [validation_columns(config, 100, processes) for processes in (1, 2, 7)] == [5, 4, 7]
