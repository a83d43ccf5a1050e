"""What the README shows works."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_example_runs():
    (code,) = blocks("python")
    names = {}
    exec(code, names)
    assert names["out"].output.shape == (4, 10, 32)
    assert names["summary"].shape == (4, 32)
    assert names["trees"][-1] == 0


def commands():
    lines = "".join(blocks("sh")).splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [command[2:] for command in words if command[:2] == ["python", "-m"]]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_commands_exist(words):
    main = importlib.import_module(f"{words[0]}.__main__").main
    with pytest.raises(SystemExit) as exit_:
        main([*words[1:], "--help"])
    assert exit_.value.code == 0


def test_every_task_is_shown():
    shown = {command[0] for command in commands()}
    assert shown == {f"tasks.{path.parent.name}" for path in (ROOT / "tasks").glob("*/__main__.py")}


def test_the_make_targets_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"^make (\w+)", "".join(blocks("sh")), re.MULTILINE):
        assert target in targets


def test_the_files_it_links_to_exist():
    for link in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / link).exists(), link
