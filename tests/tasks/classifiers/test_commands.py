"""What the subcommands that tasks share write."""

import pytest
import torch

from tasks.classifiers.commands import ReadConfig, show_trees
from tasks.classifiers.evaluation import predict_example
from tasks.logic.config import LogicConfig
from tasks.logic.data import Dataset
from tasks.logic.model import LogicModel
from tasks.reporting.drawing import save_attention
from tests.tasks.classifiers.tiny import TINY


@pytest.mark.parametrize(("names", "second"), [(("left one", "right one"), "right"), (("", ""), "2")])
def test_each_sentence_of_an_example_has_its_heat_map(names, second, tmp_path, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr("tasks.logic.data.SIDES", names)
    data = Dataset.from_texts([("( not a )", "b")])
    prediction = predict_example(LogicModel(LogicConfig(embedding_size=6, **TINY)), data, 0)
    show_trees(ReadConfig(heat_map=tmp_path / "map.png"), data, prediction)
    assert {path.name for path in tmp_path.iterdir()} == {"map.png", f"map-{second}.png"}
    for name, sentence, attention in zip(
        ("map", f"map-{second}"), data.sentences(0), prediction.attention, strict=True
    ):
        save_attention(tmp_path / "expected.png", attention, sentence.tokens)
        assert (tmp_path / f"{name}.png").read_bytes() == (tmp_path / "expected.png").read_bytes()
