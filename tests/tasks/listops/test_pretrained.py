"""The ListOps model that comes with the project."""

import torch

from ordered_memory.memory import initial_state, step
from ordered_memory.trace import read_attention
from ordered_memory.tree_recovery import from_attention
from tasks.classifiers.evaluation import evaluate
from tasks.listops.data import Dataset
from tasks.listops.expressions import parse, tokenize
from tasks.listops.generator import generate
from tasks.listops.model import PRETRAINED, ListOpsModel

EXPRESSION = "[MAX 2 [MIN 8 [SM 3 4 ] 9 ] [MED 1 5 6 ] 0 ]"


def test_it_loads_in_one_line_answers_and_parses():
    model = ListOpsModel.from_pretrained(PRETRAINED)
    tokens = tokenize(EXPRESSION)
    with torch.inference_mode():
        out = model(Dataset.from_texts([EXPRESSION]).batch([0]))
    assert int(out.logits.argmax()) == 7
    assert from_attention(out.encoded.attention, batch_first=True)[0] == parse(tokens).tree


def test_its_slots_hold_the_subtrees_that_a_trace_says():
    """A slot holds what the model makes of the tokens of its subtree when it reads them alone."""
    model = ListOpsModel.from_pretrained(PRETRAINED)
    direction = model.encoder.directions[0]
    maps = direction.recurrent_modules()

    def read(x):
        state, states, attention = initial_state(1, model.encoder.num_slots, x), [], []
        for row in x:
            state, p = step(row.unsqueeze(0), state, maps)
            states.append(state)
            attention.append(p[0])
        return states, torch.stack(attention)

    batch = Dataset.from_texts([EXPRESSION]).batch([0])
    with torch.inference_mode():
        [x] = direction.norm(direction.projection(model.embedding(batch.tokens)))
        states, attention = read(x)
        trace = read_attention(attention, tokenize(EXPRESSION))
        alone = [*x]
        for node in trace["nodes"]:
            alone.append(read(x[node["first"] : node["last"] + 1])[0][-1].candidate[0, -1])
        for state, entry in zip(states, trace["memory"]["steps"], strict=False):
            for place, (number, slot) in enumerate(entry["stack"]):
                slots = state.memory[0] if place else state.candidate[0]
                away = (slots - alone[number]).norm(dim=-1) / alone[number].norm()
                assert away[slot - 1] < 0.05
                assert all(away[other] > 1 for other in range(slot - 1, len(away)) if other != slot - 1)


def test_it_is_as_good_as_said_on_expressions_it_has_not_seen():
    model = ListOpsModel.from_pretrained(PRETRAINED)
    fresh = Dataset(generate(400, seed=987_654, max_length=100))
    found = evaluate(model, fresh, batch_size=100)
    assert found.correct.mean() >= 0.98
