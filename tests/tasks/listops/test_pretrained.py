"""The ListOps model that comes with the project."""

import torch

from ordered_memory.tree_recovery import from_attention
from tasks.classifiers.evaluation import evaluate
from tasks.listops.data import Dataset
from tasks.listops.expressions import parse, tokenize
from tasks.listops.generator import generate
from tasks.listops.model import PRETRAINED, load_model

EXPRESSION = "[MAX 2 [MIN 8 [SM 3 4 ] 9 ] [MED 1 5 6 ] 0 ]"


def test_it_loads_in_one_line_answers_and_parses():
    model, config = load_model(PRETRAINED)
    tokens = tokenize(EXPRESSION)
    with torch.inference_mode():
        out = model(Dataset.from_texts([EXPRESSION]).batch([0]), config.num_slots)
    assert int(out.logits.argmax()) == 7
    assert from_attention(out.attention, batch_first=True)[0] == parse(tokens).tree


def test_it_is_as_good_as_said_on_expressions_it_has_not_seen():
    model, config = load_model(PRETRAINED)
    fresh = Dataset.from_expressions(generate(400, seed=987_654, max_length=100))
    found = evaluate(model, fresh, batch_size=100, num_slots=config.num_slots)
    assert found.correct.mean() >= 0.98
