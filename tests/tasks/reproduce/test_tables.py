"""Every table is made of options that its tasks have, and of published numbers in its own columns."""

import importlib
from pathlib import Path

import pytest

from tasks.parsing.evaluation import LABELS
from tasks.reproduce.__main__ import main
from tasks.reproduce.commands import TABLES
from tasks.reproduce.config import DEMO_MINUTES, ReproduceConfig, runs_of, warn_of_unused_data
from tasks.reproduce.results import collect
from tasks.reproduce.runs import Kind
from tasks.reproduce.table import find
from tasks.runs.command_line import parse
from tasks.runs.files import read_json
from tasks.syntax_eval.evaluation import Key, Tally
from tasks.syntax_eval.paper_table import PAPER_ROWS
from tasks.syntax_eval.report import lines_of
from tests.commands import MAIN, refusal

DATA = {"text_data": Path("text"), "treebank": Path("wsj.zip"), "pairs": Path("pairs.jsonl")}


def options_are_valid(run):
    """The options of a run and of its evaluations make valid configurations, each with a file of its own."""
    run.config.check()
    assert len({run.results_of(evaluation) for evaluation in run.evaluations}) == len(run.evaluations)
    for evaluation, options in run.evaluations.items():
        target = run.results_of(evaluation)
        subcommand = importlib.import_module(f"tasks.{evaluation.task}.__main__").SUBCOMMANDS["evaluate"]
        config = parse(subcommand.config, [*options, "--json", str(target)], evaluation.task)
        assert config.json == target


@pytest.mark.parametrize("name", TABLES)
def test_every_run_of_a_table_has_valid_options(name, tmp_path, capsys):
    table = TABLES[name]
    for preset in table.presets:
        runs = runs_of(table, ReproduceConfig(preset=preset, directory=tmp_path, **DATA))
        assert len({run.name for run in runs}) == len(runs)
        for run in runs:
            options_are_valid(run)
            assert run.state().kind == Kind.MISSING
    assert not capsys.readouterr().err, "an option has no effect"


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_stands_in_a_column(name):
    table = TABLES[name]
    assert len(set(table.columns)) == len(table.columns)
    for row in table.rows:
        assert row.cells.keys() | row.published.keys() <= {*table.columns, *(table.demo_columns or ())}
        assert row.cells or row.name.endswith("(literature)")
        assert not row.cells or row.published.keys() <= row.cells.keys(), (
            "a published number has none beside it"
        )


@pytest.mark.parametrize(
    ("table", "row", "published"),
    [
        (
            "om-table-1",
            "Ordered Memory",
            {"7": "98 ± 0", "12": "92 ± 1.1", "A": "94", "C": "81", "F1": "84.3 ± 14.4"},
        ),
        ("om-table-1", "LSTM", {"7": "88", "12": "69", "A": "84", "C": "59", "F1": None}),
        ("om-table-3a", "Ordered Memory", {"accuracy": "99.97 ± 0.014", "F1": "100"}),
        ("om-table-3a", "RL-SPINN (literature)", {"accuracy": "60.7 ± 2.6", "F1": "71.1"}),
        ("om-table-3", "Ordered Memory", {"SST-2": "90.4", "SST-5": "52.2"}),
        ("om-table-3", "LSTM", {"SST-2": None, "SST-5": None}),
        ("listops-lengths", "Ordered Memory", {"standard": "99.97 ± 0.014", "900-1000": "76.9"}),
        ("listops-lengths", "LSTM", {"standard": None, "900-1000": None}),
        ("on-table-1", "ON-LSTM", {"validation": "58.29 ± 0.1", "test": "56.17 ± 0.12"}),
        ("on-table-1", "LSTM", {"validation": "60", "test": "57.3"}),
        ("on-table-1", "PRPN", {"validation": None, "test": "62"}),
        ("on-table-2", "layer 2, prpn", {"all": "47.7 ± 1.5", "at most 10 words": "65.1 ± 1.7"}),
        ("on-table-2", "layer 2, unbiased", {"all": None, "at most 10 words": None}),
        ("on-table-2", "PRPN, prpn", {"all": "37.4 ± 0.3", "at most 10 words": "70.5 ± 0.4"}),
        ("on-table-3", "ON-LSTM", {"Long: Reflexive anaphora: Across a relative clause": "57"}),
        ("on-table-3", "LSTM", {"Long: Reflexive anaphora: Across a relative clause": "58"}),
        ("on-figure-3", "ON-LSTM", {"6": None, "7": "91", "12": "75"}),
        ("on-figure-3", "LSTM", {"6": None, "7": "88", "12": "69"}),
    ],
)
def test_published_numbers_stand_in_the_row_and_column_of_the_paper(table, row, published):
    (found,) = (spec.published for spec in TABLES[table].rows if spec.name == row)
    texts = {column: str(found[column]) if column in found else None for column in published}
    assert texts == published


@pytest.mark.parametrize("name", TABLES)
def test_the_runs_of_a_demo_share_its_minutes_unless_the_user_has_a_limit(name, tmp_path):
    def minutes(**options):
        runs = runs_of(TABLES[name], ReproduceConfig(preset="demo", directory=tmp_path, **options))
        return [run.config.max_minutes for run in runs]

    assert sum(minutes()) == pytest.approx(DEMO_MINUTES, abs=0.1)
    assert minutes(seeds=2) == 2 * minutes()
    assert set(minutes(max_minutes=7)) == {7}


@pytest.mark.parametrize("name", TABLES)
def test_a_demo_generates_little_data_for_its_runs_and_their_evaluations(name, tmp_path):
    training = {"listops": 20_000, "logic": 10_000, "sst": 2_000, "language_model": 10_000}
    evaluation = {"listops": ("--size", "100"), "syntax_eval": ("--count", "50"), "parsing": ()}
    for run in runs_of(TABLES[name], ReproduceConfig(preset="demo", directory=tmp_path)):
        sizes = [getattr(run.config, name, 0) for name in ("expressions", "generated", "sentences")]
        assert (run.config.data_dir, sum(sizes)) == (None, training[run.training.task])
        for spec, words in run.evaluations.items():
            assert words == (*spec.options, *evaluation[spec.task])


def test_tables_share_runs(tmp_path):
    names = ("om-table-3a", "listops-lengths", "listops-arguments", "om-figure-3b")
    ours = [
        {run.name for run in runs_of(TABLES[name], ReproduceConfig(directory=tmp_path, only=("lstm",)))}
        for name in names
    ]
    assert ours[0] == ours[1] == ours[2]
    assert ours[0] < ours[3]


def test_the_lstm_beside_on_lstm_in_logic_has_its_options(tmp_path):
    runs = runs_of(TABLES["on-figure-3"], ReproduceConfig(directory=tmp_path))
    onlstm, lstm = (vars(run.config) for run in runs)
    unread = {"num_slots", "test_num_slots", "cell_dropout", "attention_dropout"}
    differing = {name for name in onlstm if onlstm[name] != lstm[name]}
    assert differing - unread == {"model", "run_dir"}


def test_the_same_run_of_every_seed_is_listed_seed_by_seed(tmp_path):
    config = ReproduceConfig(directory=tmp_path, only=("lstm", "ordered-memory"), seeds=3)
    runs = runs_of(TABLES["om-table-3a"], config)
    assert [run.seed for run in runs] == [1, 1, 2, 2, 3, 3]
    assert [run.config.seed for run in runs] == [1, 1, 2, 2, 3, 3]


def test_selected_columns_need_only_their_runs(tmp_path):
    config = ReproduceConfig(directory=tmp_path, only=("lstm",), columns=("C", "7", "A"))
    runs = runs_of(TABLES["om-table-1"], config)
    assert [run.name.removeprefix("logic/paper-model-lstm-") for run in runs] == [
        "seed-1",
        "split-A-seed-1",
        "split-C-seed-1",
    ]
    columns, rows = TABLES["om-table-1"].select(config.preset, models=config.only, columns=config.columns)
    assert columns == ("7", "A", "C")
    assert [row.model for row in rows] == ["lstm"]
    results = collect("om-table-1", TABLES["om-table-1"], config, runs)
    assert results.columns == columns
    assert [model.name for model in results.models] == ["LSTM"]
    assert list(results.models[0].summaries) == ["7", "A", "C"]


def test_a_path_that_does_not_exist_finds_nothing():
    results = {"rows": [{"name": "a", "x": {"7": [0.5, 12]}}], "none": None}
    assert find({"rows": [{"name": "a", "x": 1}, {"name": "a", "x": 2}]}, ("rows", {"name": "a"}, "x")) == 1
    assert find(results, ("rows", {"name": "a"}, "x", "7", 0)) == 0.5
    assert find(results, ("rows", 0, "x", 0, 1)) == 12
    for keys in (
        ("rows", {"name": "b"}),
        ("rows", 1),
        ("x",),
        ("none",),
        ("none", "x"),
        ("rows", 0, "x", "8"),
    ):
        assert find(results, keys) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["om-table-2"], "unknown subcommand 'om-table-2'"),
        (["om-table-1", "--preset", "small"], "--preset must be one of paper, curriculum, demo, got small"),
        (["om-table-1", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["om-table-1", "--only", "rl-spinn"], "--only must name models of lstm, onlstm, "),
        (
            ["om-table-1", "--columns", "7", "13"],
            "--columns must name columns of 7, 8, 9, 10, 11, 12, A, B, C, F1, got 13",
        ),
        (
            ["om-table-1", "--preset", "demo", "--columns", "A"],
            "--columns must name columns of 7, 8, 9, 10, 11, 12, F1, got A",
        ),
        (
            ["om-table-1", "--only", "lstm", "crvnn", "--columns", "F1"],
            "--columns F1: the models of --only have no results in these columns",
        ),
        (["om-table-1", "--budget", "0"], "--budget must be positive, got 0"),
        (["om-table-1", "--max-minutes", "0"], "--max-minutes must be positive, got 0"),
        (["om-table-1", "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["om-table-1", "--threads", "9999"], "--threads must be at most"),
        (["om-table-1", "--partition", "big"], "--partition big has no effect without --executor slurm"),
        (["om-table-1", "--executor", "local", "--gpus", "1"], "--gpus 1 has no effect without --executor"),
        (["on-table-1"], "--text-data must be given for this table"),
        (["on-table-2", "--text-data", "x"], "--treebank must be given for this table"),
    ],
)
def test_bad_options_are_told_in_one_line(words, message, capsys, tmp_path):
    directory = ["--directory", tmp_path] if len(words) > 1 else []
    assert message in refusal(main, capsys, *words, *directory)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "options", "unused"),
    [
        ("on-table-1", {"text_data": Path("t"), "logic_data": Path("d")}, ["--logic-data d"]),
        ("on-table-2", {"text_data": Path("t"), "treebank": Path("b")}, []),
        ("on-table-2", {"text_data": Path("t"), "treebank": Path("b"), "vectors": ("v",)}, ["--vectors v"]),
        ("om-table-1", {"logic_data": Path("d"), "treebank": Path("b")}, ["--treebank b"]),
        ("om-table-3", {"sst_data": Path("d"), "vectors": ("v",)}, []),
        ("om-table-3a", {"listops_data": Path("d"), "preset": "demo"}, ["--listops-data d"]),
    ],
)
def test_data_that_no_run_uses_are_told(name, options, unused, tmp_path, capsys):
    config = ReproduceConfig(directory=tmp_path, **options)
    warn_of_unused_data(runs_of(TABLES[name], config), config)
    told = [line.partition(" has no effect ")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == [f"warning: {option}" for option in unused]


def test_the_former_name_of_the_local_executor_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["om-table-1", "--executor", "here", "--dry-run"])
    assert stopped.value.code == 2
    assert "invalid choice 'here'" in capsys.readouterr().err


def test_without_a_table_all_are_listed(capsys):
    assert main([]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(TABLES)


def numbers_of(name, only, results):
    """What the cells of some models find in results, by column; None where there is nothing."""
    rows = [row for row in TABLES[name].rows if row.model in only]
    return {column: find(results, cell.keys) for row in rows for column, cell in row.cells.items()}


def test_each_cell_of_logic_has_the_accuracy_of_its_column_or_the_f1_of_the_models_trees():
    """Every other number in the results is 9, such as counts, other groups, conventions and baselines."""
    operations = {str(n): [n / 100, 9] for n in range(13)}
    others = {"0–6": [9, 9], "0–12": [9, 9]}
    left_out = {
        f"operations, pairs left out by {split}": {"7–12": [value, 9], **others}
        for split, value in zip("ABC", (0.5, 0.6, 0.7), strict=True)
    }
    f1 = {
        "corpus level, with the whole-sentence span": {"model": 0.8, "balanced": 9},
        "sentence level, without the whole-sentence span": {"model": 9, "balanced": 9},
    }
    results = {"accuracy": 9, "accuracy_by": {"operations": operations, **left_out}, "span_f1": f1}
    longer = {str(n): n / 100 for n in range(7, 13)}
    found = numbers_of("om-table-1", ("ordered-memory",), results)
    assert found == {**longer, "A": 0.5, "B": 0.6, "C": 0.7, "F1": 0.8}
    for model in ("onlstm", "lstm"):
        assert numbers_of("on-figure-3", (model,), results) == {str(n): n / 100 for n in range(13)}
    assert numbers_of("om-table-3a", ("onlstm",), results) == {"accuracy": 9, "F1": 0.8}


def test_each_cell_of_parsing_has_the_f1_of_single_sentences_or_the_recall_of_its_label():
    """Every other number in the results is 9."""
    recall = {label: n / 100 for n, label in enumerate(LABELS)}
    scores = {"f1_corpus": 9, "f1_corpus_inner": 9, "precision_sentence": 9, "recall_sentence": 9}
    every = scores | {"f1_sentence": 0.5, "label_recall": recall}
    short = scores | {"f1_sentence": 0.7, "label_recall": dict.fromkeys(LABELS, 9)}
    f1 = {"all": 0.5, "at most 10 words": 0.7}
    for row in TABLES["on-table-2"].rows:
        name = row.name.replace("PRPN, ", "layer 1, ")
        results = {"rows": [{"name": "other", "all": {}}, {"name": name, "all": every, "short": short}]}
        found = {column: find(results, cell.keys) for column, cell in row.cells.items()}
        assert found == f1 | {label: recall[label] for label in ("ADJP", "NP", "PP", "INTJ")}


def test_each_cell_of_minimal_pairs_has_the_accuracy_of_its_row_of_the_paper():
    tallies = {
        Key(case, row.kind, ""): Tally(100, 100, 100, (number,))
        for number, row in enumerate(PAPER_ROWS)
        for case in row.cases
    }
    results = {"lines": lines_of(tallies, ["model"])}
    for model in ("onlstm", "lstm"):
        found = numbers_of("on-table-3", (model,), results)
        columns = TABLES["on-table-3"].columns
        assert [found[column] for column in columns] == [n / 100 for n in range(len(PAPER_ROWS))]


@pytest.mark.parametrize("name", ["listops-lengths", "listops-arguments"])
def test_each_column_of_a_harder_test_is_of_an_evaluation_on_it(name):
    for row in TABLES[name].rows:
        evaluations = {column: cell.evaluation for column, cell in row.cells.items()}
        assert evaluations.pop("standard") is None  # the final test of the run
        assert {column: evaluation.options for column, evaluation in evaluations.items()} == {
            column: ("--test", column) for column in TABLES[name].columns[1:]
        }


def test_cells_find_their_numbers_in_the_results_of_their_tasks(small_runs, tmp_path):
    results = {task: read_json(Path(small_runs[f"{task}_run"], "results.json")) for task in MAIN}
    assert None not in numbers_of("om-table-3a", ("ordered-memory",), results["listops"]).values()
    assert None not in numbers_of("om-table-3", ("ordered-memory",), results["sst"]).values()
    assert None not in numbers_of("on-table-1", ("onlstm",), results["language_model"]).values()
    found = numbers_of("om-table-1", ("ordered-memory",), results["logic"])
    assert found["7"] is not None
    assert found["F1"] is not None
    assert numbers_of("on-figure-3", ("onlstm",), results["logic"])["0"] is not None
    for task, name in (("parsing", "on-table-2"), ("syntax_eval", "on-table-3")):
        evaluate = importlib.import_module(f"tasks.{task}.__main__").main
        target = tmp_path / f"{task}.json"
        assert (
            evaluate(["evaluate", "--checkpoint", small_runs["language_model"], "--json", str(target)]) == 0
        )
        found = numbers_of(name, ("onlstm",), read_json(target))
        if task == "syntax_eval":
            assert all(found[column] is not None for column in TABLES[name].demo_columns)
        else:
            assert found["all"] is not None
