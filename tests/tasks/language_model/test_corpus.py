"""The text: files of words, their vocabulary, and drawn sentences."""

import gzip

import pytest
import torch

from tasks.language_model.corpus import (
    encode_text,
    generate_held_out,
    generate_splits,
    read_corpus,
    read_sentences,
    split_text,
)
from tasks.language_model.grammar import INTRANSITIVE, NOUNS, generate_pairs, generate_sentences
from tasks.language_model.vocabulary import Vocabulary
from tasks.runs.errors import UserError
from tests.tasks.language_model.tiny import options


def test_words_without_unk(tmp_path):
    for name, text in (("train", "a b\nb c\n"), ("valid", "a\n\n"), ("test", "a\nb d\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    with pytest.raises(
        UserError, match=r"test\.txt, line 2: 'd' is not in the vocabulary, which has no <unk>; --min-count 2"
    ):
        read_corpus(tmp_path)
    (tmp_path / "train.txt").write_text("a b\nb <unk>\n")
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a byte order mark is no part of a word
    corpus = read_corpus(tmp_path)
    assert corpus.vocabulary.words == ["<eos>", "a", "b", "<unk>"]
    assert corpus.train.tolist() == [1, 2, 0, 2, 3, 0]
    assert corpus.validation.tolist() == [1, 0, 0]
    assert corpus.test.tolist() == [1, 0, 2, 3, 0]
    (tmp_path / "test.txt.gz").write_bytes(gzip.compress((tmp_path / "test.txt").read_bytes()))
    (tmp_path / "test.txt").unlink()
    assert read_corpus(tmp_path).test.tolist() == corpus.test.tolist()


def test_rare_words_of_the_training_text_become_unk(tmp_path):
    for name, text in (("train", "a b\nb c a\n"), ("valid", "c b\n"), ("test", "a d\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    corpus = read_corpus(tmp_path, min_count=2)
    assert corpus.vocabulary.words == ["<eos>", "a", "b", "<unk>"]
    assert corpus.train.tolist() == [1, 2, 0, 2, 3, 1, 0]
    assert corpus.validation.tolist() == [3, 2, 0]
    assert corpus.test.tolist() == [1, 3, 0]
    (tmp_path / "train.txt").write_text("<unk> a b\nb c a\n")
    assert read_corpus(tmp_path, min_count=2).vocabulary.words == ["<eos>", "<unk>", "a", "b"]
    assert read_corpus(tmp_path, Vocabulary(["<eos>", "<unk>"]), 2).train.tolist() == [1, 1, 1, 0, 1, 1, 1, 0]


def test_a_text_with_eos_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("a b\nc <eos>\n")
    with pytest.raises(UserError, match=r"text\.txt, line 2: expected no <eos>, which is added"):
        read_sentences(tmp_path / "text.txt")


def test_lines_end_at_line_ends_only(tmp_path):
    (tmp_path / "text.txt").write_bytes("a\u2028b \x0c c\r\n\nd\te\u00a0f".encode())
    assert read_sentences(tmp_path / "text.txt") == [["a\u2028b", "c"], [], ["d", "e\u00a0f"]]


def test_the_end_of_a_sentence_is_no_word_of_it():
    with pytest.raises(UserError, match=r"^here: expected no <eos>, which is added at the end of each sent"):
        Vocabulary(["<eos>", "a"]).encode(["a", "<eos>"], "here")


def test_coverage_counts_words_each_time():
    found = Vocabulary(["<eos>", "<unk>", "a"]).coverage([["a", "a", "b"], ["c", "<unk>", "b"]])
    assert (found.words, found.written, found.missing, found.unknown) == (6, 1, 3, 4)
    assert found.known_fraction == 2 / 6
    assert str(found) == ("4 of 6 words are read as <unk>: 1 is written so, 3 are not in the vocabulary")
    assert str(Vocabulary(["<eos>", "a"]).coverage([["a"]])) == "none of 1 word is read as <unk>"


def test_an_empty_part(tmp_path):
    for name, text in (("train", "a b\n"), ("valid", "a\n"), ("test", " \n\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    with pytest.raises(UserError, match=r"test\.txt: has no words"):
        read_corpus(tmp_path)
    (tmp_path / "test.txt").unlink()
    with pytest.raises(UserError, match=r": no test\.txt in this directory"):
        read_corpus(tmp_path)


def test_drawn_sentences_are_the_same_for_a_seed_and_their_trees_fit():
    sentences = generate_sentences(300, 1)
    assert sentences == generate_sentences(300, 1) != generate_sentences(300, 2)
    for sentence in sentences:
        assert ("S", 0, len(sentence.words) - 1) in sentence.labeled_spans
    assert max(len(sentence.words) for sentence in sentences) > 15
    vocabulary = Vocabulary.from_sentences(sentence.words for sentence in sentences)
    assert len(encode_text([sentences[0].words], vocabulary, "")) == len(sentences[0].words) + 1


def test_no_drawn_sentence_is_in_two_parts():
    parts = generate_splits(options(sentences=59, seed=3))
    assert [len(part) for part in parts] == [49, 5, 5]
    drawn = generate_sentences(59, 3)
    assert sorted(sentence for part in parts for sentence in part) == sorted(drawn)


def test_held_out_sentences_are_generated_without_the_others(monkeypatch):
    config, counts = options(sentences=59, seed=3), []
    expected = generate_splits(config)[1:]

    def counted(count, seed):
        counts.append(count)
        return generate_sentences(count, seed)

    monkeypatch.setattr("tasks.language_model.corpus.generate_sentences", counted)
    assert generate_held_out(config) == expected
    assert counts == [10]


def test_drawn_pairs_differ_in_the_number_of_their_verb():
    number = {word: n for words in (NOUNS, INTRANSITIVE) for n in (0, 1) for word in words[n]}
    pairs = generate_pairs(20, 1)
    assert len({pair.construction for pair in pairs}) == 4
    for pair in pairs:
        assert pair.good[:-1] == pair.bad[:-1]
        assert number[pair.good[1]] == number[pair.good[-1]] != number[pair.bad[-1]]


def test_a_text_is_split_into_the_sentences_it_was_made_of():
    sentences = [["a", "b"], [], ["b"]]
    vocabulary = Vocabulary.from_sentences(sentences)
    assert split_text(encode_text(sentences, vocabulary, ""), vocabulary) == sentences
    assert encode_text([], vocabulary, "").dtype == torch.int64
