"""A small language model, and a run of it."""

from onlstm.language_model import LanguageModel
from tasks.language_model.__main__ import main
from tasks.language_model.config import LanguageModelConfig

NO_DROPOUT = dict.fromkeys(
    [f"{name}_dropout" for name in ("embedding", "input", "hidden", "output", "weight")], 0.0
)
ON_LSTM = {"recurrent": "onlstm", "chunk_size": 2}
LSTM = {"recurrent": "lstm"}


def build(recurrent, **options):
    return LanguageModel(11, 6, 8, 2, **recurrent, **NO_DROPOUT | options)


def options(**changes):
    sizes = {"embedding_size": 6, "hidden_size": 8, "num_layers": 2, "chunk_size": 2, "bptt": 10}
    return LanguageModelConfig(**sizes | {"batch_size": 3, "evaluation_batch_size": 4} | NO_DROPOUT | changes)


TINY = [
    *("--sentences", "200", "--embedding-size", "6", "--hidden-size", "8", "--num-layers", "2"),
    *("--chunk-size", "2", "--bptt", "8", "--batch-size", "4", "--epochs", "4", "--save-every", "3"),
    *("--patience", "0", "--learning-rate", "40"),
]


def train(directory, *words):
    return main(["train", "--run-dir", str(directory), *TINY, *words])
