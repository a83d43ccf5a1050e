"""A run of seconds."""

from tasks.listops.__main__ import main
from tests import commands

TINY = [
    *commands.TINY["listops"].split(),
    *("--batch-size", "32", "--epochs", "2", "--save-every", "2", "--average-decay", "0.9"),
    *("--curriculum-epochs", "1", "--curriculum-length", "8"),
]


def train(directory, *options):
    return main(["train", "--run-dir", str(directory), *TINY, *options])
