"""A small treebank and a small model of it."""

import dataclasses
from functools import partial

import torch

from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.model import build_model
from tasks.parsing.__main__ import main
from tasks.runs.checkpoints import save_tensors
from tasks.runs.saved_config import config_to_dict
from tests.commands import refusal

fails = partial(refusal, main)
TREES = """
( (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN dog))) (. .)) )
( (S (NP-SBJ (DT The) (NN dog)) (VP (VBD paid) (NP ($ $) (CD 3.50) (-NONE- *U*))) (. .)) )
( (NP (. .) (HYPH -) (HYPH -) (NFP *)) )
( (S (NP (NN cat)) (VP (VBZ sees) (SBAR (IN that) (S (NP (NP (DT the) (NN dog)) (PP (IN of) (NP (NN cat))))
  (VP (VBZ sees) (NP (DT the) (JJ old) (NN cat) (CC and) (NN dog))))))) )
"""
SMALL = LanguageModelConfig(sentences=200, embedding_size=6, hidden_size=8, num_layers=2, chunk_size=2)


def checkpoint(path, vocabulary, **options):
    torch.manual_seed(1)
    config = dataclasses.replace(SMALL, **options)
    model = build_model(config, len(vocabulary))
    save_tensors(path, model.state_dict(), config_to_dict(config) | {"vocabulary": vocabulary.words})
    return path
