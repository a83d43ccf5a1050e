"""The treebank reader: words, shapes, labels, every kind of file, and every error with file and line."""

import gzip
import lzma
import warnings
import zipfile
from collections import Counter

import pytest

from ordered_memory.trees import leaves
from tasks.parsing.treebank import Treebank, cut_label, read_treebank, read_trees
from tasks.runs.errors import UserError

CAT = "( (S (NP-SBJ-1 (DT The) (NN cat)) (VP (VBD sat)) (. .)) )"
TRACE = """
( (S (`` ``)
    (NP-SBJ-1 (PRP It) )
    (VP (VBZ costs)
      (NP ($ $) (CD 3) (-NONE- *U*))
      (S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB slide)))))
    ('' '') (. .) ))
"""


def read(text, **options):
    return [sentence for sentence, _ in read_trees(text, "a.mrg", Counter(), **options)]


def test_words_shape_and_labels():
    (sentence,) = read(CAT)
    assert sentence.words == ["The", "cat", "sat"]
    assert sentence.tree == ((0, 1), 2)
    assert sentence.labeled_spans == [("NP", 0, 1), ("S", 0, 2)]
    assert sentence.where == "a.mrg, line 1"


def test_null_elements_and_punctuation_go_and_unary_chains_keep_all_labels():
    (sentence,) = read(TRACE)
    assert sentence.words == ["It", "costs", "3", "to", "slide"]
    assert sentence.tree == (0, (1, 2, (3, 4)))
    assert sentence.labeled_spans == [("VP", 3, 4), ("S", 3, 4), ("VP", 1, 4), ("S", 0, 4)]
    assert sentence.where == "a.mrg, line 2"


def test_punctuation_and_currency_signs_can_stay_but_null_elements_never():
    (sentence,) = read(TRACE, drop_tags=())
    assert sentence.words == ["``", "It", "costs", "$", "3", "to", "slide", "''", "."]
    assert sentence.tree == (0, 1, (2, (3, 4), (5, 6)), 7, 8)
    assert ("NP", 3, 4) in sentence.labeled_spans


@pytest.mark.parametrize("tag", ["``", "''", ",", ".", ":", "-LRB-", "-RRB-", "$", "#", "-NONE-"])
def test_each_tag_that_is_no_words_is_dropped(tag):
    (sentence,) = read(f"( (S ({tag} x) (NP (DT a) (NN b)) ({tag} x)))")
    assert sentence.words == ["a", "b"]
    assert leaves(sentence.tree) == [0, 1]


def test_a_second_label_of_the_same_name_and_span_is_not_kept():
    (sentence,) = read("( (NP-SBJ (NP (DT a) (NN b)) (SBAR (-NONE- 0))) )")
    assert sentence.labeled_spans == [("NP", 0, 1)]


def test_labels_lose_function_index_and_alternative():
    expected = {
        "NP-SBJ": "NP",
        "NP=2": "NP",
        "ADVP|PRT": "ADVP",
        "S-TPC-1": "S",
        "-LRB-": "-LRB-",
        "WP$": "WP$",
    }
    assert {label: cut_label(label) for label in expected} == expected


def test_one_word_and_no_words_and_several_trees_on_a_line():
    found = read("( (NP (NN Dogs) (. .)) )  ( (X (. .)) ) (INTJ (UH yes))\n(S(NP(PRP I))(VP(VBP do)))")
    assert [sentence and (sentence.words, sentence.tree) for sentence in found] == [
        (["Dogs"], 0),
        None,
        (["yes"], 0),
        (["I", "do"], (0, 1)),
    ]
    assert found[3].where == "a.mrg, line 2"


def test_brackets_around_one_constituent_need_no_label():
    (sentence,) = read(CAT)
    for text in (f"({CAT})", CAT.replace("(VP (VBD sat))", "((VP (VBD sat)))")):
        assert read(text) == [sentence]


def test_a_whole_sentence_needs_no_label():
    (sentence,) = read("( (NP (DT The) (NN cat)) (. .) (INTJ (UH yes)) )")
    assert (sentence.words, sentence.tree) == (["The", "cat", "yes"], ((0, 1), 2))
    assert sentence.labeled_spans == [("NP", 0, 1)]


def test_a_single_word_may_look_as_if_it_had_its_place_in_front():
    (sentence,) = read("( (NP (CD 1=1)) )")
    assert sentence.words == ["1=1"]


def test_very_deep_trees_are_read():
    depth = 3_000
    (sentence,) = read("(S (NN a) " * depth + "(NN b)" + ")" * depth)
    assert len(sentence.words) == depth + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN a))\n\n(S (NN a)))\n", "line 3: ')' closes nothing"),
        ("(S (NN a))\n(S (NP (NN a))\n\n", "line 2: the first '(' of the tree is never closed"),
        ("(S (NN a))\nstray (S (NN b))", "line 2: 'stray' is outside of all brackets"),
        ("(S (NN a)\n  (NP ) )", "line 2: a bracket with neither word nor parts"),
        ("()", "line 1: a bracket with neither word nor parts"),
        ("(S (NP\nPierre Vinken))", "line 2: the word 'Vinken' has no bracket with a part-of-speech tag"),
        ("(S (NN a)\n b)", "line 2: the word 'b' has no bracket with a part-of-speech tag of its own"),
        ("((NN a)\n b)", "line 2: the word 'b' has no bracket with a part-of-speech tag of its own"),
        ("(S a\n (NN b))", "line 2: the word 'a' has no bracket with a part-of-speech tag of its own"),
        ("(S (NN a))\n(S (VP (VB 0=Wake) (RP 2=up)) (NN 1=her))", "line 2: expected words, got '0=Wake'"),
    ],
)
def test_what_is_no_tree_is_named_with_file_and_line(text, message):
    with pytest.raises(UserError) as caught:
        read(text)
    assert str(caught.value).startswith("a.mrg")
    assert message in str(caught.value)


def test_a_file_of_any_name(tmp_path):
    (tmp_path / "trees").write_text(f"{CAT}\n( (X (. .)) )\n")
    treebank = read_treebank(tmp_path / "trees")
    assert len(treebank.sentences) == 1
    assert treebank.empty == 1


def tree_of(word):
    return f"(S (NN {word}))"


FILES = {
    "b/2.mrg": tree_of("second"),
    "a/1.MRG": tree_of("first"),
    "a/notes.txt": "no tree",
    "b/.2.mrg": "hidden",
    "b/.ipynb_checkpoints/2-checkpoint.mrg": tree_of("hidden"),
    "README": "(",
}


def test_a_directory_and_a_zip_file_of_it_give_the_same(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in FILES.items():
            path = tmp_path / "all" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            archive.writestr(f"treebank/{name}", text)
    before = sorted(tmp_path.rglob("*"))
    for path in (tmp_path / "all", tmp_path / "all.zip"):
        words = [sentence.words for sentence in read_treebank(path).sentences]
        assert words == [["first"], ["second"]]
    assert sorted(tmp_path.rglob("*")) == before
    assert "all.zip/treebank/a/1.MRG, line 1" in read_treebank(tmp_path / "all.zip").sentences[0].where


def test_files_of_a_zip_are_in_the_order_of_those_of_a_directory(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, word in (("a-b.mrg/y.mrg", "second"), ("a/x.mrg", "first"), ("a/z/x.mrg", "then")):
            path = tmp_path / "unpacked.zip" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(tree_of(word))
            archive.writestr(name, tree_of(word))
    for path in (tmp_path / "unpacked.zip", tmp_path / "all.zip"):
        words = [word for sentence in read_treebank(path).sentences for word in sentence.words]
        assert words == ["first", "then", "second"]


def test_a_file_that_was_replaced_in_a_zip_is_read_once(tmp_path):
    for mode, word in (("w", "first"), ("a", "second")):
        with zipfile.ZipFile(tmp_path / "all.zip", mode) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the duplicate name
            archive.writestr("x.mrg", tree_of(word))
    assert [sentence.words for sentence in read_treebank(tmp_path / "all.zip").sentences] == [["second"]]


def test_compressed_files_are_read_in_a_directory_and_a_zip_file(tmp_path):
    contents = {
        "1.mrg": tree_of("a").encode(),
        "2.MRG.gz": gzip.compress(tree_of("b").encode()),
        "3.mrg.xz": lzma.compress(tree_of("c").encode()),
        "1.mrg.gz": b"a copy of 1.mrg, not read",
        "notes.gz": b"not read",
    }
    (tmp_path / "all").mkdir()
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, content in contents.items():
            (tmp_path / "all" / name).write_bytes(content)
            archive.writestr(name, content)
    for path in (tmp_path / "all", tmp_path / "all.zip"):
        words = [sentence.words for sentence in read_treebank(path).sentences]
        assert words == [["a"], ["b"], ["c"]]
    assert read_treebank(tmp_path / "all" / "2.MRG.gz").sentences[0].words == ["b"]
    (tmp_path / "all" / "3.mrg.xz").write_bytes(contents["3.mrg.xz"][:-4])
    with pytest.raises(UserError, match=r"all/3\.mrg\.xz: truncated or damaged \.xz file"):
        read_treebank(tmp_path / "all")


def test_text_files_are_read_where_there_are_no_others(tmp_path):
    (tmp_path / "one.txt").write_text(tree_of("word"))
    assert read_treebank(tmp_path).sentences[0].words == ["word"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.mrg", None, "none.mrg: no such file or directory"),
        ("none.zip", None, "none.zip: no such file or directory"),
        ("bad.zip", b"not a zip", "bad.zip: not a zip file that can be read"),
        ("empty.mrg", b"", "empty.mrg: no trees in this file"),
        ("blank.mrg", b"\n \n", "blank.mrg: no trees in this file"),
        ("bytes.mrg", b"(S (NN a))\n(S (NN \xff))", "bytes.mrg, line 2: not UTF-8 text"),
        (
            "tags.mrg",
            b"(S (DT a) (NOUN b) (VERB c) (NOUN d) (. .))",
            "tags.mrg: expected part-of-speech tags of the Penn Treebank, got other ones of 3 of 4 words: "
            "NOUN 2, VERB 1; --drop-tags",
        ),
        ("dots.mrg", b"(S (. .))", "dots.mrg: expected words, got 1 tree of punctuation and null elements"),
        ("binary.mrg", bytes(range(1, 128)), "binary.mrg"),
        ("long.mrg", b"x" * 10_000, f"long.mrg, line 1: '{'x' * 60}' is outside of all brackets"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"^[^\n]*$") as caught:
        read_treebank(tmp_path / name)
    assert message in str(caught.value)


def test_a_directory_without_trees(tmp_path):
    with pytest.raises(UserError, match=r"no \.mrg, \.tree, \.ptb, \.txt files in this directory"):
        read_treebank(tmp_path)


def test_a_file_without_trees_among_others_is_skipped(tmp_path, capsys):
    for name, text in (("1.mrg", ""), ("2.mrg", tree_of("word")), ("3.mrg", "\n")):
        (tmp_path / name).write_text(text)
    assert [sentence.words for sentence in read_treebank(tmp_path).sentences] == [["word"]]
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {tmp_path / name}: no trees in this file, which is skipped" for name in ("1.mrg", "3.mrg")
    ]
    (tmp_path / "2.mrg").unlink()
    with pytest.raises(UserError, match=r"1\.mrg: no trees in this file"):
        read_treebank(tmp_path)
    assert not capsys.readouterr().err


def test_a_member_that_is_damaged_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("x/a.mrg", f"{CAT}\n(S")
    with pytest.raises(UserError, match=r"all\.zip/x/a\.mrg, line 2: "):
        read_treebank(tmp_path / "all.zip")


def test_dropped_words_are_counted_by_tag():
    dropped = Counter()
    list(read_trees("(S (NN a) (HYPH -) (NN b) (, ,) (NFP *) (-NONE- 0) (HYPH -))", "a.mrg", dropped))
    assert dropped == {"HYPH": 2, ",": 1, "NFP": 1}
    assert list(Treebank([], 0, dropped).unknown.items()) == [("HYPH", 2), ("NFP", 1)]
    dropped.clear()
    list(read_trees("(S (NN a) (HYPH -))", "a.mrg", dropped, drop_tags=()))
    assert not dropped


GERMAN = "(S (NP (ART Der) (ADJA alte) (NN Hund)) (VVFIN lief) (ADV heute) ($. .))"


def test_a_treebank_of_other_tags_is_refused_unless_every_tag_is_read(tmp_path):
    (tmp_path / "de.mrg").write_text(GERMAN)
    with pytest.raises(UserError, match="other ones of 5 of 6 words: ART 1, ADJA 1, VVFIN 1, ADV 1"):
        read_treebank(tmp_path)
    assert len(read_treebank(tmp_path, drop_tags=()).sentences[0].words) == 6


@pytest.mark.parametrize("drop_tags", [None, ()])
@pytest.mark.parametrize(
    "text", ["( the ( old dog ) )\n( ( the cat ) sleeps )", "(the ((cat sees) (a dog)))"]
)
def test_trees_without_labels_are_no_treebank(tmp_path, text, drop_tags):
    (tmp_path / "own.mrg").write_text(text)
    with pytest.raises(UserError, match=r"own\.mrg.*: expected trees with labels and part-of-speech tags"):
        read_treebank(tmp_path, drop_tags)


@pytest.mark.parametrize("text", ["( NP (DT the)\n  ( NN\n dog ) )", "( ( NP ( DT the ) ( NN dog ) ) )"])
def test_spaces_within_brackets_do_no_harm(tmp_path, text):
    (tmp_path / "own.mrg").write_text(text)
    assert read_treebank(tmp_path).sentences[0].words == ["the", "dog"]


def test_named_tags_are_dropped_and_all_others_kept(tmp_path):
    (tmp_path / "de.mrg").write_text(GERMAN)
    treebank = read_treebank(tmp_path, drop_tags=["$.", "ART"])
    (sentence,) = treebank.sentences
    assert sentence.words == ["alte", "Hund", "lief", "heute"]
    assert sentence.labeled_spans == [("NP", 0, 1), ("S", 0, 3)]
    assert treebank.dropped == {"ART": 1, "$.": 1}
    assert not treebank.unknown


def test_a_few_words_of_other_tags_are_no_reason_to_refuse_a_treebank(tmp_path):
    (tmp_path / "a.mrg").write_text("(S " + "(NN a) " * 3 + "(HYPH -))")
    assert len(read_treebank(tmp_path).sentences[0].words) == 3
    (tmp_path / "b.mrg").write_text("(S (NN a) (HYPH -))")
    with pytest.raises(UserError, match="other ones of 2 of 6 words: HYPH 2; --drop-tags names the tags"):
        read_treebank(tmp_path)


def test_a_byte_order_mark_is_skipped_and_every_suffix_read(tmp_path):
    for name in ("c.mrg", "b.tree", "a.PTB", "d.txt"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + tree_of(name[0]).encode())
    assert [sentence.words for sentence in read_treebank(tmp_path).sentences] == [["a"], ["b"], ["c"]]


METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


@pytest.mark.parametrize("method", METHODS)
def test_every_damage_of_a_zip_file_is_one_line(tmp_path, method):
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.mrg", CAT * 20)
    whole, expected = path.read_bytes(), read_treebank(path).sentences
    damaged = [whole[:end] for end in range(0, len(whole), 7)]
    for place in range(0, len(whole), 3):
        damaged.append(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
    told = []
    for content in damaged:
        path.write_bytes(content)
        try:
            assert read_treebank(path).sentences == expected  # some damage does no harm
        except UserError as error:
            told.append(str(error))
    assert len(told) > len(damaged) / 2
    assert all(line.startswith(str(path)) and "\n" not in line for line in told)


def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.parsing.treebank.MAX_BYTES", 1_000)
    text = tree_of("word")
    for directory, repeats in (("one", [200]), ("two", [60, 60])):
        (tmp_path / directory).mkdir()
        with zipfile.ZipFile(tmp_path / f"{directory}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for i, count in enumerate(repeats):
                archive.writestr(f"{i}.mrg", text * count)
                (tmp_path / directory / f"{i}.mrg").write_text(text * count)
        for path in (directory, f"{directory}.zip"):
            with pytest.raises(UserError, match=rf"{len(repeats) - 1}\.mrg: expected at most 1,000 bytes"):
                read_treebank(tmp_path / path)
    with pytest.raises(UserError, match=r"0\.mrg: expected at most 1,000 bytes of text in all, got more"):
        read_treebank(tmp_path / "one" / "0.mrg")


def test_constituents_are_those_of_their_own_sentence():
    text = "(S (NP (DT The) (NN cat)) (VP (VBD sat)))\n(NP (DT A) (NN dog))\n"
    first, second = read(text)
    assert first.labeled_spans == [("NP", 0, 1), ("S", 0, 2)]
    assert second.labeled_spans == [("NP", 0, 1)]
