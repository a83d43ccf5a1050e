"""The sentiment model: words of any batch, every encoder, vectors that are fixed or learned."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch

from tasks.classifiers.config import BIDIRECTIONAL, ModelName
from tasks.classifiers.word_embedding import WordEmbedding
from tasks.runs.checkpoints import save_tensors
from tasks.runs.errors import UserError
from tasks.sst.config import SentimentConfig, presets_of
from tasks.sst.dataset import PhraseData, unlabeled_phrases
from tasks.sst.embedding import SHARED, describe, restore
from tasks.sst.grammar import generate
from tasks.sst.model import SentimentModel
from tasks.sst.treebank import phrases
from tests.tasks.classifiers.tiny import TINY, assert_batch_mates_change_nothing, assert_every_weight_learns

SMALL = SentimentConfig(vectors=("none",), **TINY)
MODELS = [
    *((name, False) for name in get_args(ModelName)),
    *((name, True) for name in BIDIRECTIONAL),
]


@pytest.fixture(scope="module")
def data():
    trees = generate(6, seed=1)
    return PhraseData(trees, phrases(trees, 2), include_trees=True)


@pytest.fixture(scope="module")
def vocabulary(data):
    return sorted({word.lower() for tree in data.trees for word in tree.words})


def learned(vocabulary):
    return WordEmbedding(vocabulary, 6, learned=True)


@pytest.mark.parametrize(("name", "bidirectional"), MODELS)
def test_neither_padding_nor_batch_mates_change_an_answer(name, bidirectional, data, vocabulary):
    config = replace(SMALL, model=name, bidirectional=bidirectional)
    assert_batch_mates_change_nothing(SentimentModel(config, learned(vocabulary)), data)


@pytest.mark.parametrize(("name", "bidirectional"), MODELS)
def test_every_weight_learns(name, bidirectional, data, vocabulary):
    config = replace(SMALL, model=name, bidirectional=bidirectional)
    assert_every_weight_learns(SentimentModel(config, learned(vocabulary)), data)


def test_the_mask_of_the_vectors_is_one_for_all_words_of_a_phrase():
    model = SentimentModel(
        replace(SMALL, model="mean", input_dropout=0.5), WordEmbedding(["good"], 400)
    ).train()
    with torch.no_grad():
        model.embedding.weight.fill_(1.0)
    found = []
    model.classifier.register_forward_pre_hook(lambda module, inputs: found.append(inputs[0]))
    words = [["good"] * 5, ["good"] * 3]
    batch = unlabeled_phrases(words[0], (0, (1, (2, (3, 4)))), [(0, 4), (3, 4)]).batch([0, 1])
    model(batch)
    assert set(found[0].unique().tolist()) == {0.0, 2.0}  # a mean of different masks would have others
    assert not torch.equal(found[0][0], found[0][1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_vector_of_an_unknown_word_is_the_same_in_every_dtype(dtype):
    embedding = WordEmbedding(["good", "bad"], 4)
    embedding.weight.copy_(torch.tensor([[1.0, 2, 3, 4], [3, 2, 1, 0]]))
    expected = embedding([["odd"]])
    found = embedding.to(dtype)([["odd"]])
    assert found.dtype == dtype
    assert torch.equal(found, expected.to(dtype))


def test_words_without_a_vector():
    fixed = WordEmbedding(["good", "bad"], 4)
    fixed.weight.copy_(torch.arange(8.0).view(2, 4))
    rows = fixed([["Good", "goood"], ["goood"]])
    assert rows[0, 0].tolist() == [0, 1, 2, 3]
    assert torch.equal(rows[0, 1], rows[1, 0])
    assert rows[0, 1].abs().sum() > 0
    assert rows[1, 1].tolist() == [0, 0, 0, 0]
    assert torch.equal(fixed([["baad", "goood"]])[0, 1], rows[0, 1])  # whatever else is unknown
    assert fixed.unknown(["Bad", "Baad", "baad"]) == ["baad"]
    fixed.extend(["baad"], torch.full((1, 4), 7.0))
    assert torch.equal(fixed([["goood"]])[0, 0], rows[0, 1])  # whatever else is known
    assert fixed([["Baad", "bad"]])[0].tolist() == [[7, 7, 7, 7], [4, 5, 6, 7]]
    trained = WordEmbedding(["good", "bad"], 4, learned=True)
    rows = trained([["goood", "baad"]])
    assert torch.equal(rows[0, 0], rows[0, 1])
    assert torch.equal(rows[0, 0], trained.weight[2])


@pytest.mark.parametrize("sentences", [["a good film"], "good", [["good"], "film"]])
def test_a_text_in_place_of_words_is_refused(sentences):
    with pytest.raises(TypeError, match="sentences must be lists of words, got the text '"):
        WordEmbedding(["good"], 4)(sentences)


@pytest.mark.parametrize("learned", [False, True])
def test_words_of_plain_text_have_the_vectors_of_the_treebanks_spelling(learned):
    words = ["-lrb-", "-rrb-", "and\\/or", "\\*", "a/b", "a\\/b"]
    embedding = WordEmbedding(words, 4, learned=learned)
    with torch.no_grad():
        embedding.weight[: len(words)] = torch.arange(24.0).view(6, 4)
    plain = ["(", ")", "And/Or", "*", "a/b"]
    assert embedding.unknown([*plain, "/"]) == ["/"]
    assert torch.equal(embedding([plain]), embedding([words[:5]]))  # a word as it is written comes first
    assert embedding([["*"]])[0, 0].tolist() == [12, 13, 14, 15]
    assert torch.equal(embedding([["odd/even"]]), embedding([["odd\\/even"]]))  # without a vector, too


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It isn’t good.", "It is n't good ."),
        ("It is awful. Do not go.", "It is awful . Do not go ."),
        ("No. It is the No. 1 film.", "No . It is the No. 1 film ."),
        ("“Awful.” Mr. Bean… (etc.) – no—bad", "`` Awful . '' Mr. Bean ... ( etc. ) -- no -- bad"),
        ("It 's `` n't '' good -LRB- ... -RRB- \\* .", "It 's `` n't '' good -LRB- ... -RRB- \\* ."),
    ],
)
def test_typed_text_is_split_as_the_treebank(text, words):
    assert SentimentModel.read_text(text).words_of(0) == words.split()


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(UserError, match=r"the sentence: expected Unicode text, got '\\ud800' as character 6"):
        SentimentModel.read_text("good \ud800")


def test_fixed_vectors_are_saved_and_not_trained():
    model = SentimentModel(SMALL, WordEmbedding(["good"], 6))
    assert "embedding.weight" in model.state_dict()
    assert "embedding.weight" not in dict(model.named_parameters())
    again = restore(replace(SMALL, vectors=("vectors.txt",)), describe(model.embedding))
    assert (again.vocabulary, again.embedding_size, again.learned) == (["good"], 6, False)


def test_a_saved_model_has_the_random_vectors_that_it_had_before_words_were_added():
    embedding = WordEmbedding(["good", "bad"], 6)
    embedding.weight.copy_(torch.randn(2, 6))
    before = embedding([["odd"]])
    embedding.extend(["fine"], torch.full((1, 6), 100.0))
    again = restore(replace(SMALL, vectors=("vectors.txt",)), describe(embedding))
    again.load_state_dict(embedding.state_dict())
    assert torch.equal(again([["odd"]]), before)
    assert torch.equal(again([["Fine"]]), embedding([["fine"]]))


@pytest.mark.parametrize(
    "description",
    [
        *(None, {}, {"vocabulary": ["a"]}, {"fingerprint": "x"}, [1]),
        *({"vocabulary": ["a"], "size": 0}, {"vocabulary": [], "size": 6}, {"vocabulary": [1], "size": 6}),
        *({"vocabulary": ["a"], "size": 6, "num_initial_words": count} for count in (0, 2, "1")),
    ],
)
def test_a_model_that_is_not_described_is_refused(description):
    with pytest.raises(UserError, match="does not describe its embedding"):
        restore(SMALL, description)


def test_shared_vectors_are_not_learned():
    with pytest.raises(UserError, match="--vectors none: the word vectors of this model are from files"):
        restore(SMALL, SHARED)


def test_shared_vectors_have_the_random_ones_that_they_had_before_words_were_added(tmp_path, monkeypatch):
    path = tmp_path / "words.safetensors"
    monkeypatch.setattr("tasks.sst.embedding.WORDS", path)
    embedding = WordEmbedding(["good", "bad"], 6)
    embedding.weight.copy_(torch.randn(2, 6))
    before = embedding([["odd"]])
    embedding.extend(["fine"], torch.full((1, 6), 100.0))
    save_tensors(path, {"weight": embedding.weight}, describe(embedding))
    again = restore(replace(SMALL, vectors=("vectors.txt",)), SHARED)
    assert torch.equal(again([["odd"]]), before)


def test_of_words_that_have_vectors_nothing_is_told(capsys):
    SentimentModel(SMALL, WordEmbedding(["good"], 6)).adapt(SentimentModel.read_text("Good good"))
    assert not capsys.readouterr().err


def test_a_node_has_the_value_of_its_phrase(vocabulary):
    model = SentimentModel(replace(SMALL, classes=5), learned(vocabulary)).eval()
    tree = generate(1, seed=5)[0]
    data = PhraseData([tree], phrases([tree], 5))
    [sentence] = data.sentences(len(data.labels) - 1)
    values = model.node_values(sentence, tree.tree)
    assert values.keys() == tree.labels.keys()
    for index, phrase in enumerate(data.examples):
        probabilities = model(data.batch([index])).logits.softmax(-1)[0]
        expected = (probabilities * torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0])).sum()
        assert values[phrase.first, phrase.last] == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fine_tune": True}, "--fine-tune trains the weights of --encoder"),
        (
            {"fine_tune": True, "encoder": "bert", "encoder_learning_rate": 0.0},
            "--encoder-learning-rate must",
        ),
        ({"vectors": ("none", "a.txt")}, "--vectors none stands alone"),
        ({"vectors": ()}, "--vectors must name a file"),
        ({"model": "mean", "bidirectional": True}, "--bidirectional needs --model ordered-memory"),
        ({"model": "onlstm", "chunk_size": 3}, "--slot-size 8 must be divisible by --chunk-size 3"),
        ({"generated": -1}, "--generated must not be negative"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        replace(SMALL, **options).check()


@pytest.mark.parametrize(
    ("options", "unused", "architecture"),
    [
        ({"vectors": ("none",)}, {"encoder_learning_rate"}, {"encoder": None, "vectors": ("none",)}),
        ({"generated": 5}, {"encoder_learning_rate", "embedding_size"}, {"encoder": None}),
        ({"encoder": "bert"}, {"encoder_learning_rate", "embedding_size", "vectors"}, {}),
        ({"encoder": "bert", "fine_tune": True}, {"embedding_size", "vectors"}, {}),
        (
            {"data_dir": Path("trees"), "generated": 5},
            {"encoder_learning_rate", "embedding_size", "generated"},
            {"encoder": None},
        ),
    ],
)
def test_what_embeds_the_words_decides_which_options_have_an_effect(options, unused, architecture):
    config = SentimentConfig(**options)
    names = ("vectors", "encoder", "embedding_size", "encoder_learning_rate", "generated")
    assert {name for name in names if name in config.unused} == unused
    found = {name: value for name, value in config.architecture.items() if name in ("vectors", "encoder")}
    assert found == architecture
    assert config.architecture["classes"] == 2


def test_crvnn_has_the_preset_of_its_own_paper():
    ours, theirs = presets_of(None), presets_of("crvnn")
    assert (ours["paper"].cell_dropout, ours["paper"].output_dropout) == (0.2, 0.4)
    assert (theirs["paper"].cell_dropout, theirs["paper"].output_dropout) == (0.4, 0.2)
    assert theirs["small"] == ours["small"]
    theirs["paper"].check()
