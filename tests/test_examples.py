"""The examples run, are short, and show what the site says they show."""

import contextlib
import io
import json
import random
import runpy
import sys
from pathlib import Path

import pytest

from ordered_memory.brackets import from_brackets
from ordered_memory.tree_recovery import shift_reduce

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOK = ROOT / "examples" / "trees.ipynb"
ARGUMENTS = {"compile": ["aot_eager"]}
"""Inductor takes long; test_layer.py runs it."""


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
    assert run(example, *ARGUMENTS.get(example.stem, []))


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
