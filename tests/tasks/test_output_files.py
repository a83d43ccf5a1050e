"""No command replaces a file that it reads."""

import shlex
from importlib import import_module
from pathlib import Path

import pytest

COMMANDS = [
    ("listops", 'predict "[MAX 1 2 ]" --checkpoint {0} --heat-map {0}', "listops"),
    ("listops", 'trace "[MAX 1 2 ]" --checkpoint {0} --html {0}', "listops"),
    ("listops", "evaluate --checkpoint {0} --json {0}", "listops"),
    ("logic", 'predict "a" "( not a )" --checkpoint {0} --heat-map {0}', "logic"),
    ("sst", 'predict "a film" --checkpoint {0} --heat-map {0}', "sst"),
    ("listops", "predict-file {0} --output {0}", "listops"),
    ("predictions", "compare other {0} --json {0}", "listops"),
    ("parsing", 'parse "the dog" --checkpoint {0} --plot {0}', "language_model"),
    ("parsing", "evaluate --checkpoint {0} --output {0}", "language_model"),
    ("parsing", "trees {0} --output {0}", "language_model"),
    ("syntax_eval", "evaluate --count 2 --checkpoint {0} --json {0}", "language_model"),
    ("syntax_eval", "evaluate --count 2 --checkpoint other {0} --predictions {0}", "language_model"),
    ("language_model", "generate --checkpoint {0} --output {0}", "language_model"),
    ("language_model", "evaluate --text {0} --json {0}", "language_model"),
]


@pytest.mark.parametrize(("task", "command", "run"), COMMANDS, ids=[" ".join(row[:2]) for row in COMMANDS])
def test_an_output_is_no_input(task, command, run, small_runs, tmp_path, capsys):
    path = tmp_path / "file"
    content = Path(small_runs[run]).read_bytes()
    path.write_bytes(content)
    words = [word.format(path) for word in shlex.split(command)]
    assert import_module(f"tasks.{task}.__main__").main(words) == 2
    assert f"must be different files, got {path} for both" in capsys.readouterr().err
    assert path.read_bytes() == content


def test_an_output_is_no_model(small_runs, tmp_path, capsys):
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"weights")
    words = ["evaluate", "--checkpoint", small_runs["listops"], "--json", str(model)]
    assert import_module("tasks.listops.__main__").main(words) == 2
    assert "would replace a model" in capsys.readouterr().err
    assert model.read_bytes() == b"weights"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("listops evaluate --checkpoint {listops}", "accuracy 0."),
        ("language_model evaluate --checkpoint {language_model}", "perplexity "),
        ("parsing evaluate --checkpoint {language_model} --output {page}", "F1"),
        ("syntax_eval evaluate --count 2 --checkpoint {language_model}", "all"),
    ],
)
def test_results_are_printed_also_where_their_file_cannot_be_written(
    command, told, small_runs, tmp_path, monkeypatch, capsys
):
    def full(self, results):
        raise OSError(28, "No space left on device", "results.json")

    monkeypatch.setattr("tasks.runs.command_options.ResultsConfig.write", full)
    files = small_runs | {"page": tmp_path / "page.html"}
    task, *words = (word.format_map(files) for word in shlex.split(command))
    assert import_module(f"tasks.{task}.__main__").main(words) == 2
    output = capsys.readouterr()
    assert told in output.out
    assert "No space left on device" in output.err
