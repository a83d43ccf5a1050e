"""The examples run, are short, and show what the site says they show."""

import contextlib
import importlib
import io
import itertools
import json
import random
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ordered_memory import OrderedMemory
from ordered_memory.brackets import from_brackets
from ordered_memory.tree_recovery import from_attention, shift_reduce
from tasks.classifiers.classifier import Classifier
from tasks.logic.data import Dataset
from tasks.logic.formulas import decode
from tasks.runs.command_line import run as command_line

ROOT = Path(__file__).parents[1]
OWN_TASK = ROOT / "examples" / "own_task.py"
OWN_ENCODER = ROOT / "examples" / "own_encoder.py"
"""tests/tasks/classifiers/test_own_encoder.py runs it."""
OF_FILES = {OWN_TASK, OWN_ENCODER}
"""Examples that need files."""
EXAMPLES = sorted(set((ROOT / "examples").glob("*.py")) - OF_FILES)
NOTEBOOK = ROOT / "examples" / "trees.ipynb"
ARGUMENTS = {"compile": ["aot_eager"]}
"""Inductor takes long; tests/ordered_memory/test_compiling.py runs it."""
ENDS = {"by_tree": r"the same answer: 1\.0000\n$", "supervised": r"tokens: (1\.0000|0\.99\d\d)\n$"}
"""What the last line that an example prints ends with, where the site says so."""


def run(example, *arguments):
    """What an example prints."""
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.setattr(sys, "argv", [str(example), *arguments])
        runpy.run_path(str(example), run_name="__main__")
    return output.getvalue()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_runs(example):
    assert len(example.read_text().splitlines()) < 80
    assert re.search(ENDS.get(example.stem, "\n$"), run(example, *ARGUMENTS.get(example.stem, [])))


def test_answers_to_equivalent_pairs_are_answers_to_the_pair():
    example = runpy.run_path(str(ROOT / "examples" / "symmetries.py"))
    pairs = itertools.combinations(["( a ( or b ) )", "( not b )", "a", "( a ( and ( not b ) ) )", "b"], 2)
    data, asked = Dataset.from_texts(pairs), set()

    def evaluate(model, copies):  # a model that is always right
        texts = [tuple(" ".join(decode(formula)) for formula in pair[:2]) for pair in copies.pairs]
        asked.update(texts)
        return SimpleNamespace(probabilities=np.eye(7)[Dataset.from_texts(texts).labels])

    example["answers"].__globals__["evaluate"] = evaluate
    for symmetry in ("names", "formulas", "operands", "duals"):
        asked.clear()
        for probabilities in example["answers"](None, data, [symmetry], 9):
            assert probabilities.argmax(-1).tolist() == data.labels.tolist()
        assert len(asked) > 10
    assert len(set(data.labels)) > 4


@pytest.mark.parametrize("bidirectional", [False, True])
def test_with_attention_to_one_slot_a_layer_computes_by_its_tree(bidirectional):
    example = runpy.run_path(str(ROOT / "examples" / "by_tree.py"))
    torch.manual_seed(0)
    options = {"batch_first": True, "dtype": torch.float64, "bidirectional": bidirectional}
    layer = OrderedMemory(6, 6, num_slots=8, **options)
    x, lengths = torch.randn(20, 9, 6, dtype=torch.float64), torch.arange(1, 21) % 9 + 1

    def summary_of(out):
        return torch.cat(tuple(out.summary), -1) if bidirectional else out.summary

    spread = summary_of(layer(x, lengths=lengths))
    assert not torch.allclose(example["ByTree"](layer)(x, lengths), spread)
    with torch.no_grad():
        for direction in layer.directions:
            direction.score.output.weight.mul_(1e6)
    out = layer(x, lengths=lengths)
    for name in ("forward", "backward")[: 1 + bidirectional]:
        trees = from_attention(out.attention, lengths, batch_first=True, direction=name)
        assert len(set(trees)) > 15
    torch.testing.assert_close(example["ByTree"](layer)(x, lengths), summary_of(out))


@pytest.fixture
def own_task(monkeypatch, tmp_path):
    """The module, in a directory with data: one word of each text names its label."""
    rng = random.Random(1)
    for name, count in [("train", 200), ("validation", 40), ("test", 40)]:
        lines = []
        for _ in range(count):
            label = rng.choice(["negative", "positive"])
            words = [rng.choice(["a", "b", "(c", ":)"]) for _ in range(rng.randint(0, 5))] + [f"very-{label}"]
            lines.append(f"{label}\t{' '.join(rng.sample(words, len(words)))}\n")
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(OWN_TASK.parent)
    return importlib.import_module(OWN_TASK.stem)


SMALL = [
    *("--slot-size", "16", "--embedding-size", "16", "--num-slots", "4", "--cell-dropout", "0"),
    *("--batch-size", "16", "--threads", "1"),
]


def test_a_task_of_your_own_trains_resumes_and_predicts_without_trees(own_task, tmp_path, capsys):
    def main(*words):
        return command_line("own_task", own_task.SUBCOMMANDS, words)

    assert main("--epochs", "1", *SMALL) == 0
    assert main("--epochs", "4", *SMALL, "--resume") == 0
    run = tmp_path / "runs" / "texts" / "ordered-memory-1"
    results = json.loads((run / "results.json").read_text())
    assert results["accuracy"] > 0.9
    assert results["span_f1"] == {}
    checkpoint = str(run / "best.safetensors")
    evaluate = ["evaluate", "--checkpoint", checkpoint, "--predictions", "rows.jsonl"]
    assert main(*evaluate, "--file", "test.tsv") == 0
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert sum(row["label"] == row["prediction"] for row in rows) == 40 * results["accuracy"]
    for row in rows:
        words = row["texts"][0].replace("(", "-LRB-").replace(")", "-RRB-").split()
        assert from_brackets(row["trees"][0])[1] == words
        assert "true_trees" not in row
    Path("texts.txt").write_text("".join(row["texts"][0] + "\n" for row in rows))
    assert main("predict-file", "texts.txt", "--checkpoint", checkpoint, "--output", "answers.jsonl") == 0
    answers = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    assert [row["prediction"] for row in answers] == [row["prediction"] for row in rows]
    assert "label" not in answers[0]
    Path("texts.txt").write_text("a b\n\na\n")
    assert main("predict-file", "texts.txt", "--checkpoint", checkpoint) == 2
    assert "error: texts.txt, line 2: expected one token or more, got none" in capsys.readouterr().err
    assert main("export", "exported", "--checkpoint", checkpoint) == 0
    assert "from own_task import TextModel" in Path("exported", "README.md").read_text()
    assert main("evaluate", "--checkpoint", checkpoint, "--data-dir", ".") == 0
    model = own_task.TextModel.from_pretrained("exported")
    with pytest.raises(ValueError, match="input, example 0: expected one token or more, got none"):
        model.answer(" ")
    with pytest.raises(ValueError, match="expected 1 text as text, got"):
        model.answer("a", "b")
    assert model.answer("c very-positive a").answer == "positive"
    assert "error" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "gold-tree-lstm"], "--model gold-tree-lstm needs true trees, and these texts have none"),
        (["--data-dir", "elsewhere"], "elsewhere/train.tsv: no such file"),
        (["evaluate"], "--checkpoint must be given: no model comes with this task"),
    ],
)
def test_what_a_task_of_your_own_does_not_have_is_said(own_task, capsys, words, message):
    assert command_line("own_task", own_task.SUBCOMMANDS, words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("metadata", Classifier.metadata, r"TextModel\.metadata\(\) must have the key 'words'"),
        ("classes", ("positive", "positive"), r"TextModel\.classes must be distinct, got \('positive', 'pos"),
        ("forward", lambda self, batch: None, r"TextModel\.forward must return a Prediction, got NoneType"),
    ],
)
def test_a_mistake_in_a_task_is_found_before_training(own_task, monkeypatch, name, value, error):
    monkeypatch.setattr(own_task.TextModel, name, value)
    with pytest.raises((TypeError, ValueError), match=error):
        own_task.TASK.prepare(own_task.TextConfig())


def test_logits_of_other_classes_are_found_before_training(own_task, monkeypatch):
    monkeypatch.setattr(own_task, "CLASSES", ("negative", "positive", "neutral"))  # not those of the model
    with pytest.raises(ValueError, match=r"TextModel\.forward must return logits of the 2 classes, got 3"):
        own_task.TASK.prepare(own_task.TextConfig())


@pytest.mark.parametrize(
    ("words", "tree", "got"),
    [(3, ((0, 1), (2, 3)), r"of 3 words of sentences\(0\), got the leaves 0\.\.3"), (2, None, "of 2 words")],
)
def test_trees_over_other_words_are_found_before_training(own_task, monkeypatch, words, tree, got):
    def sentences(self, index):
        return (own_task.Sentence(["a", "b", "c"], range(words), tree),)

    def read(path):
        return own_task.Texts([(0, ["a", "b", "c"])])

    monkeypatch.setattr(own_task, "read", read)
    monkeypatch.setattr(own_task.Texts, "sentences", sentences)
    with pytest.raises(ValueError, match=rf"expected a tree with the leaves 0\.\.{words - 1} {got}"):
        own_task.TASK.prepare(own_task.TextConfig())


def test_the_classes_of_a_trained_model_do_not_change(own_task, tmp_path, monkeypatch):
    assert command_line("own_task", own_task.SUBCOMMANDS, ["--epochs", "1", *SMALL]) == 0
    monkeypatch.setattr(own_task.TextModel, "classes", ("positive", "negative"))
    with pytest.raises(ValueError, match=r"trained with the classes \['negative', 'positive'\], not"):
        own_task.TextModel.from_pretrained("runs/texts/ordered-memory-1/best.safetensors")


def test_a_label_that_a_task_of_your_own_does_not_know_is_found(own_task, capsys):
    with open("validation.tsv", "a") as file:
        file.write("neutral\ta b\n")
    assert command_line("own_task", own_task.SUBCOMMANDS, []) == 2
    assert "validation.tsv, line 41: expected one of negative, positive" in capsys.readouterr().err


def test_the_picture_of_the_stack_is_of_the_model(tmp_path):
    printed = run(ROOT / "examples" / "stack.py", str(tmp_path / "stack.svg"))
    assert f"```text\n{printed}```" in (ROOT / "docs" / "pictures.md").read_text()
    assert (tmp_path / "stack.svg").read_text() == (ROOT / "docs" / "stack.svg").read_text()


def test_what_the_stack_holds_in_the_end_is_the_tree_of_algorithm_2():
    names = runpy.run_path(str(ROOT / "examples" / "stack.py"))
    generator = random.Random(1)
    for length in range(1, 9):
        pointers, tokens = [0], [str(position) for position in range(length)]
        for _ in range(length - 1):
            lowest = pointers[-1] - 1 if len(pointers) > 1 else 3  # one slot higher, or any below
            pointers.append(generator.randint(max(lowest, 0), 3))
        tree = shift_reduce(pointers, 4)
        root = names["simulate"](pointers, tokens, 4)[-1][1]
        assert from_brackets(root)[0] == tree


def test_the_notebook_prints_what_it_shows():
    names = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec("".join(cell["source"]), names)
            assert output.getvalue() == "".join(line for shown in cell["outputs"] for line in shown["text"])
