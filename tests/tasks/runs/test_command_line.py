"""Help, subcommands and groups of options."""

import dataclasses
import io
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
import types
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import distributed

import tasks.__main__
from tasks.listops.config import PRESETS, ListOpsConfig
from tasks.runs.command_line import Subcommand, parse, run
from tasks.runs.errors import EXIT_INTERRUPTED
from tasks.runs.processes import is_lost_process

ROOT = Path(__file__).parents[3]
TASKS = sorted(path.parent.name for path in (ROOT / "tasks").glob("*/__main__.py"))


def help_of(capsys, name, *words):
    with pytest.raises(SystemExit) as exit_:
        import_module(f"tasks.{name}.__main__").main([*words, "--help"])
    assert exit_.value.code == 0
    return capsys.readouterr().out


def options_of(text):
    return re.findall(r"^\W? {1,2}(?:-h, )?(--[a-z][a-z-]+)", text, re.MULTILINE)


def texts_of(text):
    """What a help says of each option, besides its names, its metavar or choices, and its default."""
    text = re.sub("[│╭╮╰╯─]", " ", text)
    parts = [part for box in re.split(r"\n *\n", text) for part in re.split(r"\n(?=  (?:-h, )?--[a-z])", box)]
    return {
        option: re.sub(r"--[\w-]+|\{[^}]*\}|\((default|required)(.|\n)*", "", part)
        for part in parts
        for option in options_of(part)[:1]
    }


def test_every_task_is_listed_with_a_sentence(capsys):
    tasks.__main__.main([])
    lines = capsys.readouterr().out.splitlines()
    listed = dict(line.split(maxsplit=1) for line in lines if line.startswith("  tasks."))
    assert sorted(listed) == [f"tasks.{name}" for name in TASKS]
    assert all(sentence.endswith(".") for sentence in listed.values())


@pytest.mark.parametrize(
    ("word", "hint"), [("listops", "did you mean python -m tasks.listops?"), ("nope", "lists the tasks")]
)
def test_a_task_name_after_a_space_gets_a_hint(word, hint, capsys):
    with pytest.raises(SystemExit) as exit_:
        tasks.__main__.main([word, "--seed", "2"])
    assert exit_.value.code == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize("name", TASKS)
def test_the_help_of_a_task_lists_its_subcommands_and_documents_every_option(name, capsys):
    subcommands = import_module(f"tasks.{name}.__main__").SUBCOMMANDS
    overview = help_of(capsys, name)
    for subcommand in subcommands:
        assert re.search(rf"^  {subcommand} +[A-Z]", overview, re.MULTILINE), subcommand
    assert "The default; its options follow." in " ".join(overview.split())
    assert f"examples:\n  python -m tasks.{name}" in overview
    for subcommand, (config, *_) in subcommands.items():
        text = help_of(capsys, name, subcommand)
        assert config.__doc__.split()[0] in text
        texts = texts_of(text)
        assert list(texts) == options_of(text)
        for option, says in texts.items():
            assert re.search("[a-z]{2}", says), f"{option} has no text"


def test_options_stand_in_boxes_of_their_kind(capsys):
    text = help_of(capsys, "listops")
    parts = re.split(r"^\W*((?:\w+ )?options)\W*$", text, flags=re.MULTILINE)[1:]
    boxes = dict(zip(parts[::2], parts[1::2], strict=True))
    where = {option: title for title, box in boxes.items() for option in options_of(box)}
    assert max(len(options_of(box)) for box in boxes.values()) < 18
    assert where["--resume"] == where["--devices"] == "run options"
    assert where["--epochs"] == "training options"
    assert where["--slot-size"] == "encoder options"
    assert where["--data-dir"] == "data options"
    assert where["--preset"] == "options"
    names = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(ListOpsConfig)}
    assert where.keys() == names | {"--help"}


def test_grouping_changes_neither_names_nor_defaults():
    found = parse(ListOpsConfig, ["--slot-size", "9", "--resume"], "p", PRESETS["demo"])
    assert found == dataclasses.replace(PRESETS["demo"], slot_size=9, resume=True)
    assert parse(ListOpsConfig, [], "p") == ListOpsConfig()


@dataclasses.dataclass
class Nothing:
    """Do nothing."""


def test_a_task_outside_of_the_package_has_help(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mytask", types.ModuleType("mytask"))  # it has no docstring

    @dataclasses.dataclass
    class Config:
        size: int = 1

    source = "import dataclasses\n@dataclasses.dataclass\nclass Typed:\n    size: int = 1\n"
    space = {"__name__": "notebook"}
    exec(source, space)  # as in a notebook: no file has its source
    for config in (Config, space["Typed"]):
        subcommands = {"train": Subcommand(config, lambda config: None)}
        with pytest.raises(SystemExit) as exit_:
            run("mytask", subcommands, ["--help"])
        assert exit_.value.code == 0
        text = capsys.readouterr().out
        assert "--size" in text
        assert "\n\n\n" not in text
        assert run("mytask", subcommands, []) == 0


def test_threads_are_those_of_one_command(monkeypatch):
    before = torch.get_num_threads()
    subcommands = {"set": Subcommand(Nothing, lambda config: torch.set_num_threads(before + 1))}
    assert run("tasks", subcommands, []) == 0
    assert torch.get_num_threads() == before


def test_a_command_runs_in_a_thread(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mytask"])
    found = []
    subcommands = {"list": Subcommand(dataclasses.make_dataclass("Config", []), lambda config: None)}
    thread = threading.Thread(target=lambda: found.append(run("tasks.listops", subcommands)))
    thread.start()
    thread.join()
    assert found == [0]


@pytest.fixture
def handlers_come_back():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers_come_back")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_a_command_as_ctrl_c_does(monkeypatch, number):
    monkeypatch.setattr("sys.argv", ["task"])
    subcommands = {"wait": Subcommand(Nothing, lambda config: os.kill(os.getpid(), number))}
    assert run("tasks", subcommands) == EXIT_INTERRUPTED


@pytest.mark.usefixtures("handlers_come_back")
def test_nohup_keeps_a_command_going(monkeypatch):
    monkeypatch.setattr("sys.argv", ["task"])
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert (
        run("tasks", {"wait": Subcommand(Nothing, lambda config: os.kill(os.getpid(), signal.SIGHUP))}) == 0
    )


@pytest.mark.usefixtures("handlers_come_back")
def test_output_that_is_not_utf_8_or_closed_ends_no_command(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    subcommands = {"tell": Subcommand(Nothing, lambda config: print("├ 0–6"))}
    monkeypatch.setattr("sys.argv", ["task"])
    for stdout in (terminal, None):
        monkeypatch.setattr("sys.stdout", stdout)
        assert run("tasks", subcommands) == 0
    assert terminal.buffer.getvalue() == b"\\u251c 0\\u20136\n"


def test_a_process_whose_other_has_ended_says_so_in_one_line(monkeypatch):
    error = RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4242")
    assert not is_lost_process(error)
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    assert is_lost_process(error)
    assert not is_lost_process(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_the_tasks_name_what_is_not_installed(monkeypatch):
    monkeypatch.setattr("tasks.find_spec", lambda name: None if name in ("tqdm", "tyro") else True)
    with pytest.raises(ModuleNotFoundError, match=r"the tasks need tqdm, tyro: pip install '.+\[tasks\]'"):
        tasks.check_dependencies()


def test_on_windows_the_tasks_say_what_to_use(monkeypatch):
    monkeypatch.setattr("tasks.find_spec", lambda name: None if name == "fcntl" else True)
    with pytest.raises(ModuleNotFoundError, match="the tasks run on Linux and macOS; on Windows, use WSL"):
        tasks.check_dependencies()


def test_what_the_tasks_need_is_their_extra():
    project = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["tasks"]
    assert [re.match(r"[\w-]+", one)[0].replace("-", "_") for one in extra] == list(tasks.DEPENDENCIES)


@pytest.mark.skipif(sys.platform != "linux", reason="it reads the resident memory in /proc")
def test_products_of_many_shapes_in_bfloat16_keep_little_memory():
    code = """
import resource
import tasks, torch

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6

weight = torch.zeros(256, 256, dtype=torch.bfloat16)
before = resident_mb()
for rows in range(1, 1024):
    torch.zeros(rows, 256, dtype=torch.bfloat16) @ weight
print(resident_mb() - before)
"""
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 500  # more than 700 if the code of all of them is kept


def test_what_takes_seconds_to_import_is_imported_where_it_is_needed():
    """One answer, and the help of every task, need neither torch.compile nor Lightning nor matplotlib.

    The help does not need NLTK, either.
    """
    code = """
import importlib, sys
import ordered_memory.backends.native, tasks.listops.__main__
importlib.reload(ordered_memory.backends.native)  # defines its operators again
for task in sys.argv[1:]:
    importlib.import_module(f"tasks.{task}.__main__")
assert "nltk" not in sys.modules
assert tasks.listops.__main__.main(["predict", "[MAX 2 9 ]"]) == 0
slow = {"torch._dynamo", "lightning_fabric", "matplotlib", "tensorboard", "transformers", "triton"}
sys.exit(" ".join(slow & set(sys.modules)) or 0)
"""
    found = subprocess.run(
        [sys.executable, "-c", code, *TASKS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
