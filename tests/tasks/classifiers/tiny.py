"""Options of a tiny model without dropout, of any kind, for the configuration of any classifier."""

TINY = {
    "slot_size": 8,
    "num_slots": 4,
    "chunk_size": 2,
    "layers": 2,
    "heads": 2,
    "cell_dropout": 0.0,
    "attention_dropout": 0.0,
    "input_dropout": 0.0,
    "output_dropout": 0.0,
}
