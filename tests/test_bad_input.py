"""Whatever is wrong with what a user types or names is one line and status 2, and blocks nothing.

The command lines are in `tests/bad_input`, as `command line -> what the error must name`: a file for each
task, and files for the options of the classifiers, of training, and of every task that trains. `{name}` is a
file of `tests/hostile_files.py`; training has the options of a tiny run before those of the line.
"""

import fcntl
import importlib
import json
import os
import resource
import shlex
import shutil
import signal
import stat
from pathlib import Path

import pytest

from tasks.runs.run_directory import RunDirectory
from tests.commands import TINY, errors_in
from tests.hostile_files import make_damaged

SECONDS = 60
TABLES = Path(__file__).with_name("bad_input")


class Late(BaseException):
    """Nothing in the product catches it."""


@pytest.fixture(scope="module")
def files(small_runs, tmp_path_factory):
    return small_runs | make_damaged(tmp_path_factory.mktemp("damaged"), Path(small_runs["listops"]))


@pytest.fixture(autouse=True)
def _no_hang():
    """Nothing hangs."""

    def late(number, frame):
        raise Late(f"after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch, tmp_path):
    """What is refused starts no other process, and leaves nothing where it runs."""
    launcher = "lightning_fabric.strategies.launchers.subprocess_script._SubprocessScriptLauncher"

    def start(self):
        raise AssertionError("other processes were started")

    monkeypatch.setattr(f"{launcher}._call_children_scripts", start)
    monkeypatch.setattr("tasks.parsing.treebank.MAX_BYTES", 2**20)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def refused(capsys, task, words, named=""):
    """Run a command that must be refused: status 2, nothing but a line that names the cause."""
    capsys.readouterr()
    main = importlib.import_module(f"tasks.{task}.__main__").main
    try:
        status = main([str(word) for word in words])
        one_line = True
    except SystemExit as exit_:  # the parser of the options shows a box
        status, one_line = exit_.code, False
    error = errors_in(capsys.readouterr().err)
    assert status == 2, error
    assert error.count("\n") == 1 or not one_line, error
    assert "Traceback" not in error
    assert named in error or not one_line, error
    assert len(error) < 2_000 or not one_line
    return error


def check(capsys, files, task, line, named):
    words = [word.format_map(files) for word in shlex.split(line)]
    if words[:1] == ["train"]:
        words = ["train", *TINY[task].split(), "--run-dir", "run", *words[1:]]
    refused(capsys, task, words, named.format_map(files))
    RunDirectory(Path("run")).check_free()  # nothing blocks the next try
    assert not list(Path().rglob(".*part*")), "half a file was left"


def rows(task, name):
    """The lines of a file of tests/bad_input, for a task."""
    table = []
    for line in (TABLES / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        command, _, named = line.partition(" ->")
        table.append(pytest.param(task, command.strip(), named.strip(), id=f"{task} {command.strip()}"))
    return table


BAD_CHECKPOINTS = (
    *("directory", "empty", "text", "binary", "zeros", "cut", "cut_header", "huge_header", "missing"),
    *("under_file", "listops_last", "listops_config", "nan", "/dev/null", ""),
)
READERS = {
    "listops": "predict 3 --checkpoint",
    "logic": "predict a b --checkpoint",
    "sst": "predict good --checkpoint",
    "language_model": "evaluate --checkpoint",
    "parsing": "parse the --checkpoint",
    "syntax_eval": "score the --checkpoint",
    "benchmark": "compare --quick --no-memory --checkpoint",
}
"""A subcommand of each task that reads a checkpoint."""
STRANGERS = {
    "listops": ("logic", "language_model"),
    "logic": ("listops", "language_model"),
    "sst": ("listops", "logic", "language_model"),
    **dict.fromkeys(("language_model", "parsing", "syntax_eval"), ("listops", "logic")),
    "benchmark": ("logic", "language_model"),
}
"""Checkpoints of other tasks."""


def checkpoints():
    for task, command in READERS.items():
        for name in (*BAD_CHECKPOINTS, *STRANGERS[task]):
            path = f"{{{name}}}" if name.isidentifier() else f"'{name}'"
            named = path.strip("'") or ".: "
            yield pytest.param(task, f"{command} {path}", named, id=f"{task} reads {name!r}")


@pytest.mark.parametrize(
    ("task", "line", "named"),
    [
        *rows("listops", "classifiers"),
        *rows("listops", "training"),
        *(row for task in TINY for row in rows(task, "every_task")),
        *(row for task in (*READERS, "predictions") for row in rows(task, task)),
        *checkpoints(),
    ],
)
def test_bad_input_is_one_line(files, capsys, task, line, named):
    check(capsys, files, task, line, named)


LONG_INPUT = {
    "listops, 1,100 deep": ("listops", ["predict", "[MAX " * 1100 + "1" + " ]" * 1100]),
    "listops, 1,000 arguments": ("listops", ["predict", f"[MAX {'1 ' * 1000}]"]),
    "listops, a word of 5,000 signs": ("listops", ["predict", "%" * 5000]),
    "listops, a lone surrogate": ("listops", ["predict", "[MAX \ud800 ]"]),
    "listops, no UTF-8": ("listops", ["predict", "[MAX \udcff ]"]),
    "logic, a word of 5,000 signs": ("logic", ["predict", "%" * 5000, "a"]),
    "logic, a lone surrogate": ("logic", ["predict", "\ud800", "a"]),
    "parsing, 1,000 words": ("parsing", ["parse", "the " * 1000, "--checkpoint", "{language_model}"]),
    "parsing, a lone surrogate": ("parsing", ["parse", "the \ud800", "--checkpoint", "{language_model}"]),
    "syntax_eval, 5,000 signs": ("syntax_eval", ["score", "%" * 5000, "--checkpoint", "{language_model}"]),
    "syntax_eval, a surrogate": ("syntax_eval", ["score", "\ud800", "--checkpoint", "{language_model}"]),
}


DEEP = pytest.param(
    "logic",
    ["predict", "( not " * 1100 + "a" + " )" * 1100, "b"],
    marks=pytest.mark.slow,
    id="logic, 1,100 deep",
)


@pytest.mark.parametrize(
    ("task", "words"), [*(pytest.param(*words, id=name) for name, words in LONG_INPUT.items()), DEEP]
)
def test_long_and_strange_input(files, capsys, task, words):
    words = [word.format_map(files) for word in words]
    main = importlib.import_module(f"tasks.{task}.__main__").main
    if main(words):  # what is long is not wrong: it may be answered
        refused(capsys, task, words)


BAD_CONFIGURATIONS = {
    **{text[:20]: text for text in ("[]", "3", "null", '"x"', "{", "", "[" * 100_000, '{"a":' * 100_000)},
    "binary": b"\x80\xff\x00",
    "a number of 5,000 digits": '{"seed": ' + "9" * 5000 + "}",
    **{
        f"{name} = {value!r}": {name: value}
        for name, value in (
            *(("slot_size", value) for value in ("6", 6.5, None, True, [6], {"a": 6}, 10**20, -1)),
            *(("adam_betas", value) for value in (3, [0.1], ["a", "b"], [0.1, 0.2, 0.3], {})),
            *(("learning_rate", value) for value in ("fast", float("nan"), None, [])),
            *(("model", value) for value in ("magic", 3, None)),
            *(("precision", value) for value in ("magic", 3, None)),
            *(("data_dir", value) for value in (["x"], 3, "\0", "\ud800", "/nowhere")),
            *(("resume", "yes"), ("run_dir", 3), ("backend", 3), ("backend", "\ud800"), ("magic", 1)),
        )
    },
}


def test_a_saved_directory_that_no_file_system_has(files, capsys, tmp_path):
    config = json.loads(Path(files["language_model_config"]).read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"data_dir": "\ud800"}))
    refused(capsys, "language_model", ["train", "--resume", "--run-dir", tmp_path], "config.json")


@pytest.mark.parametrize("content", BAD_CONFIGURATIONS.values(), ids=BAD_CONFIGURATIONS)
def test_configurations_that_are_none(files, capsys, tmp_path, content):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(files["listops_last"], run)
    causes = ["config.json"]
    if isinstance(content, dict):  # the other options are right, and the run could be resumed with them
        causes += [f"--{name.replace('_', '-')} " for name in content] + ["/nowhere: "]
        content = json.dumps(json.loads(Path(files["listops_config"]).read_text()) | content)
    (run / "config.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    error = refused(capsys, "listops", ["train", "--resume", "--run-dir", run, "--epochs", "2"])
    assert any(cause in error for cause in causes), error


ON = ["--checkpoint", "{language_model}"]
WRITERS = {
    "logic evaluate": ["logic", "evaluate", "--checkpoint", "{logic}", "--predictions"],
    "listops predict": ["listops", "predict", "3", "--heat-map"],
    "listops generate": ["listops", "generate", "--size", "40"],
    "language_model evaluate": ["language_model", "evaluate", *ON, "--json"],
    "syntax_eval evaluate": ["syntax_eval", "evaluate", *ON, "--count", "2", "--output"],
    "benchmark onlstm": ["benchmark", "onlstm", "--quick", "--json"],
}
"""A command line to which the name of a file is added."""


@pytest.fixture(params=WRITERS)
def writer(files, request):
    task, *words = WRITERS[request.param]
    main = importlib.import_module(f"tasks.{task}.__main__").main
    return task, [word.format_map(files) for word in words], main


def test_a_full_disk_names_the_file_and_keeps_what_was_there(tmp_path, capsys, monkeypatch, writer):
    task, words, _ = writer
    # Git writes too, and would die and leave its lock.
    monkeypatch.setattr("tasks.benchmark.measure.commit", lambda: None)
    target = tmp_path / "result.html"
    target.write_text("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))
    try:
        refused(capsys, task, [*words, target], str(target))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert target.read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"here", target.name}


def test_what_is_no_file_is_written_to_and_stays_what_it_is(tmp_path, writer):
    _, words, main = writer
    link, aim, pipe = tmp_path / "link.png", tmp_path / "aim.png", tmp_path / "pipe.png"
    link.symlink_to(aim.name)
    assert main([*words, str(link)]) == 0
    assert link.is_symlink()
    assert aim.stat().st_size > 16
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # on Linux
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 2**20)
    try:
        assert main([*words, str(pipe)]) == 0
        assert len(os.read(reader, 2**20)) > 16
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    try:  # another /dev/null, so that a mistake does not replace the system's
        os.mknod(tmp_path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (tmp_path / "null").write_bytes(b"")
    except OSError:
        return  # it needs a right that even root may lack, and a file system that is not mounted with nodev
    assert main([*words, str(tmp_path / "null")]) == 0
    assert (tmp_path / "null").is_char_device()
