"""`LanguageModel` alone, saved and loaded by huggingface_hub's mixin, and without huggingface_hub."""

import importlib
import importlib.util
import inspect
import pickle
import re
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from torch.nn.utils import parametrizations, prune

from onlstm.language_model import LanguageModel
from ordered_memory import hub

WORDS = ["<eos>", "the", "cat"]


@pytest.fixture
def saved(tmp_path):
    model = LanguageModel(3, 4, 6, 2, chunk_size=2, tied=False, vocabulary=WORDS).eval()
    model.save_pretrained(tmp_path)
    return model, tmp_path


@pytest.mark.parametrize("recurrent", ["onlstm", "lstm"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_model_comes_back(recurrent, tied, tmp_path):
    model = LanguageModel(3, 4, 6, 2, chunk_size=2, recurrent=recurrent, tied=tied, vocabulary=WORDS).eval()
    model.save_pretrained(tmp_path)
    copy = LanguageModel.from_pretrained(tmp_path)
    tokens = torch.tensor([[0, 1], [2, 2], [1, 0]])
    assert copy.vocabulary == WORDS
    assert copy.arguments == model.arguments
    assert torch.equal(copy(tokens).logits, model(tokens).logits)
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "config.json", "README.md"}


def test_a_numpy_number_is_saved(tmp_path):
    LanguageModel(3, 4, 6, 2, chunk_size=2, weight_dropout=np.float32(0.25)).save_pretrained(tmp_path)
    assert LanguageModel.from_pretrained(tmp_path).weight_dropout == 0.25


def test_what_is_saved_is_what_was_given_whatever_becomes_of_it(tmp_path):
    words = list(WORDS)
    model = LanguageModel(3, 4, 6, 2, chunk_size=2, vocabulary=words)
    words.sort(reverse=True)
    model.arguments["vocabulary"].append("dog")
    model.save_pretrained(tmp_path)
    assert LanguageModel.from_pretrained(tmp_path).vocabulary == model.vocabulary == WORDS


@pytest.mark.parametrize(
    "words", ["abc", {"a": 2, "b": 1, "c": 0}, {"a", "b", "c"}, np.array(["a", "b", "c"])]
)
def test_words_without_an_order_that_is_saved_are_refused(words):
    with pytest.raises(TypeError, match="vocabulary must be a list of words, got"):
        LanguageModel(3, 4, 6, 2, chunk_size=2, vocabulary=words)


def test_words_are_strings_and_sizes_may_be_of_numpy(tmp_path):
    with pytest.raises(TypeError, match=r"vocabulary\[2\] must be a string, got 2"):
        LanguageModel(3, 4, 6, 2, chunk_size=2, vocabulary=["a", "b", 2])
    LanguageModel(np.int64(3), 4, np.int32(6), 2, chunk_size=2).save_pretrained(tmp_path)
    assert LanguageModel.from_pretrained(tmp_path).embedding.num_embeddings == 3


@pytest.mark.parametrize("path", ["/nowhere/at/all", "./nowhere"])
def test_a_directory_that_does_not_exist_is_called_that(path):
    with pytest.raises(ValueError, match=re.escape(f"{path}: no such directory, and no name on the Hub")):
        LanguageModel.from_pretrained(path)


@pytest.mark.parametrize("kind", [OSError, FileNotFoundError])
def test_a_name_that_may_be_a_missing_directory_is_called_that(monkeypatch, kind):
    def download(*arguments, **options):
        raise kind("404")

    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", download)
    monkeypatch.setattr("ordered_memory.hub.hf_hub_download", download)
    with pytest.raises(kind, match="404") as error:
        LanguageModel.from_pretrained("runs/nowhere")
    assert error.value.__notes__ == ["'runs/nowhere' is not a directory, so it was looked for on the Hub"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"),
        ("config.json", "[1]"),
        ("config.json", '{"vocabulary_size": "three"}'),
        ("config.json", '{"vocabulary_size": 4, "embedding_size": 4, "chunk_size": 2}'),
        ("config.json", f'{{"vocabulary_size": 4, "num_layers": {2**63}}}'),
        ("config.json", f'{{"vocabulary_size": 4, "num_layers": {10**400}}}'),
        ("config.json", None),
        ("model.safetensors", "text"),
        ("model.safetensors", None),
    ],
)
def test_what_is_damaged_is_one_clear_error(name, content, saved):
    _, directory = saved
    (directory / name).unlink()
    if content is not None:
        (directory / name).write_text(content)
    with pytest.raises(ValueError, match=re.escape(f"{directory}: not a saved LanguageModel")):
        LanguageModel.from_pretrained(directory)


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        (parametrizations.weight_norm, "torch.nn.utils.parametrize.remove_parametrizations"),
        (partial(prune.l1_unstructured, amount=0.5), "torch.nn.utils.prune.remove"),
    ],
)
def test_weights_that_are_not_plain_are_named(change, undo, saved):
    model, directory = saved
    change(model.layers[0], "weight_hh_l0")
    model.save_pretrained(directory)
    with pytest.raises(ValueError, match=rf"layers\.0\.weight_hh_l0.* before saving, call .*{undo}"):
        LanguageModel.from_pretrained(directory)


def test_options_replace_saved_arguments(saved):
    model, directory = saved
    again = LanguageModel.from_pretrained(directory, weight_dropout=0.1, backend="reference")
    assert again.weight_dropout == 0.1
    assert again.arguments == model.arguments | {"weight_dropout": 0.1, "backend": "reference"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"weight_drop": 0.1},
            TypeError,
            "^LanguageModel has no argument weight_drop, only ",
        ),
        ({"weight_dropout": 2}, ValueError, r"^weight_dropout must lie in \[0, 1\], got 2"),
        ({"chunk_size": 4}, ValueError, "^hidden_size=6 must be divisible by chunk_size=4"),
        ({"hidden_size": 8}, RuntimeError, "size mismatch"),
    ],
)
def test_a_wrong_option_is_not_said_to_be_a_damaged_model(saved, options, error, message):
    with pytest.raises(error, match=message):
        LanguageModel.from_pretrained(saved[1], **options)


def test_a_damaged_model_is_named_beside_options(saved):
    _, directory = saved
    (directory / "model.safetensors").write_text("text")
    with pytest.raises(ValueError, match=re.escape(f"{directory}: not a saved LanguageModel")):
        LanguageModel.from_pretrained(directory, backend="reference")


def test_a_pickle_is_never_read(saved):
    model, directory = saved
    (directory / "model.safetensors").unlink()
    torch.save(model.state_dict(), directory / "pytorch_model.bin")
    with pytest.raises(ValueError, match="not a saved LanguageModel"):
        LanguageModel.from_pretrained(directory)


@pytest.mark.parametrize("tied", ["no", None, 1])
def test_whether_weights_are_tied_is_a_bool(tied):
    with pytest.raises(TypeError, match="tied must be True or False, got"):
        LanguageModel(2, 4, 6, chunk_size=2, tied=tied)


def test_words_of_a_vocabulary_are_distinct_and_in_a_list():
    with pytest.raises(ValueError, match="the words of vocabulary must be distinct"):
        LanguageModel(2, vocabulary=["a", "a"])
    with pytest.raises(TypeError, match="vocabulary must be a list of words, got 'ab'"):
        LanguageModel(2, vocabulary="ab")


@pytest.mark.parametrize("recurrent", ["onlstm", "lstm"])
def test_a_pickled_model_is_loaded(tmp_path, recurrent):
    half = np.float32(0.5)
    model = LanguageModel(5, 4, 6, 2, chunk_size=2, recurrent=recurrent, input_dropout=half).eval()
    model.weight_dropout = half
    torch.save(model, tmp_path / "model.pt")
    tokens = torch.tensor([[0], [3]])
    assert torch.equal(torch.load(tmp_path / "model.pt")(tokens).logits, model(tokens).logits)
    again = pickle.loads(pickle.dumps(model))
    assert (again.input_dropout, again.weight_dropout) == (0.5, 0.5)


def test_a_pickled_model_with_words_of_numpy_is_loaded(tmp_path):
    words = list(np.unique(["cat", "a", "cat"]))
    model = LanguageModel(2, 4, 6, chunk_size=2, vocabulary=words)
    assert model.vocabulary == model.arguments["vocabulary"] == words
    torch.save(model, tmp_path / "model.pt")
    assert torch.load(tmp_path / "model.pt").vocabulary == ["a", "cat"]


def test_a_file_is_no_saved_model(tmp_path):
    (tmp_path / "best.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="expected a directory, as `save_pretrained` writes it, got a file"):
        LanguageModel.from_pretrained(tmp_path / "best.safetensors")


def test_the_vocabulary_must_have_a_word_for_every_id():
    with pytest.raises(ValueError, match="vocabulary_size=4 words, got 3"):
        LanguageModel(4, 4, 6, chunk_size=2, vocabulary=WORDS)


def test_without_huggingface_hub_the_error_says_what_to_install(monkeypatch, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "huggingface_hub" else found(name)
    )
    spec = importlib.util.spec_from_file_location("hub_without_huggingface_hub", hub.__file__)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class Model(torch.nn.Module, module.HubMixin, pipeline_tag="text-generation"):
        pass

    assert Model().arguments == {}
    for call in (lambda: Model().save_pretrained(tmp_path), lambda: Model.from_pretrained(tmp_path)):
        with pytest.raises(ImportError, match=r"pip install '\.\[hub\]'"):
            call()
    assert not list(tmp_path.iterdir())


class Named(torch.nn.Module, hub.HubMixin):
    def __init__(self, first, *more, width=8, extra=0, **others):
        super().__init__()
        self.given = (first, more, width, extra, others)
        self.linear = torch.nn.Linear(1, 1)


def test_arguments_have_their_own_names_whatever_args_receives(tmp_path):
    model = Named(1, width=2, depth=3)
    assert model.arguments == {"first": 1, "width": 2, "extra": 0, "depth": 3}
    model.save_pretrained(tmp_path / "saved")
    assert Named.from_pretrained(tmp_path / "saved").given == (1, (), 2, 0, {"depth": 3})
    nameless = Named(1, 4, 5)
    assert nameless.arguments == {"first": 1, "width": 8, "extra": 0}
    with pytest.raises(
        ValueError, match=r"Named was built with values of \*args, which cannot be saved: \(4, 5\)"
    ):
        nameless.save_pretrained(tmp_path / "nameless")
    assert not (tmp_path / "nameless").exists()


@pytest.mark.parametrize("name", ["config", "token", "revision", "cache_dir"])
def test_an_argument_with_a_name_of_the_download_cannot_be_saved(name, tmp_path):
    def init(self, first=1, **options):
        torch.nn.Module.__init__(self)

    init.__signature__ = inspect.Signature(
        [
            inspect.Parameter(of, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
            for of in ("self", "first", name)
        ]
    )
    kind = type("Kind", (torch.nn.Module, hub.HubMixin), {"__init__": init})
    with pytest.raises(ValueError, match=f"Kind cannot be saved: the argument {name} of its constructor"):
        kind().save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_dict_with_other_keys_than_strings_is_not_saved():
    assert Named(1, table={1: "a"}, names={"a": [{"b": 1}]}).arguments == {
        "first": 1,
        "width": 8,
        "extra": 0,
        "names": {"a": [{"b": 1}]},
    }
    assert "table" not in Named(1, table=[{1: "a"}]).arguments


class Activated(torch.nn.Module, hub.HubMixin):
    def __init__(self, first=None, activation="tanh", other=torch.tanh, **more):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"activation": torch.sigmoid}, "activation"),  # loaded with "tanh"
        ({"other": torch.sigmoid, "first": np.zeros(2)}, "first, other"),
        ({"first": {1: "a"}}, "first"),
        ({"another": torch.sigmoid}, "another"),
    ],
)
def test_an_argument_that_is_not_saved_is_told_where_a_default_would_replace_it(options, names, tmp_path):
    with pytest.warns(UserWarning, match=f"Activated is saved without {names}: not JSON") as warned:
        Activated(**options).save_pretrained(tmp_path)
    assert warned[0].filename == __file__
    Activated.from_pretrained(tmp_path)


class Wrapped(torch.nn.Module, hub.HubMixin):
    def __init__(self, encoder, size=1):
        super().__init__()
        self.encoder = encoder


def test_a_module_as_an_argument_is_to_be_given_again(tmp_path):
    Wrapped(torch.nn.Linear(1, 1)).save_pretrained(tmp_path)
    for options in ({}, {"size": 2}):
        with pytest.raises(ValueError, match=r"'encoder'; .*: give other arguments to from_pretrained\)$"):
            Wrapped.from_pretrained(tmp_path, **options)
    assert Wrapped.from_pretrained(tmp_path, encoder=torch.nn.Linear(1, 1)).arguments == {"size": 1}
    with pytest.raises(ValueError, match=r": not a saved Wrapped, or not with the given arguments \(.* size"):
        Wrapped.from_pretrained(tmp_path, encoder=torch.nn.Linear(2, 1))


def test_what_a_copy_needs_not_is_not_told(tmp_path):  # warnings are errors
    Activated(first=torch.float64, other=torch.tanh, more=torch.device("cpu")).save_pretrained(tmp_path / "a")
    Named(torch.sigmoid).save_pretrained(tmp_path / "b")  # it has no default, so that loading raises an error
    with pytest.raises(ValueError, match="missing 1 required positional argument: 'first'"):
        Named.from_pretrained(tmp_path / "b")


@pytest.mark.parametrize("recurrent", ["onlstm", "lstm"])
@pytest.mark.parametrize("training", [False, True])
def test_a_state_that_is_no_pair_is_a_type_error(recurrent, training):
    model = LanguageModel(3, 4, 6, 2, chunk_size=2, recurrent=recurrent, weight_dropout=0.5).train(training)
    h = torch.zeros(1, 2, 6)
    for state in ([h, h], [(h,), (h,)], [(h, 1), (h, 1)]):
        with pytest.raises(TypeError, match=r"^state\[0\] must be a pair of tensors \(h, c\), or None, got "):
            model(torch.zeros(2, 2, dtype=torch.int64), state)


def test_a_model_on_the_hub_is_downloaded_with_the_options_that_are_given(saved, monkeypatch):
    model, directory = saved
    given = {"revision": "v1", "cache_dir": "cache", "force_download": True, "local_files_only": True}
    downloaded = {}

    def download(repo_id, filename, **options):
        downloaded[repo_id, filename] = options
        return str(directory / filename)

    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", download)
    monkeypatch.setattr("ordered_memory.hub.hf_hub_download", download)
    loaded = LanguageModel.from_pretrained("someone/model", weight_dropout=0.5, token="secret", **given)
    assert loaded.arguments == model.arguments | {"weight_dropout": 0.5}
    assert torch.equal(loaded.embedding.weight, model.embedding.weight)
    assert downloaded["someone/model", "model.safetensors"] == given | {"token": "secret"}


@pytest.mark.parametrize(
    ("spec", "file", "module"),
    [
        (ModuleSpec("models.train", None), "/models/train.py", "models.train"),  # python -m models.train
        (None, "/models/train.py", "train"),
        (None, None, "__main__"),  # typed at a prompt
    ],
)
def test_a_model_card_imports_a_class_of_a_program_by_the_name_of_its_file(spec, file, module, monkeypatch):
    main = ModuleType("__main__")
    main.__spec__ = spec
    if file is not None:
        main.__file__ = file
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(Named, "__module__", "__main__")
    assert f"\nfrom {module} import Named\n" in Named(1).generate_model_card().content


def test_an_unreachable_hub_is_an_os_error(monkeypatch):
    def unreachable(*_arguments, **_options):
        raise LocalEntryNotFoundError("cannot find the requested files in the local cache")

    monkeypatch.setattr("ordered_memory.hub.hf_hub_download", unreachable)
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", unreachable)
    with pytest.raises(OSError, match="local cache"):
        LanguageModel.from_pretrained("nobody/nothing")


def test_the_kind_of_layer_is_one_of_two():
    with pytest.raises(ValueError, match="recurrent must be one of onlstm, lstm, got 'gru'"):
        LanguageModel(3, 4, 6, 2, recurrent="gru")


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("training", [False, True])
def test_an_lstm_refuses_a_state_of_another_batch_size(batch_size, training):
    model = LanguageModel(3, 4, 6, 2, recurrent="lstm", weight_dropout=0.5).train(training)
    state = model(torch.zeros(2, batch_size, dtype=torch.int64)).state
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size"):
        model(torch.zeros(2, 2, dtype=torch.int64), state)
