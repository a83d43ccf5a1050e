"""Everything that may be wrong with a file."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zipfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def make_damaged(directory: Path, checkpoint: Path) -> dict[str, str]:
    """Files that no reader should take, by name.

    Args:
        directory: an empty one.
        checkpoint: a good one, to make bad ones from.
    """
    whole = checkpoint.read_bytes()
    contents: dict[str, bytes | str] = {
        "empty": "",
        "text": "hello world\n",
        "binary": bytes(range(128, 256)) * 4,
        "zeros": bytes(200),
        "cut": whole[: len(whole) // 2],
        "cut_header": whole[:100],
        "huge_header": b"\xff" * 8 + whole[8:],
        "relation": "x\ta\tb\n",
        "one_column": "=\n",
        "label": "7\t[SM 7 8 ]\n",
        "list.jsonl": "[1]\n",
        "number.jsonl": '{"good": 1, "bad": 2}\n',
        "deep.jsonl": "[" * 100_000,
        "surrogate.jsonl": '{"good": "the \\ud800 cat", "bad": "the"}\n',
        "percent.jsonl": json.dumps({"good": "%" * 5000, "bad": "a"}) + "\n",
        "digits.jsonl": '{"good": ' + "9" * 5000 + ', "bad": "a"}\n',
        "cut.gz": gzip.compress(b"a b c\n" * 50)[:-12],
        "no.gz": b"\x1f\x8b\x08\x00garbage",
        "cut.bz2": bz2.compress(b"a b c\n" * 50)[:-12],
        "cut.xz": lzma.compress(b"a b c\n" * 50)[:-12],
        "cut.jsonl.gz": gzip.compress(b'{"good": "the a", "bad": "a the"}\n' * 50)[:-12],
        "no.jsonl.gz": b"\x1f\x8b\x08\x00garbage",
        "no.zip": b"PK\x03\x04 nothing",
        "one.mrg": "( (S (NP (DT the) (NN author)) (VP (VBZ laughs))) )\n",
        "open.mrg": "( (S (NN a)\n",
        "words.mrg": "( (S a b) )\n",
    }
    for name, content in contents.items():
        (directory / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    _write_zips(directory)
    _write_data(directory)
    nan_weights(checkpoint, directory / "nan")
    (directory / "directory").mkdir()
    paths = {path.name.replace(".", "_"): str(path) for path in directory.iterdir()}
    return paths | {"missing": str(directory / "missing"), "under_file": str(directory / "text" / "x")}


def _write_zips(directory: Path) -> None:
    with zipfile.ZipFile(directory / "lzma.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.mrg", "( (S (NN a) (NN b)) )\n" * 200)
    damaged = bytearray((directory / "lzma.zip").read_bytes())
    start = damaged.find(b"a.mrg") + len("a.mrg") + 9
    for place in range(start, start + 20):
        damaged[place] ^= 0xFF
    (directory / "lzma.zip").write_bytes(damaged)
    with zipfile.ZipFile(directory / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.mrg", " " * 2**21)


def _write_data(directory: Path) -> None:
    """Directories of data that cannot be trained on."""
    long = "[MAX " + "1 " * 30 + "]"
    parts = {
        "listops_long": {"train_d20s.tsv": f"1\t{long}\n" * 60, "test_d20s.tsv": f"1\t{long}\n"},
        "listops_few": {"train_d20s.tsv": "3\t3\n" * 3, "test_d20s.tsv": "3\t3\n"},
        "listops_empty": {"train_d20s.tsv": "", "test_d20s.tsv": "3\t3\n"},
        "logic_empty": {f"{part}{n}": "" for part in ("train", "test") for n in range(13)},
        "text_empty": dict.fromkeys(("train.txt", "valid.txt", "test.txt"), ""),
        "text_binary": dict.fromkeys(("train.txt", "valid.txt", "test.txt"), "\udcff"),
        "text_cut": {"train.txt": "a\n", "valid.txt.gz": "a\n", "test.txt": "a\n"},
        "text_short": dict.fromkeys(("train.txt", "valid.txt", "test.txt"), "a\n"),
        "text_lines": dict.fromkeys(("train.txt", "valid.txt", "test.txt"), "\n\n"),
    }
    for name, files in parts.items():
        (directory / name).mkdir()
        for file, content in files.items():
            (directory / name / file).write_bytes(content.encode(errors="surrogateescape"))


def nan_weights(checkpoint: Path, target: Path) -> None:
    """A checkpoint like this one whose first weight is no number."""
    tensors, metadata = read(checkpoint)
    first = next(name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.dim())
    tensors[first].view(-1)[0] = torch.nan
    save_file(tensors, target, {"json": metadata})


def read(checkpoint: Path) -> tuple[dict[str, torch.Tensor], str]:
    """Tensors of a checkpoint, and the JSON in its header."""
    with safe_open(checkpoint, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()["json"]  # noqa: SIM118
