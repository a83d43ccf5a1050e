"""A BERT with a few word pieces, made on the spot."""

import pytest
import torch

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"()/\"',", "a", "good", "bad", "##ly", "film", "##s"]
LONGEST = 12


def import_transformers():
    return pytest.importorskip("transformers", reason="needs pip install '.[contextual]'")


def write_tokenizer(directory, pieces=PIECES, longest=LONGEST):
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = import_transformers().BertTokenizer(vocab=vocabulary, model_max_length=longest)
    tokenizer.save_pretrained(directory)


def write_encoder(directory, seed=0, longest=LONGEST, **options):
    transformers = import_transformers()
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=longest,
        initializer_range=0.5,
        **options,
    )
    transformers.BertModel(config).save_pretrained(directory)
    write_tokenizer(directory, longest=longest)
    return directory
