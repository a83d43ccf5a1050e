"""What the README shows works: its Python runs, and so do its commands, made quick by options."""

import gzip
import importlib
import json
import re
import shlex
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_example_runs():
    code, *others = blocks("python")
    names = {}
    exec(code, names)
    assert names["out"].output.shape == (4, 10, 32)
    assert names["summary"].shape == (4, 32)
    assert names["trees"][-1] == 0
    assert len(names["more_trees"]) == 4
    for other in others:
        exec(other, names)


def commands():
    lines = "".join(blocks("sh")).splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [command[2:] for command in words if command[:2] == ["python", "-m"]]


CLASSIFIER = "--epochs 1 --embedding-size 6 --slot-size 6 --num-slots 3 --test-num-slots 4"
LANGUAGE_MODEL = "--epochs 1 --embedding-size 8 --hidden-size 8 --num-layers 2 --chunk-size 2 --batch-size 2"
SHORTER = {
    "tasks.listops --preset": f"{CLASSIFIER} --expressions 300 --validation-size 40 --max-train-length 12",
    "tasks.listops evaluate": "--size 2",
    "tasks.listops parse": "",
    "tasks.logic --split": f"{CLASSIFIER} --generated 600",
    "tasks.logic predict": "",
    "tasks.sst --preset": f"{CLASSIFIER} --generated 60 --vectors none",
    "tasks.sst predict": "",
    "tasks.language_model --preset": f"{LANGUAGE_MODEL} --evaluation-batch-size 2",
    "tasks.parsing --treebank": "",
    "tasks.syntax_eval --pairs": "",
    "tasks.benchmark --config": "--quick --no-memory",
}
"""Options that make the commands quick, by how they begin."""


def write_what_the_commands_read(directory):
    sentences = ["the cat sees the dogs", "the dogs see the cat"] * 20
    (directory / "PTB").mkdir()
    for name in ("train", "valid", "test"):
        (directory / "PTB" / f"{name}.txt").write_text("\n".join(sentences) + "\n")
    tree = "( (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT the) (NNS dogs)))) )\n"
    with zipfile.ZipFile(directory / "wsj.zip", "w") as archive:
        archive.writestr("treebank/combined/wsj_0001.mrg", tree * 3)
    pair = {"case": "simple_agrmt", "key": "sing", "good": "the cat sees", "bad": "the cat see"}
    with gzip.open(directory / "marvin_linzen.jsonl.gz", "wt") as file:
        file.write(json.dumps(pair) + "\n")


def test_the_commands_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    write_what_the_commands_read(tmp_path)
    monkeypatch.chdir(tmp_path)
    for words in commands():
        shorter = SHORTER[" ".join(words[:2])].split()
        if words[0] == "tasks.language_model" and "demo" in words:
            shorter += ["--sentences", "400"]
        main = importlib.import_module(f"{words[0]}.__main__").main
        assert main([*words[1:], *shorter]) == 0, (words, capsys.readouterr().err)


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
