"""`--initial-weights`: training starts from the weights of a trained model."""

import json
from pathlib import Path

import pytest
import torch

from tasks.language_model.model import load_model
from tasks.listops.data import Dataset, write_tsv
from tasks.listops.generator import generate
from tasks.runs.checkpoints import read_checkpoint
from tasks.sst.model import SentimentModel
from tasks.sst.task import PRETRAINED
from tests.commands import MAIN, TINY

STAND_STILL = ["--learning-rate", "1e-30", "--weight-decay", "0"]


def train(task, directory, *options):
    return MAIN[task](["train", *TINY[task].split(), "--run-dir", str(directory), *map(str, options)])


def weights(path):
    return read_checkpoint(Path(path))[0]


def assert_equal_weights(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-20)


@pytest.mark.parametrize("task", MAIN)
def test_training_starts_from_the_weights_of_a_run_and_of_an_exported_model(task, small_runs, tmp_path):
    assert MAIN[task](["export", str(tmp_path / "exported"), "--checkpoint", small_runs[task]]) == 0
    for number, start in enumerate([small_runs[task], tmp_path / "exported"]):
        run = tmp_path / str(number)
        assert train(task, run, "--initial-weights", start, "--seed", "2", *STAND_STILL) == 0
        assert_equal_weights(weights(run / "best.safetensors"), weights(small_runs[task]))
        assert json.loads((run / "config.json").read_text())["initial_weights"] == str(start)


@pytest.mark.parametrize("task", MAIN)
def test_examples_that_the_weights_may_know_are_warned_of(task, small_runs, tmp_path, capsys):
    start = ("--initial-weights", small_runs[task])
    assert train(task, tmp_path / "other", *start, "--seed", "2") == 0
    assert (
        "was trained on data of seed 1, but this run uses data of seed 2: it may have been"
        in capsys.readouterr().err
    )
    assert train(task, tmp_path / "same", *start, "--seed", "2", "--data-seed", "1") == 0
    assert "data of seed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "option", "value"),
    [
        ("listops", "--expressions", 200),
        ("listops", "--validation-size", 9),
        ("logic", "--generated", 400),
        ("logic", "--split", "C"),
        ("sst", "--generated", 90),
        ("language_model", "--sentences", 150),
    ],
)
def test_more_of_the_same_data_are_warned_of_as_they_are_split_otherwise(
    task, option, value, small_runs, tmp_path, capsys
):
    start = ("--initial-weights", small_runs[task], "--epochs", "1")
    assert train(task, tmp_path, *start, option, value) == 0
    assert f"but this run has {option} {value}: it may have been trained on" in capsys.readouterr().err


def test_files_may_be_the_same_in_another_directory(tmp_path, capsys):
    for directory in (tmp_path / "data", tmp_path / "copy"):
        directory.mkdir()
        for name, size in (("train", 60), ("test", 20)):
            write_tsv(directory / f"{name}_d20s.tsv", Dataset(generate(size, seed=size, max_length=12)))
    assert train("listops", tmp_path / "first", "--data-dir", tmp_path / "data") == 0
    start = ("--initial-weights", tmp_path / "first" / "best.safetensors", "--data-dir", tmp_path / "copy")
    assert train("listops", tmp_path / "second", *start, "--seed", "2") == 0
    assert "was trained on data of seed 1, but this run uses data of seed 2" in capsys.readouterr().err


def test_data_of_files_and_drawn_ones_are_not_the_same(small_runs, tmp_path, capsys):
    for name, size in (("train", 60), ("test", 20)):
        write_tsv(tmp_path / f"{name}_d20s.tsv", Dataset(generate(size, seed=size, max_length=12)))
    start = ("--initial-weights", small_runs["listops"], "--data-dir", tmp_path, "--seed", "2")
    assert train("listops", tmp_path / "run", *start) == 0
    assert "it may have been trained on" not in capsys.readouterr().err


def test_a_resumed_run_keeps_what_it_has_learned(small_runs, tmp_path, capsys):
    start = ("--initial-weights", small_runs["listops"])
    assert train("listops", tmp_path / "whole", *start, "--epochs", "2") == 0
    assert "starting from the weights of" in capsys.readouterr().out
    assert train("listops", tmp_path / "part", *start, "--epochs", "1") == 0
    capsys.readouterr()
    assert train("listops", tmp_path / "part", "--epochs", "2", "--resume") == 0
    assert "starting from the weights of" not in capsys.readouterr().out
    assert_equal_weights(
        weights(tmp_path / "part" / "best.safetensors"), weights(tmp_path / "whole" / "best.safetensors")
    )


def test_a_run_that_has_begun_cannot_start_from_other_weights(small_runs, tmp_path, capsys):
    assert train("listops", tmp_path) == 0
    capsys.readouterr()
    start = ("--initial-weights", small_runs["listops"])
    assert train("listops", tmp_path, "--resume", "--epochs", "2", *start) == 2
    message = capsys.readouterr().err
    assert f"--initial-weights {start[1]}: {tmp_path} resumes with the weights" in message
    assert train("listops", tmp_path, "--resume", *start) == 2
    assert "resumes with the weights" in capsys.readouterr().err


def test_a_resumed_run_cannot_be_said_to_have_begun_with_other_weights(small_runs, tmp_path, capsys):
    start = ["--initial-weights", small_runs["listops"]]
    assert train("listops", tmp_path / "run", *start) == 0
    (tmp_path / "other.safetensors").write_bytes(Path(small_runs["listops"]).read_bytes())
    other = ["--initial-weights", tmp_path / "other.safetensors"]
    assert train("listops", tmp_path / "run", "--resume", "--epochs", "2", *other) == 2
    assert f"which started with {start[1]}" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["sst", "language_model"])
def test_a_run_is_resumed_without_the_file_that_it_started_from(task, small_runs, tmp_path):
    start = tmp_path / "start.safetensors"
    start.write_bytes(Path(small_runs[task]).read_bytes())
    options = ("--initial-weights", start, "--seed", "2")
    assert train(task, tmp_path / "whole", *options, "--epochs", "2") == 0
    assert train(task, tmp_path / "part", *options, "--epochs", "1") == 0
    start.unlink()
    assert train(task, tmp_path / "part", *options, "--epochs", "2", "--resume") == 0
    part, whole = (tmp_path / name / "best.safetensors" for name in ("part", "whole"))
    assert_equal_weights(weights(part), weights(whole))


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("listops", "--slot-size 8", "--slot-size 8: {} was trained with 6"),
        ("logic", "--bidirectional", "--bidirectional True: {} was trained with False"),
        ("logic", "--model onlstm", "--model onlstm: {} was trained with ordered-memory"),
        ("sst", "--classes 5", "--classes 5: {} was trained with 2"),
        ("sst", "--vectors glove-6b-50d", "--vectors glove-6b-50d: {} was trained with none"),
        ("sst", "--encoder no-encoder", "--encoder no-encoder: {} was trained with None"),
        ("language_model", "--no-tied", "--tied False: {} was trained with True"),
    ],
)
def test_weights_of_another_architecture_are_an_error(task, options, message, small_runs, tmp_path, capsys):
    assert train(task, tmp_path, "--initial-weights", small_runs[task], *options.split()) == 2
    assert message.format(small_runs[task]) in capsys.readouterr().err


def test_weights_that_fit_but_would_compute_something_else_are_an_error(tmp_path, capsys):
    transformer = ["--model", "transformer", "--layers", "1"]
    assert train("listops", tmp_path / "first", *transformer, "--heads", "2") == 0
    best = tmp_path / "first" / "best.safetensors"
    start = ["--initial-weights", best, *transformer, "--heads", "3"]
    assert train("listops", tmp_path / "second", *start) == 2
    assert f"--heads 3: {best} was trained with 2" in capsys.readouterr().err
    assert train("listops", tmp_path / "first", "--resume", "--epochs", "2", *start[2:]) == 2
    assert "resumes a model with --heads 2" in capsys.readouterr().err


def test_weights_of_another_task_or_none_are_an_error(small_runs, tmp_path, capsys):
    assert train("listops", tmp_path, "--initial-weights", small_runs["logic"]) == 2
    assert "from another task or a newer version" in capsys.readouterr().err
    assert train("logic", tmp_path, "--initial-weights", tmp_path / "none.safetensors") == 2
    assert "none.safetensors: no such checkpoint" in capsys.readouterr().err


def test_a_language_model_keeps_its_vocabulary_on_another_text(small_runs, tmp_path, capsys):
    words = load_model(Path(small_runs["language_model"])).vocabulary.words
    text = " ".join(reversed(words[1:9])) + "\n"
    for name in ("train.txt", "valid.txt", "test.txt"):
        (tmp_path / name).write_text(text * 60)
    options = ["--initial-weights", small_runs["language_model"], "--data-dir", tmp_path]
    assert train("language_model", tmp_path / "run", *options) == 0
    best = tmp_path / "run" / "best.safetensors"
    assert load_model(best).vocabulary.words == words
    assert MAIN["language_model"](["evaluate", "--checkpoint", str(best)]) == 0
    (tmp_path / "valid.txt").write_text("xylophone\n")
    capsys.readouterr()
    assert train("language_model", tmp_path / "other", *options) == 2
    assert "'xylophone' is not in the vocabulary" in capsys.readouterr().err


def test_generated_sentences_with_words_that_a_model_does_not_know_are_said_to_be_such(tmp_path, capsys):
    for name in ("train.txt", "valid.txt", "test.txt"):
        (tmp_path / name).write_text("xylophone\n" * 60)
    assert train("language_model", tmp_path / "first", "--data-dir", tmp_path) == 0
    best = tmp_path / "first" / "best.safetensors"
    assert train("language_model", tmp_path / "second", "--initial-weights", best) == 2
    error = capsys.readouterr().err
    assert "generated train.txt, line 1" in error
    assert "--data-dir names another text" in error


def test_a_language_model_is_evaluated_on_sentences_of_its_own_run(small_runs, tmp_path):
    options = ["--initial-weights", small_runs["language_model"], "--seed", "3"]
    assert train("language_model", tmp_path, *options) == 0
    evaluation = ["evaluate", "--checkpoint", str(tmp_path / "best.safetensors")]
    assert MAIN["language_model"]([*evaluation, "--json", str(tmp_path / "again.json")]) == 0
    found, results = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("again", "results"))
    assert found["words"] == results["test_tokens"]
    assert found["loss"] == pytest.approx(results["test_loss"], rel=1e-6)


def test_generated_words_that_the_vocabulary_lacks_are_counted_as_unknown(tmp_path):
    for name in ("train.txt", "valid.txt", "test.txt"):
        (tmp_path / name).write_text("the <unk> sleeps\n" * 60)
    assert train("language_model", tmp_path / "first", "--data-dir", tmp_path) == 0
    start = tmp_path / "first" / "best.safetensors"
    assert train("language_model", tmp_path / "second", "--initial-weights", start) == 0
    evaluation = ["evaluate", "--checkpoint", str(tmp_path / "second" / "best.safetensors")]
    files = ["--json", str(tmp_path / "of.json"), "--predictions", str(tmp_path / "words.jsonl")]
    assert MAIN["language_model"]([*evaluation, *files]) == 0
    rows = [json.loads(line) for line in (tmp_path / "words.jsonl").read_text().splitlines()]
    words = [word for row in rows for word in row["words"]]
    read = [word for word in words if word != "<eos>"]
    known = 1 - read.count("<unk>") / len(read)
    assert 0 < known < 0.5
    assert json.loads((tmp_path / "of.json").read_text())["coverage"] == pytest.approx(known)


def test_a_shipped_sentiment_model_is_trained_further_on_other_words(tmp_path, capsys):
    start = PRETRAINED[5]
    vectors = tmp_path / "vectors.txt"
    vectors.write_text(f"reporter {' '.join(['0.5'] * 150)}\n")
    options = ["--preset", "small", "--classes", "5", "--generated", "60", "--epochs", "1", *STAND_STILL]
    run = ["train", *options, "--initial-weights", str(start), "--vectors", str(vectors)]
    assert MAIN["sst"]([*run, "--run-dir", str(tmp_path / "run")]) == 0
    before = SentimentModel.from_pretrained(start)
    after = SentimentModel.from_pretrained(tmp_path / "run" / "best.safetensors")
    vocabulary = after.embedding.vocabulary
    assert "reporter" not in before.embedding.vocabulary
    assert after.embedding.weight[vocabulary.index("reporter")].tolist() == [0.5] * 150
    expected, found = before.answer("neither bad nor dull"), after.answer("neither bad nor dull")
    assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-4)
    capsys.readouterr()
    assert MAIN["sst"]([*run[:-1], "none", "--run-dir", str(tmp_path / "learned")]) == 2
    assert "--vectors none" in capsys.readouterr().err


def test_how_rare_words_are_read_is_part_of_a_model(tmp_path, capsys):
    for name in ("train.txt", "valid.txt", "test.txt"):
        (tmp_path / name).write_text("a b\nb a c\n" * 30 + f"{name}\n")
    options = ["--data-dir", tmp_path]
    assert train("language_model", tmp_path / "first", *options, "--min-count", "2") == 0
    best = tmp_path / "first" / "best.safetensors"
    assert load_model(best).vocabulary.words == ["<eos>", "a", "b", "c", "<unk>"]
    more = ["--resume", "--epochs", "2"]
    assert train("language_model", tmp_path / "first", *options, *more, "--min-count", "3") == 2
    assert "--min-count 3: " in capsys.readouterr().err
    # Other runs that start from it have its words.
    assert train("language_model", tmp_path / "second", *options, "--initial-weights", best) == 0
    assert load_model(tmp_path / "second" / "best.safetensors").vocabulary.words[-1] == "<unk>"
