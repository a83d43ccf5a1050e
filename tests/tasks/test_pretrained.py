"""Models as directories as the Hugging Face Hub has them, written by `export` and read by everything else."""

import json
import re
import shlex
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import huggingface_hub
import pytest
import torch

from onlstm.language_model import LanguageModel
from ordered_memory import hub
from tasks.language_model.model import load_model as load_language_model
from tasks.listops.model import PRETRAINED as LISTOPS
from tasks.listops.model import ListOpsModel
from tasks.logic.model import LogicModel
from tasks.pretrained import pretrained
from tasks.runs.command_line import parse_run
from tasks.runs.errors import UserError
from tasks.runs.hub import find_checkpoint, model_card_values
from tasks.sst.model import SentimentModel
from tasks.sst.task import PRETRAINED
from tests.commands import MAIN

CLASSIFIERS = {
    "listops": (ListOpsModel, ["[MAX 2 9 [MIN 4 7 ] 0 ]"]),
    "logic": (LogicModel, ["( a ( and b ) )", "( c )"]),
    "sst": (SentimentModel, ["neither bad nor unheard-of"]),
}


@pytest.fixture(scope="module")
def exported(small_runs, tmp_path_factory):
    """The best weights of a tiny run of each task as directories, to be read only."""
    directory = tmp_path_factory.mktemp("exported")
    for task, main in MAIN.items():
        assert main(["export", str(directory / task), "--checkpoint", small_runs[task]]) == 0
    return directory


def test_a_model_of_another_package_names_no_command(tmp_path, monkeypatch):
    monkeypatch.setattr(ListOpsModel, "__module__", "__main__")
    assert MAIN["listops"](["export", str(tmp_path / "model")]) == 0
    assert "python -m" not in (tmp_path / "model" / "README.md").read_text()


def assert_same_weights(model, other):
    state, expected = model.state_dict(), other.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)
    assert not model.training


@pytest.mark.parametrize("task", CLASSIFIERS)
def test_classifiers_answer_as_their_checkpoints_do(task, small_runs, exported, tmp_path):
    kind, texts = CLASSIFIERS[task]
    original, model = kind.from_pretrained(small_runs[task]), kind.from_pretrained(exported / task)
    model.save_pretrained(tmp_path)
    again = kind.from_pretrained(tmp_path)
    for other in (model, again):
        assert_same_weights(other, original)
        assert other.answer(*texts) == original.answer(*texts)
        assert other.metadata() == original.metadata()
    subclass = type("Subclass", (kind,), {})
    assert type(subclass.from_pretrained(tmp_path)) is subclass


def test_language_models_keep_their_vocabulary(small_runs, exported):
    original, vocabulary, config = load_language_model(Path(small_runs["language_model"]))
    trained = load_language_model(exported / "language_model")
    model = LanguageModel.from_pretrained(exported / "language_model")
    assert (trained.vocabulary.words, trained.config) == (vocabulary.words, config)
    assert model.vocabulary == vocabulary.words
    tokens = torch.arange(6).view(3, 2)
    for other in (trained.model.cpu(), model):
        assert_same_weights(other, original)
        assert torch.equal(other(tokens).logits, original(tokens).logits)


def test_a_language_model_without_the_options_of_a_run_is_said(tmp_path):
    LanguageModel(2, 4, 6, 2, chunk_size=2, vocabulary=["<eos>", "a"]).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="lacks the options of its run"):
        load_language_model(tmp_path)


def test_a_prpn_comes_back(tmp_path):
    from tasks.language_model.config import PRPN_PRESETS
    from tasks.language_model.model import Trained, build_model
    from tasks.language_model.vocabulary import Vocabulary

    vocabulary = Vocabulary(["<eos>", "a", "b"])
    original = Trained(build_model(PRPN_PRESETS["demo"], 3).eval(), vocabulary, PRPN_PRESETS["demo"])
    original.save_pretrained(tmp_path)
    trained = load_language_model(tmp_path)
    assert trained.config == original.config
    assert_same_weights(trained.model.cpu(), original.model)
    assert type(original.model).from_pretrained(tmp_path).vocabulary == vocabulary.words


@pytest.mark.parametrize("task", MAIN)
def test_a_directory_has_weights_options_and_card_alone(task, small_runs, exported):
    names = {path.name for path in (exported / task).iterdir()}
    assert names == {"model.safetensors", "config.json", "README.md"}
    options = json.loads(Path(small_runs[f"{task}_config"]).read_text())
    assert options.items() <= json.loads((exported / task / "config.json").read_text()).items()


@pytest.mark.parametrize("task", MAIN)
def test_the_card_names_results_and_command_and_its_code_runs(
    task, small_runs, exported, monkeypatch, capsys
):
    card = (exported / task / "README.md").read_text()
    results = json.loads(Path(small_runs[f"{task}_run"], "results.json").read_text())
    measured = [results["accuracy"]] if "accuracy" in results else [results["test_perplexity"]]
    measured += [scores["model"] for scores in results.get("span_f1", {}).values()]
    for number in measured:
        assert f"{number:.4f}" in card or f"{number:.2f}" in card
    assert re.search(rf"python -m tasks\.{task} train .*--seed 1", card)
    assert huggingface_hub.ModelCard(card).data.library_name == "ordered-memory"
    monkeypatch.chdir(exported / task)
    exec(re.search(r"```python\n(.*?)```", card, re.DOTALL)[1], {})
    assert capsys.readouterr().out


def test_the_command_of_a_card_is_that_of_the_run(small_runs, exported):
    from tasks.listops.config import PRESETS, ListOpsConfig
    from tasks.runs.command_line import parse

    card = (exported / "listops" / "README.md").read_text()
    words = re.search(r"python -m tasks\.listops train (.*)", card)[1].split()
    found = parse(ListOpsConfig, words, "train", PRESETS["paper"])
    found.run_dir = Path(small_runs["listops_run"])
    assert found == ListOpsModel.from_pretrained(exported / "listops").config


@pytest.mark.parametrize(
    ("task", "models"),
    [
        *((task, ("ordered-memory", "crvnn", "gold-tree-rnn", "onlstm", "lstm")) for task in CLASSIFIERS),
        ("language_model", ("onlstm", "lstm", "prpn")),
    ],
)
def test_the_command_of_a_card_trains_the_model_of_its_preset(task, models, tmp_path):
    train = import_module(f"tasks.{task}.__main__").SUBCOMMANDS["train"]
    for model in models:
        for preset in train.presets(model).values():
            config = replace(preset, model=model)
            command = model_card_values(task, tmp_path / "model", config, train.presets, str)["command"]
            words = shlex.split(command.removeprefix(f"python -m tasks.{task} train "))
            assert parse_run(train.config, train.presets, words, "train") == config


def test_the_command_of_a_task_with_one_preset_does_not_name_it(tmp_path):
    @dataclass
    class OwnConfig:
        model: str = "lstm"
        seed: int = 1
        epochs: int = 50

    def presets(model):
        return {"default": OwnConfig()}

    command = model_card_values("own", tmp_path / "model", OwnConfig(epochs=3), presets, str)["command"]
    assert command == "python -m tasks.own train --seed 1 --epochs 3"


def test_other_subcommands_take_a_directory(exported, capsys):
    assert MAIN["listops"](["predict", "[SM 7 8 ]", "--checkpoint", str(exported / "listops")]) == 0
    assert MAIN["language_model"](["evaluate", "--checkpoint", str(exported / "language_model")]) == 0
    assert "perplexity" in capsys.readouterr().out


def test_a_name_is_looked_up_on_the_hub_unless_it_is_a_path(exported, monkeypatch, tmp_path):
    asked = []

    def snapshot_download(name, *, allow_patterns, **options):
        asked.append((name, options))
        if name != "owner/listops":
            raise FileNotFoundError("404")
        assert sorted(allow_patterns) == ["config.json", "model.safetensors"]
        return str(exported / "listops")

    monkeypatch.setattr("tasks.runs.hub.snapshot_download", snapshot_download)
    model = ListOpsModel.from_pretrained("owner/listops", revision="v1")
    assert_same_weights(model, ListOpsModel.from_pretrained(exported / "listops"))
    assert asked == [("owner/listops", {"revision": "v1"})]
    with pytest.raises(UserError, match=r"owner/none: no such file or directory, and .* \(404\)"):
        ListOpsModel.from_pretrained("owner/none")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "listops").mkdir(parents=True)
    for path in ("owner/listops", "owner/best.safetensors", "runs/listops/demo/best.safetensors"):
        assert find_checkpoint(path) == Path(path)
    assert len(asked) == 2


def test_an_option_that_does_not_exist_is_an_error_for_a_path_too():
    for model, path in ((ListOpsModel, LISTOPS), (SentimentModel, PRETRAINED[2])):
        with pytest.raises(TypeError, match="from_pretrained has no option num_slots"):
            model.from_pretrained(path, num_slots=3)
        model.from_pretrained(path, revision="v1", local_files_only=True)


def test_a_language_model_comes_from_the_hub_file_by_file(exported, monkeypatch):
    def hf_hub_download(repo_id, filename, **options):
        assert (repo_id, options["revision"]) == ("owner/model", "v1")
        return str(exported / "language_model" / filename)

    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", hf_hub_download)
    monkeypatch.setattr(hub, "hf_hub_download", hf_hub_download)
    model = LanguageModel.from_pretrained("owner/model", revision="v1")
    assert_same_weights(model, LanguageModel.from_pretrained(exported / "language_model"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "config.json, line 1: not JSON"),
        ("[]", "its header is not a JSON object"),
        ('{"slot_size": "many"}', "slot_size: expected int, got 'many'"),
        ('{"colour": 1}', "unknown option 'colour'"),
        (None, "config.json: no such file"),
    ],
)
def test_a_damaged_config_is_one_clear_error(content, reason, exported, tmp_path, capsys):
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "model.safetensors").write_bytes((exported / "listops" / "model.safetensors").read_bytes())
    if content is not None:
        (damaged / "config.json").write_text(content)
    with pytest.raises(UserError, match=re.escape(str(damaged))) as caught:
        ListOpsModel.from_pretrained(damaged)
    assert reason in str(caught.value)
    assert MAIN["listops"](["predict", "3", "--checkpoint", str(damaged)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_export_writes_over_nothing(exported, capsys):
    before = (exported / "listops" / "README.md").read_text()
    assert MAIN["listops"](["export", str(exported / "listops")]) == 2
    assert "must be a new directory or an empty one" in capsys.readouterr().err
    assert (exported / "listops" / "README.md").read_text() == before


@pytest.mark.parametrize(
    ("name", "texts", "answer"),
    [
        ("listops", ["[MAX 2 9 [MIN 4 7 ] 0 ]"], "9"),
        ("logic", ["( a ( and b ) )", "( a ( or b ) )"], "< forward entailment"),
        ("sst2", ["a film without a single good idea"], "- negative"),
    ],
)
def test_the_shipped_models_answer_in_a_line(name, texts, answer):
    assert pretrained(name).answer(*texts).answer == answer


@pytest.mark.parametrize(
    ("name", "texts", "message"),
    [
        ("listops", ["1", "2"], r"expected 1 expression as text, got \('1', '2'\)"),
        ("listops", [5], r"expected 1 expression as text, got \(5,\)"),
        ("logic", ["( a )"], r"expected 2 formulas as text, got \('\( a \)',\)"),
        ("sst2", ["good", "bad"], r"expected 1 sentence as text, got \('good', 'bad'\)"),
    ],
)
def test_an_answer_is_for_one_example(name, texts, message):
    with pytest.raises(UserError, match=message):
        pretrained(name).answer(*texts)


def test_a_shipped_model_is_exported_with_its_words(tmp_path):
    model = pretrained("sst5")
    model.save_pretrained(tmp_path)
    copy = SentimentModel.from_pretrained(tmp_path)
    assert torch.equal(copy.embedding.weight, model.embedding.weight)
    assert copy.answer("neither bad nor dull") == model.answer("neither bad nor dull")
    assert PRETRAINED[5].exists()


def test_an_unknown_name_is_said():
    with pytest.raises(UserError, match="one of listops, logic, sst2, sst5, got 'mnist'"):
        pretrained("mnist")
