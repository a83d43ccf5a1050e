"""The numbers of a treebank."""

from tasks.sst.grammar import generate_treebank
from tasks.sst.stats import stats_text
from tasks.sst.treebank import Treebank, read_trees


def test_numbers_are_those_counted_by_hand(tmp_path):
    (tmp_path / "train").write_text(
        "(3 (2 It) (4 (2 's) (4 Good)))\n(0 (1 Bad) (0 (2 's) (0 (0 bad) (1 bad))))\n"
    )
    (tmp_path / "dev").write_text("(4 good)\n")
    treebank = Treebank(read_trees(tmp_path / "train"), read_trees(tmp_path / "dev"), None)
    lines = stats_text(treebank).splitlines()
    assert lines[0].split() == ["train", "validation"]
    figures = {line[:30].strip(): line[30:].split() for line in lines[1:]}
    assert figures == {
        "sentences": ["2", "1"],
        "words, shortest": ["3", "1"],
        "words, mean": ["3.5", "1.0"],
        "words, longest": ["4", "1"],
        "vocabulary in lower case": ["4", "1"],
        "nodes": ["12", "1"],
        "sentences labeled 0": ["1", "0"],
        "sentences labeled 1": ["0", "0"],
        "sentences labeled 2": ["0", "0"],
        "sentences labeled 3": ["1", "0"],
        "sentences labeled 4": ["0", "1"],
        "nodes labeled 0": ["4", "0"],
        "nodes labeled 1": ["2", "0"],
        "nodes labeled 2": ["3", "0"],
        "nodes labeled 3": ["1", "0"],
        "nodes labeled 4": ["2", "1"],
        "sentences, 5 classes": ["2", "1"],
        "phrases, 5 classes": ["12", "1"],
        "phrases, 5 classes, merged": ["10", "1"],
        "sentences, 2 classes": ["2", "1"],
        "phrases, 2 classes": ["9", "1"],
        "phrases, 2 classes, merged": ["7", "1"],
    }


def test_the_table_fits_into_the_terminal(monkeypatch):
    treebank = generate_treebank(10, 1)
    whole = stats_text(treebank).splitlines()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    parts = [part.splitlines() for part in stats_text(treebank).split("\n\n")]
    assert len(parts) == 3
    assert max(len(line) for part in parts for line in part) <= 40 < len(whole[0])
    assert [len(part) for part in parts] == [len(whole)] * 3
