"""Whatever is wrong with what a user types or names is one line and status 2, and blocks nothing.

A row of a table is a task, a command line, and what the line must name. `{name}` is a file of
`tests/hostile_files.py`; training has the options of a tiny run before those of the row.
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


def rows(task, text):
    """Rows of a table written as `command line -> what is named`."""
    table = []
    for line in text.strip().splitlines():
        command, _, named = line.partition(" ->")
        table.append(pytest.param(task, command.strip(), named.strip(), id=f"{task} {command.strip()}"))
    return table


COMMON = """
train --adam-betas 2 3 -> --adam-betas
train --adam-betas nan 0.9 -> --adam-betas
train --adam-betas 0 1 -> --adam-betas
train --adam-betas 0 -1 -> --adam-betas
train --adam-epsilon nan -> --adam-epsilon
train --adam-epsilon 0 -> --adam-epsilon
train --learning-rate-decay 5 -> --learning-rate-decay
train --learning-rate-decay 1 -> --learning-rate-decay
train --learning-rate-decay nan -> --learning-rate-decay
train --patience -1 -> --patience
train --cell-dropout nan -> --cell-dropout
train --cell-dropout 2 -> --cell-dropout
train --attention-dropout -0.1 -> --attention-dropout
train --occupancy-threshold 2 -> --occupancy-threshold
train --occupancy-threshold nan -> --occupancy-threshold
train --occupancy-threshold -1 -> --occupancy-threshold
train --recompute-every 0 -> --recompute-every
train --recompute-every -1 -> --recompute-every
train --num-slots 0 -> --num-slots
train --num-slots -1 -> --num-slots
train --num-slots 99999999999 ->
train --num-slots 100000000000000000000 ->
train --test-num-slots 0 -> --test-num-slots
train --slot-size 0 -> --slot-size
train --slot-size 99999999999 ->
train --slot-size 3000000 ->
train --slot-size 100000000000000000000 ->
train --embedding-size 99999999999 ->
train --embedding-size 100000000000000000000 ->
train --score magic ->
train --cell magic ->
"""
"""Options of the classifiers."""

TRAINING = """
train --learning-rate nan -> --learning-rate
train --learning-rate 0 -> --learning-rate
train --learning-rate -1 -> --learning-rate
train --gradient-clip nan -> --gradient-clip
train --gradient-clip 0 -> --gradient-clip
train --weight-decay nan -> --weight-decay
train --weight-decay -1 -> --weight-decay
train --input-dropout 2 -> --input-dropout
train --epochs 0 -> --epochs
train --epochs -5 -> --epochs
train --epochs x ->
train --epochs 1.5 ->
train --epochs ->
train --max-minutes nan -> --max-minutes
train --max-minutes -1 -> --max-minutes
train --batch-size 0 -> --batch-size
train --evaluation-batch-size 0 -> --evaluation-batch-size
train --save-every 0 -> --save-every
train --seed -1 -> --seed
train --devices 0 -> --devices
train --devices -1 -> --devices
train --device foo ->
train --accelerator foo ->
train --accelerator cuda ->
train --strategy foo ->
train --precision foo ->
train --backend magic -> magic
train --backend '' ->
train --model foo ->
train --preset '' ->
train --run-dir {under_file} -> {text}
train --run-dir /proc/nowhere/run -> /proc/nowhere
train stray ->
'' -> ''
TRAIN -> 'TRAIN'
--no-such-option ->
"""
"""Options of every run."""

TAUTOLOGY = """
train --learning-rate inf -> --learning-rate
train --seed 99999999999999999999 -> --seed
train --devices 1000000 -> --devices
train --run-dir {text} -> {text}
train --preset huge -> --preset
train --initial-weights {missing} -> {missing}
train --initial-weights {text} -> {text}
train --initial-weights {directory} -> {directory}
train --initial-weights {nan} -> {nan}
train --initial-weights {listops_last} -> {listops_last}
train --initial-weights '' -> .
train --no-such-option 1 ->
fly -> 'fly'
"""

LISTOPS = """
train --max-train-length 0 -> --max-train-length
train --expressions 0 -> --expressions
train --expressions 1 ->
train --expressions 1000000000000000000 -> --expressions must be at most 1000000000
train --validation-size 0 -> --validation-size
train --validation-size 500 -> --validation-size
train --validation-size 270 -> --validation-size
train --validation-size 269 ->
train --data-dir {text} -> {text}
train --data-dir {missing} -> {missing}
train --data-dir {directory} -> {directory}
train --data-dir {listops_long} -> training
train --data-dir {listops_few} -> --validation-size
train --data-dir {listops_empty} -> {listops_empty}
predict ->
predict '' -> empty
predict '[MAX 2' -> [MAX
predict '2 ]' -> position 1
predict '[MAX 2 q ]' -> 'q'
predict 3 --heat-map '' -> --heat-map
predict 3 --heat-map {directory} -> {directory}
predict 3 --heat-map {under_file} -> {text}
predict 3 --num-slots 0 -> --num-slots
predict 3 --num-slots 99999999999 ->
predict 3 --num-slots 100000000000000000000 ->
predict-file ->
predict-file {missing} -> {missing}
predict-file {directory} -> {directory}
predict-file {empty} -> {empty}
predict-file {binary} -> {binary}
predict-file {zeros} -> {zeros}, line 1
predict-file {text} -> {text}, line 1
predict-file {cut_gz} -> {cut_gz}: truncated or damaged
predict-file {text} --batch-size 0 -> --batch-size
predict-file {text} --output {directory} -> {directory}
trace ->
trace '2 ]' -> position 1
trace 3 --num-slots 0 -> --num-slots
trace 3 --json '' -> --json .: is a directory
trace 3 --json {directory} -> {directory}
trace 3 --json {under_file} -> {text}
trace 3 --html '' -> --html .: is a directory
trace 3 --html {under_file} -> {text}
evaluate --checkpoint {listops} --file {empty} -> {empty}
evaluate --checkpoint {listops} --file {binary} -> {binary}
evaluate --checkpoint {listops} --file {zeros} -> {zeros}
evaluate --checkpoint {listops} --file {text} -> {text}
evaluate --checkpoint {listops} --file {label} -> {label}, line 1
evaluate --checkpoint {listops} --file {directory} -> {directory}
evaluate --checkpoint {listops} --file {missing} -> {missing}
evaluate --checkpoint {listops} --file {under_file} -> {under_file}
evaluate --checkpoint {listops} --file {cut_gz} -> {cut_gz}: truncated or damaged
evaluate --checkpoint {listops} --file {no_gz} -> {no_gz}: truncated or damaged
evaluate --checkpoint {listops} --file {cut_bz2} -> {cut_bz2}: truncated or damaged
evaluate --checkpoint {listops} --file {cut_xz} -> {cut_xz}: truncated or damaged
evaluate --checkpoint {listops} --file '' ->
evaluate --checkpoint {listops} --file /dev/null -> /dev/null
evaluate --checkpoint {listops} --test magic ->
evaluate --checkpoint {listops} --size 0 -> --size
evaluate --checkpoint {listops} --seed -1 -> --seed
evaluate --checkpoint {listops} --num-slots 0 -> --num-slots
evaluate --checkpoint {listops} --num-slots 99999999999 ->
evaluate --checkpoint {listops} --occupancy-threshold 2 -> --occupancy-threshold
evaluate --checkpoint {listops} --occupancy-threshold nan -> --occupancy-threshold
evaluate --checkpoint {listops} --batch-size 0 -> --batch-size
evaluate --checkpoint {listops} --json {directory} -> {directory}
evaluate --checkpoint {listops} --predictions {directory} -> --predictions {directory}
evaluate --checkpoint {listops} --json {under_file} -> {text}
evaluate --checkpoint {listops} --json '' -> --json .: is a directory
generate ->
generate '' -> OUTPUT .: is a directory
generate {directory} --size 3 -> {directory}
generate {under_file} --size 3 -> {text}
generate {missing}/a --size 3 -> {missing}
generate a --size 0 -> --size
generate a --size 1000000000000000000 -> --size must be at most 1000000000
generate a --size 3 --seed -1 -> --seed
"""

LOGIC = """
train --generated 5 -> validation
train --generated 1 -> training
train --generated -1 -> --generated
train --generated 1000000000000000000 -> --generated must be at most 1000000000
train --data-dir {directory} -> {directory}
train --generated 0 --data-dir {directory} -> {directory}
train --generated 0 --data-dir {missing} -> {missing}
train --generated 0 --data-dir {text} -> {text}
train --generated 0 --data-dir {logic_empty} -> training
train --seeds 0 -> --seeds
train --heads 0 -> --heads
train --heads 3 --model transformer -> --heads
train --layers 0 -> --layers
train --num-layers 0 --model lstm -> --num-layers
train --hidden-dropout 1.5 --model lstm -> --hidden-dropout
train --weight-dropout -1 --model onlstm -> --weight-dropout
train --chunk-size 3 --model onlstm -> --chunk-size
train --backend magic --model onlstm -> magic
train --slot-size 99999999992 --model lstm ->
train --slot-size 99999999992 --model onlstm ->
train --slot-size 99999999992 --model transformer ->
train --split D ->
train --initial-weights {listops} -> {listops}
train --initial-weights {logic} --model lstm -> {logic}
predict ->
predict a ->
predict a b c ->
predict '' '' ->
predict a 'b b' ->
predict a '( b' -> unmatched
predict a x -> 'x'
predict a b --heat-map '' -> --heat-map
predict a b --heat-map {directory} -> {directory}
predict a b --num-slots 0 -> --num-slots
predict a b --num-slots 99999999999 ->
trace a ->
trace a '( b' -> unmatched
trace a b --json {directory} -> {directory}
evaluate --checkpoint {logic} --file {empty} -> {empty}
evaluate --checkpoint {logic} --file {binary} -> {binary}
evaluate --checkpoint {logic} --file {text} -> {text}
evaluate --checkpoint {logic} --file {relation} -> {relation}, line 1
evaluate --checkpoint {logic} --file {one_column} -> {one_column}, line 1
evaluate --checkpoint {logic} --file {directory} -> {directory}
evaluate --checkpoint {logic} --file {cut_xz} -> {cut_xz}: truncated or damaged
evaluate --checkpoint {logic} --file {missing} -> {missing}
evaluate --checkpoint {logic} --file /dev/null -> /dev/null
evaluate --checkpoint {logic} --test longer --size 0 -> --size
evaluate --checkpoint {logic} --test longer --size 1000000000000000000 -> --size must be at most 1000000000
evaluate --checkpoint {logic} --test longer --seed -1 -> seed
evaluate --checkpoint {logic} --num-slots 99999999999 ->
evaluate --checkpoint {logic} --occupancy-threshold 2 -> --occupancy-threshold
evaluate --checkpoint {logic} --batch-size 0 -> --batch-size
evaluate --checkpoint {logic} --json '' -> --json .: is a directory
evaluate --checkpoint {logic} --json {directory} -> {directory}
evaluate --checkpoint {logic} --predictions {directory} -> --predictions {directory}
stats --split D ->
stats --generated -1 ->
stats --generated 1000000000000000000 -> --generated must be at most 1000000000
stats --generated 5 --seed -1 -> seed
stats --seed 7 -> --seed 7 has no effect without --generated
stats --data-dir {directory} --generated 5 -> --generated 5 has no effect with --data-dir
stats --data-dir {missing} -> {missing}
stats --data-dir {directory} -> {directory}
stats --data-dir {logic_empty} -> {logic_empty}: no pairs
generate ->
generate {text} --size 3 -> {text}
generate {under_file} --size 3 -> {text}
generate new --size 0 -> at least 1, got 0
generate new --size 1000000000000000000 -> --size must be at most 1000000000
generate new --size 3 --seed -1 -> seed
report ->
report {missing} -> {missing}
report {directory} -> {directory}
report {text} -> {text}
report {listops_run} -> {listops_run}
report {logic_run} --output {directory} -> {directory}
report {logic_run} --output {under_file} -> {text}
"""

SST = """
train --generated 5 ->
train --generated -1 -> --generated
train --generated 1000000000000000000 -> --generated must be at most 1000000000
train --classes 3 ->
train --average-decay 1 -> --average-decay
train --average-decay nan -> --average-decay
train --model mean --bidirectional -> --bidirectional
train --model onlstm --chunk-size 3 -> --chunk-size
train --fine-tune -> --fine-tune
train --encoder-learning-rate 0 -> --encoder-learning-rate
train --vectors none none -> --vectors
train --vectors {missing} -> {missing}
train --vectors {directory} -> {directory}
train --vectors {empty} -> {empty}
train --vectors {text} -> {text}
train --vectors {binary} -> {binary}
train --vectors {no_zip} ->
train --vectors {cut_xz} -> {cut_xz}: truncated or damaged
train --encoder {directory} -> {directory}
train --encoder {text} -> {text}
train --data-dir {missing} -> {missing}
train --data-dir {text} -> {text}
train --data-dir {directory} -> {directory}
train --data-dir {text_short} -> {text_short}
evaluate --checkpoint {sst} --file {missing} -> {missing}
evaluate --checkpoint {sst} --file {directory} -> {directory}
evaluate --checkpoint {sst} --file {empty} -> {empty}
evaluate --checkpoint {sst} --file {cut_bz2} -> {cut_bz2}: truncated or damaged
evaluate --checkpoint {sst} --file {binary} -> {binary}
evaluate --checkpoint {sst} --file {text} -> {text}, line 1
evaluate --checkpoint {sst} --data-dir {missing} -> {missing}
evaluate --checkpoint {sst} --json {directory} -> {directory}
evaluate --checkpoint {sst} --predictions {directory} -> --predictions {directory}
predict good --checkpoint {sst} --heat-map {directory} -> {directory}
predict '' --checkpoint {sst} -> sentence
trace '' --checkpoint {sst} -> sentence
trace good --checkpoint {sst} --json {directory} -> {directory}
stats --data-dir {missing} -> {missing}
stats --generated 3 ->
"""

LANGUAGE_MODEL = """
train --sentences 0 -> --sentences
train --sentences 10 -> --sentences
train --sentences -1 -> --sentences
train --sentences 1000000000000000000 -> --sentences must be at most 1000000000
train --hidden-size 7 -> --hidden-size
train --hidden-size 99999999992 ->
train --embedding-size 100000000000000000000 ->
train --num-layers 0 -> --num-layers
train --num-layers 99999999999 ->
train --chunk-size 0 -> --chunk-size
train --bptt 0 -> --bptt
train --initial-weights {logic} -> {logic}
train --weight-dropout nan -> --weight-dropout
train --activation-regularization nan -> --activation-regularization
train --data-dir {missing} -> {missing}
train --data-dir {text} -> {text}
train --data-dir {directory} -> {directory}
train --data-dir {text_empty} -> {text_empty}
train --data-dir {text_binary} -> {text_binary}
train --data-dir {text_lines} -> {text_lines}
train --data-dir {text_cut} -> {text_cut}/valid.txt.gz: truncated or damaged
train --data-dir {text_short} ->
evaluate --checkpoint {language_model} --text {missing} -> {missing}
evaluate --checkpoint {language_model} --text {directory} -> {directory}
evaluate --checkpoint {language_model} --text {empty} -> {empty}
evaluate --checkpoint {language_model} --text {cut_gz} -> {cut_gz}: truncated or damaged
evaluate --checkpoint {language_model} --text {binary} -> {binary}
evaluate --checkpoint {language_model} --text {text} -> {text}, line 1
evaluate --checkpoint {language_model} --data-dir {missing} -> {missing}
evaluate --checkpoint {language_model} --columns 0 -> --columns
evaluate --checkpoint {language_model} --json '' -> --json .: is a directory
evaluate --checkpoint {language_model} --json {directory} -> {directory}
evaluate --checkpoint {language_model} --predictions {directory} -> --predictions {directory}
generate --checkpoint {listops} -> {listops}
generate --checkpoint {language_model} --count 0 -> --count
generate --checkpoint {language_model} --count 1000000000000000000 -> --count must be at most 1000000000
generate --checkpoint {language_model} --max-words 0 -> --max-words
generate --checkpoint {language_model} --seed -1 -> --seed
generate --checkpoint {language_model} --temperature nan -> --temperature
generate --checkpoint {language_model} --temperature inf -> --temperature
generate --checkpoint {language_model} --start zebra -> 'zebra'
generate --checkpoint {language_model} --output {directory} -> {directory}
"""

PARSING = """
parse ->
parse '' --checkpoint {language_model} -> words
parse 'the %' --checkpoint {language_model} -> '%'
parse 'the cat' --checkpoint {language_model} --layer 0 -> --layer
parse 'the cat' --checkpoint {language_model} --layer 3 -> --layer
parse 'the cat' --checkpoint {language_model} --temperature nan -> --temperature
parse 'the cat' --checkpoint {language_model} --temperature 0 -> --temperature
parse the --checkpoint {language_model} --decoding prpn --temperature 2 -> no effect with --decoding prpn
parse 'the' --checkpoint {language_model} --plot '' -> --plot .: is a directory
parse 'the' --checkpoint {language_model} --plot {directory} -> {directory}
trees ->
trees {missing} --checkpoint {language_model} -> {missing}
trees {empty} --checkpoint {language_model} -> {empty}
trees {binary} --checkpoint {language_model} -> {binary}
trees {cut_gz} --checkpoint {language_model} -> {cut_gz}: truncated or damaged
trees {text} --checkpoint {language_model} -> {text}, line 1
trees {text} --checkpoint {listops} -> {listops}
trees {text} --checkpoint {language_model} --temperature 2 -> no effect with --decoding prpn
trees {text} --checkpoint {language_model} --layer 0 -> --layer
trees {text} --checkpoint {language_model} --layer 3 -> --layer
trees {text} --checkpoint {language_model} --threads 0 -> --threads
trees {text} --checkpoint {language_model} --output {directory} -> {directory}
trees {text} --checkpoint {language_model} --output {under_file} -> {text}
score {missing} --treebank {one_mrg} -> {missing}
score {binary} --treebank {one_mrg} -> {binary}
score {cut_bz2} --treebank {one_mrg} -> {cut_bz2}: truncated or damaged
score {empty} --treebank {one_mrg} -> {empty}
score {text} --treebank {one_mrg} -> {text}, line 1
score {open_mrg} --treebank {one_mrg} -> {open_mrg}, line 1
score {text} --treebank {text} -> {text}
trace '' --checkpoint {language_model} -> words
trace 'the cat' --checkpoint {language_model} --layer 3 -> --layer
trace 'the cat' --checkpoint {language_model} --temperature nan -> --temperature
trace 'the' --checkpoint {language_model} --json {directory} -> {directory}
evaluate --checkpoint {language_model} --treebank {missing} -> {missing}
evaluate --checkpoint {language_model} --treebank {directory} -> {directory}
evaluate --checkpoint {language_model} --treebank {empty} -> {empty}
evaluate --checkpoint {language_model} --treebank {binary} -> {binary}
evaluate --checkpoint {language_model} --treebank {open_mrg} -> {open_mrg}, line 1
evaluate --checkpoint {language_model} --treebank {words_mrg} -> {words_mrg}, line 1
evaluate --checkpoint {language_model} --treebank {no_zip} -> {no_zip}
evaluate --checkpoint {language_model} --treebank {cut_xz} -> {cut_xz}: truncated or damaged
evaluate --checkpoint {language_model} --treebank {lzma_zip} -> {lzma_zip}
evaluate --checkpoint {language_model} --treebank {bomb_zip} -> {bomb_zip}
evaluate --checkpoint {language_model} --max-words 0 -> --max-words
evaluate --checkpoint {language_model} --treebank {one_mrg} --json '' -> --json .: is a directory
evaluate --checkpoint {language_model} --treebank {one_mrg} --json {directory} -> {directory}
evaluate --checkpoint {language_model} --treebank {one_mrg} --output '' -> --output .: is a directory
evaluate --checkpoint {language_model} --treebank {one_mrg} --output {directory} -> {directory}
evaluate --checkpoint {language_model} --treebank {one_mrg} --output {under_file} -> {text}
"""

SYNTAX_EVAL = """
score ->
score '' --checkpoint {language_model} -> sentence 1
score 'the zebra' --checkpoint {language_model} -> 'zebra'
evaluate --checkpoint {language_model} {language_model} -> more than once
evaluate --checkpoint {language_model} --count 0 -> --count
evaluate --checkpoint {language_model} --count 1000000000000000000 -> --count must be at most 1000000000
evaluate --checkpoint {language_model} --limit -1 -> --limit
evaluate --checkpoint {language_model} --seed -1 -> --seed
evaluate --checkpoint {language_model} --unknown magic ->
evaluate --checkpoint {language_model} --pairs {missing} -> {missing}
evaluate --checkpoint {language_model} --pairs {directory} -> {directory}
evaluate --checkpoint {language_model} --pairs {empty} -> {empty}
evaluate --checkpoint {language_model} --pairs {binary} -> {binary}
evaluate --checkpoint {language_model} --pairs {text} -> {text}, line 1
evaluate --checkpoint {language_model} --pairs {list_jsonl} -> {list_jsonl}, line 1
evaluate --checkpoint {language_model} --pairs {number_jsonl} -> {number_jsonl}, line 1
evaluate --checkpoint {language_model} --pairs {digits_jsonl} -> {digits_jsonl}, line 1
evaluate --checkpoint {language_model} --pairs {deep_jsonl} -> {deep_jsonl}, line 1
evaluate --checkpoint {language_model} --pairs {surrogate_jsonl} ->
evaluate --checkpoint {language_model} --pairs {percent_jsonl} ->
evaluate --checkpoint {language_model} --pairs {cut_jsonl_gz} -> {cut_jsonl_gz}: truncated or damaged
evaluate --checkpoint {language_model} --pairs {no_jsonl_gz} -> {no_jsonl_gz}: truncated or damaged
evaluate --checkpoint {language_model} --count 1 --json '' -> --json .: is a directory
evaluate --checkpoint {language_model} --count 1 --json {directory} -> {directory}
evaluate --checkpoint {language_model} --count 1 --output {directory} -> {directory}
"""

BENCHMARK = """
compare --quick --config -> --config
compare --quick --config magic ->
compare --quick --repeats 0 -> --repeats
compare --quick --repeats 9 -> --repeats 9 has no effect with --quick
compare --config long --max-length 50 -> --max-length 50 has no effect without --config listops
compare --quick --max-length 50 -> --max-length 50 has no effect with --quick
compare --quick --single 5 --batches 9 -> --batches 9 has no effect with --single
compare --quick --config logic --single 1000000000000000000 -> --single must be between 4 and 1000000
compare --quick --checkpoint {listops} --score additive -> --score additive has no effect with --checkpoint
compare --quick --threads 0 -> --threads
compare --quick --device foo -> --device
compare --quick --device '' -> --device
compare --quick --seed -1 -> --seed
compare --quick --seed 99999999999999999999 -> --seed
compare --quick --batches 0 -> --batches
compare --quick --num-slots 99999999999 --no-memory ->
compare --quick --occupancy-threshold nan -> --occupancy-threshold
compare --quick --json '' -> .: is a directory
compare --quick --json {directory} -> {directory}
compare --quick --json {missing}/a -> {missing}
compare --quick --released-code {missing} -> {missing}
compare --quick --checkpoint {logic} -> {logic}
onlstm --sizes -> --sizes
onlstm --sizes magic -> 'magic'
onlstm --sizes 1x1x1x99999999990 ->
onlstm --sizes 5x2x6x20 --chunk-size 3 -> chunk_size
onlstm --sizes 5x2x6x20 --chunk-size 0 -> chunk
onlstm --quick --json {missing}/a -> {missing}
onlstm --quick --json {directory} -> {directory}
onlstm --quick --released-code {directory} -> {directory}
logic --models ->
logic --models magic ->
logic --pairs 1000000000000000000 -> --pairs must be at most 1000000000
logic --quick --batches 0 -> --batches
logic --quick --batch-size 0 -> --batch-size
logic --slot-size 7 -> --slot-size
logic --quick --device foo -> --device
logic --quick --json {missing}/a -> {missing}
scaling --quick --axes -> --axes
scaling --quick --nesting 0 -> --nesting
scaling --quick --backend magic -> --backend
scaling --quick --directory {text} -> {text}
scaling --quick --directory {under_file} -> {text}
"""

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
        *rows("listops", COMMON),
        *rows("listops", TRAINING),
        *(row for task in TINY for row in rows(task, TAUTOLOGY)),
        *rows("listops", LISTOPS),
        *rows("logic", LOGIC),
        *rows("sst", SST),
        *rows("language_model", LANGUAGE_MODEL),
        *rows("parsing", PARSING),
        *rows("syntax_eval", SYNTAX_EVAL),
        *rows("benchmark", BENCHMARK),
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
    except OSError:
        return  # it needs a right that even root may lack
    assert main([*words, str(tmp_path / "null")]) == 0
    assert (tmp_path / "null").is_char_device()
