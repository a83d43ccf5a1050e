"""What the README and the site show works: their Python runs, and so do their commands, made quick."""

import ast
import builtins
import contextlib
import importlib
import inspect
import io
import pickle
import re
import runpy
import shlex
import tomllib
import zipfile
from pathlib import Path

import pytest
import torch

from tasks.runs.command_line import run as command_line

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
TEXTS = [ROOT / "RESULTS.md", ROOT / "CONTRIBUTING.md", *PAGES]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page):
    """For each block: language, code, and whether another block is right above (this may be its output)."""
    text, end = page.read_text(), 0
    for match in BLOCK.finditer(text):
        follows = end > 0 and not text[end : match.start()].strip()
        yield *match.groups(), follows
        end = match.end()


def run(page):
    """Run the Python of a page, one block after the other; a block of text right below is what it prints."""
    names, printed = {}, None
    for language, code, follows in blocks(page):
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(code, page.name, "exec"), names)
            printed = output.getvalue()
        elif language == "text" and follows:
            assert printed == code
    return names


def name(page):
    return str(page.relative_to(ROOT))


def test_the_example_runs():
    names = run(README)
    assert names["out"].output.shape == (4, 10, 32)
    assert names["summary"].shape == (4, 32)
    assert names["trees"][-1] == 0
    assert len(names["more_trees"]) == 4


@pytest.mark.parametrize("page", PAGES[1:], ids=name)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, monkeypatch, tmp_path):
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    run(page)


@pytest.mark.parametrize("package", ["ordered_memory", "onlstm", "ordered_memory.trace"])
def test_the_api_pages_have_every_public_name(package):
    pages = " ".join(page.read_text() for page in (ROOT / "docs/api").glob("*.md"))
    documented = set(re.findall(r"\w+", pages))
    assert set(importlib.import_module(package).__all__) <= documented


def test_the_examples_of_the_viewer_pages_are_traced():
    made = runpy.run_path(str(ROOT / "docs" / "viewer_pages.py"))
    expression, sentence = made["EXPRESSIONS"][0], made["SENTENCES"][0]
    assert [trace["answer"]["true"] for trace in made["traces"]("listops", (expression,))] == [7]
    assert made["traces"]("sst5", (sentence,))[0]["words"]


def test_only_options_in_running_text_are_kept_in_one_piece():
    hook = runpy.run_path(str(ROOT / "docs" / "unbroken_options.py"))["on_page_content"]
    html = "<p>a-b <code>--x-y 3 a-b</code></p><pre><code>--x-y</code></pre>"
    expected = '<p>a-b <code><span class="option">--x-y</span> 3 a-b</code></p><pre><code>--x-y</code></pre>'
    assert hook(html, page=None, config=None, files=None) == expected


def test_docstrings_contain_no_html_outside_of_code():
    """A page would take `<style>` for an element, and hide what follows."""
    for package in ("ordered_memory", "onlstm"):
        for file in (ROOT / package).rglob("*.py"):
            tree = ast.parse(file.read_text())
            nodes = (node for node in ast.walk(tree) if isinstance(node, DOCUMENTED))
            for docstring in filter(None, map(ast.get_docstring, nodes)):
                text = re.sub(r"`[^`]*`|^ *>>>.*$", "", docstring, flags=re.MULTILINE)
                assert not re.search(r"</?[a-z]+>", text), (file, docstring)


def examples_of_help():
    """The lines below the first sentence of each task's docstring, which `--help` shows."""
    for directory in sorted((ROOT / "tasks").iterdir()):
        if (directory / "__main__.py").is_file():
            _, *lines = importlib.import_module(f"tasks.{directory.name}").__doc__.splitlines()
            assert any(lines), directory
            yield from lines


def commands():
    """The words of every shell command, each command once."""
    lines = [
        line
        for page in PAGES
        for language, code, _ in blocks(page)
        if language == "sh"
        for line in code.replace("\\\n", " ").splitlines()
    ]
    lines += examples_of_help()
    words = [shlex.split(line, comments=True) for line in lines]
    return list(dict.fromkeys(tuple(command) for command in words if command))


CLASSIFIER = "--epochs 1 --embedding-size 6 --slot-size 6 --num-slots 3 --test-num-slots 4"
LANGUAGE_MODEL = "--epochs 1 --embedding-size 8 --hidden-size 8 --num-layers 2 --chunk-size 2 --batch-size 2"
SHORTER = {
    "tasks.listops --preset": f"{CLASSIFIER} --expressions 300 --validation-size 40 --max-train-length 12",
    "tasks.listops --curriculum-epochs": f"{CLASSIFIER} --expressions 300 --validation-size 40",
    "tasks.listops --initial-weights": f"{CLASSIFIER} --expressions 300 --validation-size 40",
    "tasks.listops evaluate": "--size 2",
    "tasks.listops predict": "",
    "tasks.listops trace": "",
    "tasks.listops report": "",
    "tasks.listops export": "",
    "tasks.logic --preset": f"{CLASSIFIER} --generated 600",
    "tasks.logic --split": f"{CLASSIFIER} --generated 600",
    "tasks.logic evaluate": "",
    "tasks.logic predict": "",
    "tasks.sst --preset": f"{CLASSIFIER} --generated 60 --vectors none",
    "tasks.sst predict": "",
    "tasks.language_model --preset": f"{LANGUAGE_MODEL} --evaluation-batch-size 2",
    "tasks.language_model generate": "",
    "tasks.parsing --treebank": "",
    "tasks.parsing --checkpoint": "",
    "tasks.parsing parse": "",
    "tasks.parsing trees": "",
    "tasks.parsing score": "",
    "tasks.syntax_eval --pairs": "",
    "tasks.syntax_eval --checkpoint": "",
    "tasks.syntax_eval score": "",
    "tasks.predictions compare": "",
    "tasks.predictions consensus": "",
    "tasks.reproduce om-table-1": "--preset demo --dry-run",
    "tasks.benchmark --config": "--quick --no-memory",
    "tasks.benchmark onlstm": "",
}
"""Options that make the commands quick, by how they begin."""


def write_what_the_commands_read(directory):
    sentences = ["the cat sees the dogs", "the dogs see the cat"] * 20
    (directory / "PTB").mkdir()
    for name in ("train", "valid", "test"):
        (directory / "PTB" / f"{name}.txt").write_text("\n".join(sentences) + "\n")
    (directory / "text.txt").write_text("the cat sees the dogs\n" * 3)
    tree = "( (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT the) (NNS dogs)))) )\n"
    with zipfile.ZipFile(directory / "wsj.zip", "w") as archive:
        archive.writestr("treebank/combined/wsj_0001.mrg", tree * 3)
    templates = directory / "LM_syneval" / "EMNLP2018" / "templates"
    templates.mkdir(parents=True)
    (templates / "simple_agrmt.pickle").write_bytes(
        pickle.dumps({"sing": [("the cat sees", "the cat see")]}, 0)
    )


def test_the_commands_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    write_what_the_commands_read(tmp_path)
    monkeypatch.chdir(tmp_path)
    for program, *arguments in commands():
        if (program, arguments[0]) != ("python", "-m"):
            continue
        words = arguments[1:]
        if words[0] == "tasks.explore":  # it goes on until Ctrl-C; tests/tasks/explore runs it
            continue
        shorter = SHORTER[" ".join(words[:2])].split()
        if words[0] == "tasks.language_model" and "demo" in words:
            shorter += ["--sentences", "400"]
        main = importlib.import_module(f"{words[0]}.__main__").main
        assert main([*words[1:], *shorter]) == 0, (words, capsys.readouterr().err)


PLACEHOLDERS = {
    "TABLE": "om-table-1",
    "--learning-rate R": "--learning-rate 0.002",
    "--model M": "--model lstm",
    "--occupancy-threshold X": "--occupancy-threshold 0.01",
    "--precision P": "--precision 32-true",
    "--score A": "--score additive",
    "--seed S": "--seed 1",
    "--seeds N": "--seeds 3",
    "--split S": "--split C",
    "--test T": "--test standard",
}
"""What stands for a value in the commands of the results."""


def block_commands(code):
    """The commands of the tasks in a block; `...` at the end of one stands for each numbered line below."""
    begun = None
    for line in code.replace("\\\n", " ").splitlines():
        numbered = re.fullmatch(r"\d+: (.*?)( *#.*)?", line)
        if line.startswith("python -m tasks."):
            command = line.partition(" #")[0]
            begun = command.removesuffix("...") if command.endswith("...") else None
            if begun is None:
                yield command
        elif begun and numbered:
            yield begun + numbered[1]


def measured_commands():
    """The words of the commands in running text, and in blocks that no test runs."""
    for page in TEXTS:
        for command in [
            *re.findall(r"`(python\s+-m\s+tasks\.[^`]+)`", page.read_text()),
            *(command for language, code, _ in blocks(page) for command in block_commands(code)),
        ]:
            words = " ".join(command.split())
            for placeholder, value in PLACEHOLDERS.items():
                words = re.sub(rf"{placeholder}\b", value, words)
            yield tuple(shlex.split(words)[2:])


def test_the_commands_of_the_results_have_options_of_today(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = {words for words in measured_commands() if "--help" not in words}
    for task, *words in found:
        subcommands = importlib.import_module(f"{task}.__main__").SUBCOMMANDS
        parsed_only = {name: one._replace(run=lambda config: None) for name, one in subcommands.items()}
        assert command_line(task, parsed_only, words) == 0, (task, words, capsys.readouterr().err)
    assert len(found) > 60


def test_other_commands_name_what_there_is():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for program, *arguments in commands():
        if program == "make":
            assert arguments[0] in targets
        elif program == "pip":
            subcommand, what = arguments
            assert subcommand == "install"
            assert what.partition("[")[0] == "."
            assert set(re.findall(r"\w+", what)) <= extras.keys()
        else:
            assert program == "python"
            assert arguments[0] == "-m" or (ROOT / arguments[0]).is_file()


def scripts():
    """The Python that the pages show and no test runs: whole blocks, and what `python -c` is given."""
    for page in TEXTS:
        yield from re.findall(r'python -c "(.*?)"', page.read_text(), re.DOTALL)
        for language, code, _ in blocks(page):
            if language in ("", "py") and not re.match(r"python |\{%", code):
                yield code


def resolve(node, imported):
    """What a name or an attribute of a module stands for; None if only running the script tells."""
    if isinstance(node, ast.Name):
        return imported.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, imported)
        if inspect.ismodule(owner) or inspect.isclass(owner):
            return getattr(owner, node.attr)
    return None


def check_names(script):
    """Names of a script are defined, attributes of modules exist, and calls have arguments that are taken."""
    nodes, imported, known = list(ast.walk(ast.parse(script))), {}, {"ON_LSTM", *dir(builtins)}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            if ast.unparse(node) != "import ON_LSTM":  # the authors' code
                exec(ast.unparse(node), imported)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    for node in nodes:
        if isinstance(node, ast.Name):
            assert node.id in {*known, *imported}
        elif isinstance(node, ast.Attribute):
            resolve(node, imported)
        elif isinstance(node, ast.Call) and not any(isinstance(one, ast.Starred) for one in node.args):
            function = resolve(node.func, imported)
            if function is not None and all(keyword.arg for keyword in node.keywords):
                with contextlib.suppress(ValueError):  # some of PyTorch's have no signature
                    signature = inspect.signature(function)
                    signature.bind(*node.args, **{keyword.arg: None for keyword in node.keywords})


def test_scripts_that_no_test_runs_use_names_and_arguments_of_today():
    found = list(scripts())
    for script in found:
        check_names(script)
    assert len(found) > 10
