"""A tiny language model and files of minimal pairs."""

import json

from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.model import Trained, build_model
from tasks.language_model.vocabulary import Vocabulary
from tasks.runs.checkpoints import save_tensors
from tasks.runs.saved_config import config_to_dict

WORDS = ["<eos>", "<unk>", "the", "author", "authors", "laughs", "laugh", "that", "like", "likes", "N", "no"]
VOCABULARY = Vocabulary(WORDS)


def tiny_model(vocabulary=VOCABULARY, recurrent="onlstm", **changes):
    options = {"embedding_size": 6, "hidden_size": 8, "num_layers": 2, "chunk_size": 2, "backend": "sequence"}
    config = LanguageModelConfig(model=recurrent, **{**options, **changes})
    return Trained(build_model(config, len(vocabulary)).eval(), vocabulary, config)


def save(directory, trained):
    directory.mkdir(parents=True)
    metadata = config_to_dict(trained.config) | {"vocabulary": trained.vocabulary.words}
    save_tensors(directory / "best.safetensors", trained.model.state_dict(), metadata)
    return str(directory / "best.safetensors")


def write_lines(path, *records):
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def pair(good, bad, construction="simple_agrmt", **fields):
    return {"case": construction, "good": good, "bad": bad, **fields}
