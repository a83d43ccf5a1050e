"""Fuzzing: files of runs and command lines with random errors.

Whatever the error, there is no traceback, no hang, and no success with NaN in the output. The environment
variable `MUTATIONS` sets the number of examples of each kind; if it is set, every test run draws new ones.
"""

import contextlib
import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from tasks.language_model.corpus import read_sentences
from tasks.listops.data import read_tsv
from tasks.logic.data import read_file
from tasks.parsing.treebank import read_treebank
from tasks.runs.errors import UserError
from tasks.sst.treebank import read_trees
from tasks.sst.vector_files import find_vector_file, read_blocks
from tasks.syntax_eval.pairs import read_pairs
from tests.commands import MAIN, TINY, errors_in
from tests.hostile_files import read

LONG = "MUTATIONS" in os.environ
mutations = settings(
    max_examples=int(os.environ.get("MUTATIONS", "15")),
    derandomize=not LONG,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

WRONG = (
    *(None, True, -1, 0, 3, 2**63, 10**20, 10**400, 0.5, -0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "\ud800", "\0", "%" * 50, [], [0.5], [1, 2, 3], {}, {"a": 1}, [[[]]]),
)
"""Values for what has another type, or another range."""
ENDS_SOON = ["--epochs", "1", "--max-minutes", "0.001", "--devices", "1"]
COUNTS = {"expressions", "sentences", "generated", "size", "count", "seeds", "epochs", "devices", "threads"}
"""Options of which more are more work, and no mistake."""


def survives(task, words):
    """Run a command; it ends well, without NaN, or with status 2 and a line."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    error = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            status, one_line = MAIN[task](words), True
        except SystemExit as exit_:  # the parser of the options shows a box
            status, one_line = exit_.code, False
    said, complained = (stream.buffer.getvalue().decode() for stream in (out, error))
    complained = errors_in(complained)
    assert status in (0, 2), complained
    assert "Traceback" not in complained
    if status == 2:
        assert complained.count("\n") == 1 or not one_line, complained
        assert len(complained) < 5_000
    else:
        assert not re.search(r"\bnan\b", said, re.IGNORECASE), said


def damaged(content, edits):
    """Bytes with some replaced, removed or put in."""
    content = bytearray(content)
    for kind, place, value in edits:
        place %= len(content) + 1
        if kind == "cut":
            del content[place:]
        elif kind == "remove":
            del content[place : place + 1 + value % 8]
        elif kind == "insert":
            content[place:place] = bytes([value])
        elif place < len(content):
            content[place] = value
    return bytes(content)


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "remove", "insert", "replace", "replace"]),
        # Half of them in the header, where a byte means more.
        st.one_of(st.integers(0, 400), st.integers(0, 10**6)),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=3,
)


@pytest.fixture(scope="module")
def run_copy(small_runs, tmp_path_factory):
    """Makes a fresh copy of the run of a task, always in the same place."""
    place = tmp_path_factory.mktemp("mutated")

    def copy(task):
        shutil.rmtree(place / task, ignore_errors=True)
        shutil.copytree(small_runs[f"{task}_run"], place / task)
        return place / task

    return copy


@mutations
@given(data=st.data(), task=st.sampled_from(sorted(MAIN)), value=st.sampled_from(WRONG))
def test_options_of_a_saved_run(run_copy, data, task, value):
    run = run_copy(task)
    config = json.loads((run / "config.json").read_text())
    name = data.draw(st.sampled_from(sorted(config.keys() - COUNTS)))
    (run / "config.json").write_text(json.dumps(config | {name: value}))
    survives(task, ["train", "--resume", "--run-dir", str(run), *ENDS_SOON])


@mutations
@given(
    task=st.sampled_from(sorted(MAIN)),
    name=st.sampled_from(["config.json", "record.json", "metrics.jsonl", "results.json", "last.safetensors"]),
    edits=EDITS,
    report=st.booleans(),
)
def test_bytes_of_a_run(run_copy, task, name, edits, report):
    run = run_copy(task)
    (run / name).write_bytes(damaged((run / name).read_bytes(), edits))
    if LONG and not report:  # to make it again takes a second, and reads the metrics
        (run / "report.html").unlink()
    survives(task, ["train", "--resume", "--run-dir", str(run), *ENDS_SOON])


READERS = {
    "listops": ["predict", "[MAX 2 9 ]"],
    "logic": ["predict", "( a ( or b ) )", "( not c )"],
    "sst": ["predict", "not good"],
    "language_model": ["evaluate"],
}


@mutations
@given(task=st.sampled_from(sorted(MAIN)), edits=EDITS)
def test_bytes_of_a_checkpoint(run_copy, task, edits):
    best = run_copy(task) / "best.safetensors"
    best.write_bytes(damaged(best.read_bytes(), edits))
    survives(task, [*READERS[task], "--checkpoint", str(best)])


@mutations
@given(data=st.data(), task=st.sampled_from(sorted(MAIN)), value=st.sampled_from(WRONG))
def test_header_of_a_checkpoint(run_copy, data, task, value):
    best = run_copy(task) / "best.safetensors"
    tensors, text = read(best)
    header = json.loads(text)
    name = data.draw(st.sampled_from(sorted(header.keys() - COUNTS)))
    best.write_bytes(save(tensors, {"json": json.dumps(header | {name: value})}))
    survives(task, [*READERS[task], "--checkpoint", str(best)])


@mutations
@given(data=st.data(), task=st.sampled_from(sorted(MAIN)), value=st.sampled_from(WRONG))
def test_state_of_a_run(run_copy, data, task, value):
    last = run_copy(task) / "last.safetensors"
    tensors, text = read(last)
    state = json.loads(text)
    container, key = data.draw(st.sampled_from(list(places(state))))
    container[key] = value
    last.write_bytes(save(tensors, {"json": json.dumps(state)}))
    survives(task, ["train", "--resume", "--run-dir", str(last.parent), *ENDS_SOON])


def places(value):
    """Everything inside a JSON value: what holds it, and where."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from places(item)


WORDS = st.sampled_from([str(value) for value in WRONG if not isinstance(value, str) or "\0" not in value])


@mutations
@given(data=st.data(), task=st.sampled_from(sorted(MAIN)), value=WORDS, read_only=st.booleans())
def test_command_lines(small_runs, tmp_path_factory, data, task, value, read_only):
    options = (
        json.loads(Path(small_runs[f"{task}_config"]).read_text()).keys() - COUNTS - {"run_dir", "resume"}
    )
    directory = tmp_path_factory.mktemp("run")
    words = ["train", *TINY[task].split(), "--run-dir", str(directory / "run"), *ENDS_SOON]
    if read_only:
        words = [*READERS[task], "--checkpoint", small_runs[task]]
        options = {"num_slots", "checkpoint", "seed", "columns", "text", "file", "preset"}
    option = f"--{data.draw(st.sampled_from(sorted(options))).replace('_', '-')}"
    place = data.draw(st.integers(1, len(words)))
    changed = [[*words, option, value], [*words[:place], value, *words[place:]]]
    survives(task, data.draw(st.sampled_from(changed)))


DATA_FILES = {
    "listops.tsv": (read_tsv, "9\t( ( ( [MAX 2 ) 9 ) ] )\n5\t[SM 7 8 ]\n"),
    "logic": (read_file, "<\ta\t( a ( or b ) )\n^\t( not c )\tc\n"),
    "sst.txt": (read_trees, "(3 (2 It) (4 (2 's) (4 good)))\n(1 (2 so) (1 bad))\n"),
    "words.mrg": (read_treebank, "( (S (NP-SBJ (DT The) (NN cat))\n (VP (VBD sat)) (. .)) )\n"),
    "pairs.jsonl": (read_pairs, '{"case": "a", "good": "it is", "bad": "it are"}\n'),
    "pairs.pickle": (read_pairs, "(dp0\nS'a'\np1\n(lp2\n(S'it is'\np3\nS'it are'\np4\ntp5\nas."),
    "vectors.txt": (
        lambda path: list(read_blocks(find_vector_file(str(path)))),
        "the 0.1 -2e-3 3\n. . 1 2 3\n",
    ),
    "train.txt": (read_sentences, "the cat sat\n\na <unk>\n"),
}
"""What reads a file of data, and a small one."""


@mutations
@given(name=st.sampled_from(sorted(DATA_FILES)), edits=EDITS)
def test_bytes_of_a_data_file(tmp_path_factory, name, edits):
    reader, content = DATA_FILES[name]
    path = tmp_path_factory.mktemp("data") / name
    path.write_bytes(content.encode())
    reader(path)
    path.write_bytes(damaged(content.encode(), edits))
    try:
        reader(path)
    except UserError as error:
        message = str(error)
        assert message.startswith(str(path)), message
        assert "\n" not in message
        assert len(message) < len(str(path)) + 400
