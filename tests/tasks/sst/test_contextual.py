"""Word vectors of a tiny encoder made on the spot; nothing here may reach the network."""

import json
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.runs.errors import UserError
from tasks.spelling.escapes import undo_escapes
from tasks.sst.config import SentimentConfig
from tasks.sst.contextual import ContextualEmbedding, PieceTokenizer
from tasks.sst.dataset import unlabeled_sentences
from tasks.sst.model import SentimentModel
from tests.tasks.sst.tiny_encoder import LONGEST, PIECES, import_transformers, write_encoder, write_tokenizer
from tests.tolerances import assert_close

transformers = import_transformers()
ByteLevel = pytest.importorskip("tokenizers.pre_tokenizers").ByteLevel
pytestmark = pytest.mark.usefixtures("no_network")

SENTENCES = [["a", "good", "film"], ["Badly"], ["films", ",", "goodly", "films", ","]]


@pytest.fixture
def frozen(encoder_directory):
    return ContextualEmbedding(str(encoder_directory))


@pytest.fixture
def copy(encoder_directory, tmp_path):
    """A copy of the encoder that a test may spoil."""
    return shutil.copytree(encoder_directory, tmp_path / "copy")


def test_an_encoder_that_states_no_limit_reads_as_many_pieces_as_it_has_positions(copy, tmp_path):
    config = json.loads((copy / "tokenizer_config.json").read_text())
    del config["model_max_length"]
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    assert PieceTokenizer(str(copy)).max_pieces == LONGEST
    assert PieceTokenizer(str(write_roberta(tmp_path / "roberta"))).max_pieces == LONGEST


@pytest.mark.parametrize(("stated", "limit"), [(LONGEST + 2, LONGEST), (LONGEST + 1, LONGEST), (9, 9)])
def test_an_encoder_reads_no_more_pieces_than_it_has_positions(stated, limit, tmp_path):
    """A tokenizer may state the number of positions, of which those up to padding's are not for pieces."""
    write_roberta(tmp_path, model_max_length=stated)
    assert PieceTokenizer(str(tmp_path)).max_pieces == limit


def test_an_encoder_that_is_stored_in_16_bits_computes_in_32(encoder_directory, copy):
    encoder = transformers.AutoModel.from_pretrained(encoder_directory, local_files_only=True)
    encoder.half().save_pretrained(copy)
    module = ContextualEmbedding(str(copy))
    vectors, _ = module(module.tokenizer.tokenize(SENTENCES))
    expected, _ = ContextualEmbedding(str(encoder_directory))(module.tokenizer.tokenize(SENTENCES))
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors, expected, rtol=0, atol=0.05)


def test_an_encoder_with_relative_positions_reads_what_its_tokenizer_allows(tmp_path):
    """XLNet says -1 positions."""
    module = ContextualEmbedding(str(write_xlnet(tmp_path)))
    assert module.tokenizer.max_pieces == LONGEST
    assert_close(
        module(module.tokenizer.tokenize(SENTENCES))[0][1, :1],
        module(module.tokenizer.tokenize(SENTENCES[1:2]))[0][0],
    )


def test_a_fine_tuned_encoder_may_have_weights_that_are_not_used(tmp_path):
    """XLNet has a vector for words that are masked. DDP has to know of it."""
    module = ContextualEmbedding(str(write_xlnet(tmp_path)), fine_tune=True)
    module(module.tokenizer.tokenize(SENTENCES))[0].sum().backward()
    assert any(parameter.grad is None for parameter in module.parameters())
    for fine_tune in (True, False):
        config = SentimentConfig(model="lstm", encoder=str(tmp_path), fine_tune=fine_tune)
        assert config.may_leave_parameters_unused == fine_tune


def write_xlnet(directory):
    write_tokenizer(directory)
    config = transformers.XLNetConfig(vocab_size=len(PIECES), d_model=8, n_layer=1, n_head=2, d_inner=8)
    transformers.XLNetModel(config).save_pretrained(directory)
    return directory


def write_roberta(directory, **options):
    """Byte-level, with positions that start after padding's; the tokenizer states no limit by default."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces = {piece: number for number, piece in enumerate([*special, *sorted(ByteLevel.alphabet())])}
    transformers.RobertaTokenizer(vocab=pieces, merges=[], **options).save_pretrained(directory)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.RobertaConfig(vocab_size=len(pieces), max_position_embeddings=LONGEST + 2, **sizes)
    transformers.RobertaModel(config).save_pretrained(directory)
    return directory


def texts(pieces, row):
    """The pieces of a sentence as text, without padding."""
    return [PIECES[number] for number in pieces.ids[row, : pieces.lengths[row]].tolist()]


def test_a_piece_knows_its_word(frozen):
    pieces = frozen.tokenizer.tokenize(SENTENCES)
    assert texts(pieces, 2) == ["[CLS]", "film", "##s", ",", "good", "##ly", "film", "##s", ",", "[SEP]"]
    assert pieces.words[2].tolist() == [-1, 0, 0, 1, 2, 2, 3, 3, 4, -1]
    assert texts(pieces, 1) == ["[CLS]", "bad", "##ly", "[SEP]"]
    assert pieces.words[1].tolist() == [-1, 0, 0, *[-1] * 7]
    assert [part.dtype for part in pieces] == [torch.int32, torch.int32, torch.int64]


@pytest.mark.parametrize("word", ["\x00", "", "\u200b", "\n"])
def test_a_word_never_disappears(frozen, word):
    pieces = frozen.tokenizer.tokenize([["good", word, "film", word]])
    assert texts(pieces, 0) == ["[CLS]", "good", "[UNK]", "film", "[UNK]", "[SEP]"]
    assert pieces.words.tolist() == [[-1, 0, 1, 2, 3, -1]]


def test_treebank_spelling_is_undone(frozen):
    pieces = frozen.tokenizer.tokenize([["-LRB-", "``", "a\\/a", "''", "-rrb-"]])
    assert texts(pieces, 0)[1:-1] == ["(", '"', "a", "/", "a", '"', ")"]
    assert [undo_escapes(word) for word in ("'s", "--", "-LCB-", "\\*\\*")] == ["'s", "--", "{", "**"]


def test_a_space_that_is_not_ascii_cuts_no_word(frozen):
    assert frozen.tokenizer.tokenize([["good\u00a0film", "a"]]).words.tolist() == [[-1, 0, 0, 1, -1]]


def test_the_longest_sentence_that_fits_and_one_that_does_not(frozen, encoder_directory):
    fitting = ["a"] * (LONGEST - 2)
    assert frozen(frozen.tokenizer.tokenize([fitting]))[0].shape == (1, LONGEST - 2, 8)
    with pytest.raises(UserError, match=rf"at most {LONGEST} word pieces.* 13 that begins 'a a"):
        frozen.tokenizer.tokenize([["good"], [*fitting, "a"]])
    assert PieceTokenizer(str(encoder_directory)).max_pieces == LONGEST


def test_a_byte_level_encoder_reads_words_one_by_one_up_to_its_limit(tmp_path):
    module = ContextualEmbedding(str(write_roberta(tmp_path)))
    pieces = module.tokenizer.tokenize([["a", "", "b\\/b"], ["a", "bc"]])
    assert pieces.words.tolist() == [[-1, 0, 0, 1, 2, 2, 2, 2, -1], [-1, 0, 0, 1, 1, 1, -1, -1, -1]]
    assert_close(module(pieces)[0][1, :2], module(module.tokenizer.tokenize([["a", "bc"]]))[0][0])
    assert module(module.tokenizer.tokenize([["b" * (LONGEST - 3)]]))[0].isfinite().all()
    with pytest.raises(UserError, match=f"at most {LONGEST} word pieces"):
        module.tokenizer.tokenize([["b" * (LONGEST - 2)]])


@pytest.mark.parametrize("sentences", [[], [["a"], []]])
def test_nothing_to_read_is_an_error(frozen, sentences):
    with pytest.raises(ValueError, match="one word or more"):
        frozen.tokenizer.tokenize(sentences)


def test_words_and_sentences_are_means_of_pieces(encoder_directory):
    module = ContextualEmbedding(str(encoder_directory))
    encoder = transformers.AutoModel.from_pretrained(encoder_directory, local_files_only=True)
    words, sentences = module(module.tokenizer.tokenize(SENTENCES))
    assert words.shape == (3, 5, module.embedding_size)
    for row, sentence in enumerate(SENTENCES):
        one = module.tokenizer.tokenize([sentence])
        with torch.no_grad():
            states = encoder(one.ids.long()).last_hidden_state[0]
        assert_close(sentences[row], states.mean(0))
        for at in range(len(sentence)):
            mine = [state for state, word in zip(states, one.words[0], strict=True) if word == at]
            assert_close(words[row, at], torch.stack(mine).mean(0))
        assert not words[row, len(sentence) :].any()


def test_a_mean_is_of_the_pieces_of_a_sentence_with_one_mask(frozen):
    config = SentimentConfig(model="mean", input_dropout=0.5)
    model, read = SentimentModel(config, frozen), []
    model.classifier.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    batch = unlabeled_sentences(SENTENCES).batch(range(3))
    model.eval()(batch)
    model.train()(batch)
    _, expected = frozen(frozen.tokenizer.tokenize(SENTENCES))
    assert_close(read[0], expected)
    kept = read[1] != 0
    assert 0 < kept.sum() < kept.numel()
    assert_close(read[1], 2 * kept * expected)


def test_neither_batch_mates_nor_padding_matter(frozen):
    together = frozen(frozen.tokenizer.tokenize(SENTENCES))
    for row, sentence in enumerate(SENTENCES):
        alone = frozen(frozen.tokenizer.tokenize([sentence]))
        assert_close(together[0][row, : len(sentence)], alone[0][0])
        assert_close(together[1][row], alone[1][0])


def test_a_frozen_encoder_is_no_part_of_the_model_but_moves_with_it(frozen):
    model = torch.nn.Sequential(frozen, torch.nn.Linear(8, 2))
    assert (
        list(model.state_dict()) == ["1.weight", "1.bias"] == [name for name, _ in model.named_parameters()]
    )
    pieces = frozen.tokenizer.tokenize(SENTENCES)
    before = frozen(pieces)[0]
    model.train()
    after = frozen(pieces)[0]
    assert torch.equal(before, after)  # no dropout
    assert not after.requires_grad
    assert_close(model.double()[0](pieces)[0].float(), before)
    assert model.to("meta")[0].encoder.embeddings.word_embeddings.weight.is_meta


def test_a_fine_tuned_encoder_is_trained_with_its_dropout_and_saved(encoder_directory):
    module = ContextualEmbedding(str(encoder_directory), fine_tune=True)
    pieces = module.tokenizer.tokenize(SENTENCES)
    assert not torch.equal(module(pieces)[0], module(pieces)[0])
    with_graph = []
    hook = module.encoder.register_forward_hook(
        lambda *call: with_graph.append(call[-1].last_hidden_state.requires_grad)
    )
    with torch.no_grad():
        module(pieces)
    module(pieces)
    hook.remove()
    assert with_graph == [False, True]
    module(pieces)[0].square().sum().backward()
    assert all(weight.grad is not None for weight in module.parameters())
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    other = ContextualEmbedding(str(encoder_directory), fine_tune=True)
    other.load_state_dict(module.state_dict())
    assert torch.equal(module.eval()(pieces)[0], other.eval()(pieces)[0])
    assert other.fingerprint == ContextualEmbedding(str(encoder_directory)).fingerprint
    assert {weight.dtype for weight in other.double().parameters()} == {torch.float64}


@pytest.mark.parametrize("name", ["Albert", "SqueezeBert", "Longformer"])
def test_encoders_call_their_poolers_in_several_ways(name, tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    more = {
        "Albert": {"embedding_size": 8},
        "SqueezeBert": {"embedding_size": 8}
        | {f"{part}_groups": 1 for part in ("q", "k", "v", "post_attention", "intermediate", "output")},
        "Longformer": {"attention_window": 4},
    }
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(PIECES), max_position_embeddings=LONGEST + 1, pad_token_id=0, **sizes, **more[name]
    )
    getattr(transformers, f"{name}Model")(config).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    module = ContextualEmbedding(str(tmp_path), fine_tune=True)
    assert not any("pooler" in key for key in module.state_dict())
    vectors, _ = module.eval()(module.tokenizer.tokenize(SENTENCES))
    assert vectors.shape == (3, 5, 8)
    assert_close(vectors[1, :1], module(module.tokenizer.tokenize(SENTENCES[1:2]))[0][0])


@pytest.mark.parametrize("fine_tune", [False, True])
def test_an_encoder_that_mixes_words_with_padding_is_warned_of(
    fine_tune, encoder_directory, tmp_path, capsys
):
    config = transformers.FNetConfig(
        vocab_size=len(PIECES), hidden_size=8, num_hidden_layers=1, intermediate_size=8, pad_token_id=0
    )
    transformers.FNetModel(config).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    module = ContextualEmbedding(str(tmp_path), fine_tune=fine_tune)
    assert module.encoder.training == fine_tune
    module.eval()
    alone, _ = module(module.tokenizer.tokenize([["a", "b"]]))
    padded, _ = module(module.tokenizer.tokenize([["a", "b"], ["a"] * (LONGEST - 2)]))
    change = ((padded[0, :2] - alone[0]).abs().max() / alone.abs().max()).item()
    assert capsys.readouterr().err == (
        f"warning: --encoder {tmp_path}: padding changes the vectors of words, by up to {100 * change:.2f} % "
        "of the largest entry, so results depend on the other sentences of a batch\n"
    )
    assert ContextualEmbedding(str(encoder_directory), fine_tune=fine_tune).encoder.training == fine_tune
    assert not capsys.readouterr().err


def test_the_fingerprint_tells_encoders_apart(frozen, copy, tmp_path):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"transformers_version": "4.0"}))
    assert ContextualEmbedding(str(copy)).fingerprint == frozen.fingerprint
    write_tokenizer(copy, [*PIECES[:-2], *PIECES[:-3:-1]])
    others = [
        copy,
        write_encoder(tmp_path / "weights", seed=1),
        write_encoder(tmp_path / "config", layer_norm_eps=1e-6),
    ]
    found = {ContextualEmbedding(str(other)).fingerprint for other in others}
    assert len(found | {frozen.fingerprint}) == 4


def test_weights_without_a_pooler_are_enough(frozen, tmp_path):
    config = frozen.encoder.config
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "language_model")
    write_tokenizer(tmp_path / "language_model")
    assert ContextualEmbedding(str(tmp_path / "language_model")).embedding_size == 8


def lacks_weights(path):
    weights = path / "model.safetensors"
    loaded = transformers.BertModel.from_pretrained(path).state_dict()
    save_file({name: value for name, value in loaded.items() if "layer.1" not in name}, weights)


def pickles_weights(path):
    weights = path / "model.safetensors"
    torch.save(load_file(weights), path / "pytorch_model.bin")
    weights.unlink()


def encodes_and_decodes(path):
    sizes = {f"{part}_{of}": 2 for part in ("encoder", "decoder") for of in ("layers", "attention_heads")}
    config = transformers.BartConfig(vocab_size=len(PIECES), d_model=8, **sizes)
    transformers.BartModel(config).save_pretrained(path)


def reads_characters(path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.CanineConfig(num_hash_buckets=64, max_position_embeddings=64, **sizes)
    transformers.CanineModel(config).save_pretrained(path)


def replace(name, content):
    return lambda path: (path / name).write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (shutil.rmtree, "there is no such directory|Hugging Face Hub"),
        (lambda path: (path / "config.json").unlink(), "not an encoder that transformers can load"),
        (replace("config.json", b"{"), "not an encoder that transformers can load"),
        (replace("config.json", b'{"model_type": "vit"}'), "not an encoder that transformers can load"),
        (lambda path: (path / "model.safetensors").unlink(), "can load .*model.safetensors"),
        (pickles_weights, "can load .*model.safetensors"),
        (replace("model.safetensors", b"cut"), "not an encoder that transformers can load"),
        (lacks_weights, r"weights lack encoder\.layer\.1\."),
        (encodes_and_decodes, "a bart is not a text encoder"),
        (reads_characters, "a canine has no word pieces"),
        (lambda path: write_tokenizer(path, [*PIECES, "more"]), "more pieces than the encoder has"),
    ],
)
def test_a_directory_that_is_no_encoder_is_refused(copy, spoil, message):
    spoil(copy)
    with pytest.raises(UserError, match=message) as caught:
        ContextualEmbedding(str(copy))
    assert str(copy) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_transformers_the_error_says_what_to_install(encoder_directory, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"--encoder needs transformers: pip install '\.\[contextual\]'"):
        ContextualEmbedding(str(encoder_directory))
