"""Models in 16 bits over one table of words, as the project ships them."""

import pytest
import torch

from tasks.runs.checkpoints import read_metadata
from tasks.runs.errors import UserError
from tasks.sst.__main__ import main
from tasks.sst.dataset import PhraseData
from tasks.sst.embedding import WORDS
from tasks.sst.export import export
from tasks.sst.grammar import generate
from tasks.sst.model import SentimentModel
from tasks.sst.task import PRETRAINED
from tasks.sst.treebank import sentences

TINY = [
    *("--generated", "60", "--epochs", "1", "--batch-size", "64", "--phrases", "sentences"),
    *("--slot-size", "8", "--num-slots", "3"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two models over the same vectors, and one over others."""
    directory = tmp_path_factory.mktemp("runs")
    words = sorted({word.lower() for tree in generate(60, 1) for word in tree.words})
    for name, size in (("a.txt", 3), ("b.txt", 3)):
        rows = torch.randn(len(words), size).tolist()
        lines = [" ".join([word, *map(str, row)]) for word, row in zip(words, rows, strict=True)]
        (directory / name).write_text("\n".join(lines) + "\n")
    for name, options in {
        "2": ["--classes", "2", "--vectors", str(directory / "a.txt")],
        "5": ["--classes", "5", "--vectors", str(directory / "a.txt")],
        "other": ["--classes", "5", "--vectors", str(directory / "b.txt")],
        "learned": ["--classes", "2", "--vectors", "none"],
    }.items():
        assert main(["train", "--run-dir", str(directory / name), *TINY, *options]) == 0
    start = ["--initial-weights", str(directory / "5" / "best.safetensors")]
    assert main(["train", "--run-dir", str(directory / "5 on"), *TINY, "--classes", "5", *start]) == 0
    return {name: directory / name / "best.safetensors" for name in ("2", "5", "5 on", "other", "learned")}


def test_exported_models_answer_as_before(runs, tmp_path, monkeypatch):
    trained = {2: runs["2"], 5: runs["5 on"]}
    assert SentimentModel.from_pretrained(trained[5]).config.initial_weights == runs["5"]
    export(trained, ("glove.txt",), tmp_path)
    monkeypatch.setattr("tasks.sst.embedding.WORDS", tmp_path / "words.safetensors")
    drawn = generate(30, 9)
    batch = PhraseData(drawn, sentences(drawn, 5)).batch(range(30))
    for classes in (2, 5):
        before = SentimentModel.from_pretrained(trained[classes])
        after = SentimentModel.from_pretrained(tmp_path / PRETRAINED[classes].name)
        assert after.config.vectors == ("glove.txt",)
        assert after.config.run_dir is None
        assert after.config.initial_weights is None
        with torch.inference_mode():
            assert torch.allclose(before(batch).logits, after(batch).logits, atol=0.02)
        assert before(batch).logits.shape == (30, classes)


def test_learned_embeddings_are_not_shared(runs, tmp_path):
    with pytest.raises(UserError, match="its word vectors are not from files"):
        export({2: runs["learned"]}, ("glove.txt",), tmp_path)


def test_models_over_different_vectors_are_not_exported_together(runs, tmp_path):
    with pytest.raises(
        UserError, match="its vocabulary or its vectors differ from those of the other models"
    ):
        export({2: runs["2"], 5: runs["other"]}, ("glove.txt",), tmp_path)
    assert not list(tmp_path.iterdir())  # the files that are there belong together


@pytest.mark.parametrize(
    ("sentence", "answer"),
    [
        ("neither bad nor dull", "+"),
        ("it's not very funny, but the cast is wonderful", "+"),
        ("the cast is wonderful, but it's not very funny", "-"),
        ("a film without a single good idea", "-"),
    ],
)
@pytest.mark.parametrize("classes", [2, 5])
def test_the_shipped_models_answer_without_being_named(sentence, answer, classes, capsys):
    assert main(["predict", sentence, "--classes", str(classes)]) == 0
    assert capsys.readouterr().out.split()[1] in (answer, 2 * answer)


def test_the_shipped_models_are_small_and_name_no_directory():
    files = [WORDS, *PRETRAINED.values()]
    assert sum(path.stat().st_size for path in files) <= 12_000_000
    for path in PRETRAINED.values():
        metadata = read_metadata(path)
        assert metadata["run_dir"] is metadata["data_dir"] is None
        assert not any("/" in name for name in metadata["vectors"])
