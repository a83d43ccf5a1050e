"""Fixtures of these tests."""

import pytest

from tasks.language_model.corpus import load_corpus
from tasks.language_model.vocabulary import Vocabulary
from tests.tasks.parsing.tiny import SMALL, TREES, checkpoint


@pytest.fixture(scope="session")
def directory(tmp_path_factory):
    """Checkpoints of a text and of drawn sentences, and a treebank."""
    path = tmp_path_factory.mktemp("parsing")
    words = Vocabulary(["<eos>", "<unk>", "N", "the", "cat", "dog", "sees", "of", "that"])
    checkpoint(path / "text.safetensors", words, data_dir=path)
    checkpoint(path / "lstm.safetensors", words, data_dir=path, model="lstm")
    checkpoint(path / "prpn.safetensors", words, data_dir=path, model="prpn")
    checkpoint(path / "no_unknown.safetensors", Vocabulary(["<eos>", "the", "cat"]), data_dir=path)
    checkpoint(path / "drawn.safetensors", load_corpus(SMALL).vocabulary)
    (path / "trees.mrg").write_text(TREES)
    (path / "bad.mrg").write_text("(S (NN a))\n(S (NN b)))")
    return path
