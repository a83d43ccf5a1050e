"""The sizes and data of each configuration: sizes as in the papers, batches as in training.

Axes: B batch, T time, E embedding size, D slot size. Token ids start at 1; 0 is padding, on the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordered_memory.attention import OCCUPANCY_THRESHOLD
from tasks.listops.expressions import CLOSE, DIGITS, IDS, OPERATORS, TOKENS
from tasks.listops.generator import generate, standard
from tasks.logic import formulas
from tasks.logic.generator import generate as generate_pairs
from tasks.runs.batching import bucketed_batches
from tasks.runs.errors import UserError

LONGEST_SINGLE = 1_000_000
"""Maximum length of a single example."""
TOKENS_PER_OPERATOR = 4.8
"""In the mean of random formulas: `not` adds 3 tokens, `and` and `or` add 6."""


class Sizes(NamedTuple):
    """Sizes and options of a layer and of its embeddings."""

    slot_size: int
    num_slots: int
    cell_dropout: float
    attention_dropout: float
    input_size: int
    vocabulary: int
    score: str = "normalized"
    cell: str = "gated"
    occupancy_threshold: float = OCCUPANCY_THRESHOLD


class PaddedTokens(NamedTuple):
    """A batch of sequences of token ids, padded on the right.

    Args:
        tokens: token ids, (T, B) int64.
        lengths: (B,) int64.
    """

    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]


class Batch(NamedTuple):
    """The input of a network.

    Args:
        inputs: embeddings, (T, B, E).
        lengths: (B,) int64, on the CPU.
        mask: True at tokens, False at padding, (T, B) bool.
        weights: the loss is the sum of the network's output times these: (B, D) for a summary of each
            sequence, (T, B, H) for an output at every token.
    """

    inputs: Tensor
    lengths: Tensor
    mask: Tensor
    weights: Tensor


class Workload(NamedTuple):
    """A configuration to measure.

    Args:
        name: name on the command line.
        sizes: sizes of the layer.
        batches: batches from short to long.
        left_padded: whether the authors' code pads the sequences of this task on the left.
        recompute: whether to measure also with activation checkpointing.
    """

    name: str
    sizes: Sizes
    batches: list[PaddedTokens]
    left_padded: bool = False
    recompute: bool = False


_LISTOPS = Sizes(128, 21, 0.1, 0.3, 128, len(TOKENS))
_WITHOUT_BATCHES = {
    "listops": Workload("listops", _LISTOPS, [], left_padded=True),
    "logic": Workload("logic", Sizes(200, 12, 0.2, 0.2, 200, len(formulas.TOKENS)), []),
    "sst": Workload("sst", Sizes(300, 15, 0.2, 0.2, 300, 10_000), []),
    "long": Workload("long", _LISTOPS, [], left_padded=True, recompute=True),
}


def build_workload(
    name: str, *, batches: int = 4, seed: int = 1, max_length: int = 100, quick: bool = False
) -> Workload:
    """Build the sizes and batches of a configuration.

    Args:
        name: "listops", "logic", "sst" or "long".
        batches: number of batches.
        seed: random seed.
        max_length: maximum length of a "listops" expression in tokens.
        quick: whether to use tiny sizes, for tests.
    Returns:
        The workload.
    """
    return _empty(name, quick)._replace(batches=_batches(name, batches, seed, max_length, quick))


def build_single(name: str, length: int, *, seed: int = 1, quick: bool = False) -> Workload:
    """Build a configuration with a single example: an expression, a pair of formulas or a sentence.

    Args:
        name: "listops", "logic", "sst" or "long".
        length: number of tokens, at least 4; the lengths of formulas are only close to it.
        seed: random seed.
        quick: whether to use tiny sizes, for tests.
    Returns:
        The workload.
    """
    workload = _empty(name, quick)
    rng = np.random.default_rng(seed)
    if name == "logic":
        drawn = [random_formula(rng, round((length - 1) / TOKENS_PER_OPERATOR)) for _ in range(20)]
        sequences = sorted(drawn, key=lambda formula: abs(len(formula) - length))[:2]
    elif name == "sst":
        sequences = [rng.integers(1, workload.sizes.vocabulary + 1, size=length).tolist()]
    else:
        sequences = [nested_expression(rng, length, 5)]
    return workload._replace(name=f"{name}, one of {length} tokens", batches=[pad(sequences)])


def _empty(name: str, quick: bool) -> Workload:
    workload = _WITHOUT_BATCHES[name]
    if quick:
        return workload._replace(sizes=workload.sizes._replace(slot_size=8, input_size=8, num_slots=3))
    return workload


def pad(sequences: Sequence[Sequence[int]]) -> PaddedTokens:
    """Collate sequences to a batch, padded with 0 on the right.

    Args:
        sequences: token ids, at least one in each sequence.
    Example:
        >>> pad([[3], [1, 2]]).tokens.T.tolist()
        [[3, 0], [1, 2]]
    """
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    tokens = np.zeros((lengths.max(), len(sequences)), dtype=np.int64)
    for column, sequence in enumerate(sequences):
        tokens[: len(sequence), column] = sequence
    return PaddedTokens(tokens, lengths)


def embed(batch: PaddedTokens, table: Tensor, sizes: Sizes, seed: int) -> Batch:
    """Look up the embeddings of a batch of tokens.

    Args:
        batch: tokens, padded with 0 on the right.
        table: embeddings, (vocabulary + 1, E), on the device of the new batch.
        sizes: gives D.
        seed: seed of the weights of the loss.
    Returns:
        The batch.
    """
    tokens = torch.from_numpy(batch.tokens).to(table.device)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(tokens.shape[1], sizes.slot_size, generator=generator).to(table.device)
    return Batch(table[tokens], torch.from_numpy(batch.lengths), tokens != 0, weights)


def pad_left(batch: Batch) -> Batch:
    """Move the padding of a batch to the left.

    Args:
        batch: padded on the right.
    """
    steps = len(batch.inputs)
    t = torch.arange(steps, device=batch.inputs.device).unsqueeze(1)
    source = (t + batch.lengths.to(t.device)) % steps
    inputs = batch.inputs.gather(0, source.unsqueeze(-1).expand_as(batch.inputs))
    return batch._replace(inputs=inputs, mask=batch.mask.gather(0, source))


def nested_expression(rng: np.random.Generator, length: int, depth: int) -> list[int]:
    """Generate a ListOps-style expression with a given length and a maximum nesting depth.

    Longer expressions have more arguments. Unlike in ListOps, they are not more deeply nested.

    Args:
        rng: random generator.
        length: number of tokens; not 2, since an operator needs at least one argument and a bracket.
        depth: maximum nesting depth; 0 allows only digits.
    Returns:
        Token ids of `tasks.listops.expressions`.
    Example:
        >>> from tasks.listops.expressions import decode, parse
        >>> words = decode(nested_expression(np.random.default_rng(0), 500, 4))
        >>> len(words), parse(words).depth
        (500, 4)
    """
    if length == 1:
        return [IDS[rng.choice(DIGITS)]]
    room = length - 2
    tokens = [IDS[rng.choice(OPERATORS)]]
    for size in _argument_sizes(rng, room, depth - 1):
        tokens += nested_expression(rng, size, depth - 1)
    return [*tokens, IDS[CLOSE]]


def _argument_sizes(rng: np.random.Generator, room: int, depth: int) -> list[int]:
    """Divide `room` tokens among arguments, about equally many on each remaining level."""
    if depth == 0:
        return [1] * room
    count = max(2, round(room ** (1 / (depth + 1))))
    if room < 2 * count:
        return [1] * room
    cuts = np.sort(rng.choice(np.arange(1, room), size=count - 1, replace=False))
    sizes = np.diff([0, *cuts, room]).tolist()
    return [argument_size for size in sizes for argument_size in ([1, 1] if size == 2 else [size])]


def random_formula(rng: np.random.Generator, operators: int) -> list[int]:
    """Generate a random formula of propositional logic, as token ids.

    `( not a )` has 1 + 3 tokens and `( a ( and b ) )` has 2 + 5, parentheses being tokens.

    Args:
        rng: random generator.
        operators: number of operators, `not` included.
    Returns:
        Ids of `tasks.logic.formulas`.
    """
    opening, closing = formulas.IDS[formulas.OPEN], formulas.IDS[formulas.CLOSE]
    if operators == 0:
        return [formulas.IDS[rng.choice(formulas.VARIABLES)]]
    if rng.random() < 0.4:
        return [opening, formulas.IDS[formulas.NOT], *random_formula(rng, operators - 1), closing]
    left = int(rng.integers(operators))
    first, second = random_formula(rng, left), random_formula(rng, operators - 1 - left)
    connective = formulas.IDS[rng.choice((formulas.AND, formulas.OR))]
    return [opening, *first, opening, connective, *second, closing, closing]


def spread_batches(lengths: Sequence[int], batch_size: int, count: int, seed: int) -> list[NDArray[np.int64]]:
    """Choose batches of a training epoch, evenly spaced over their lengths.

    Args:
        lengths: number of tokens of all examples.
        batch_size: number of examples in a batch.
        count: number of batches.
        seed: seed of the epoch.
    Returns:
        Indices of the examples of each batch, (batch_size,), from short to long.
    Raises:
        UserError: the epoch has fewer full batches.
    """
    epoch = [
        batch
        for batch in bucketed_batches(lengths, batch_size, seed=seed, epoch=0)
        if len(batch) == batch_size
    ]
    if len(epoch) < count:
        raise UserError(f"--batches {count}: the number of batches of {batch_size} is only {len(epoch)}")
    epoch.sort(key=lambda batch: max(lengths[i] for i in batch))
    return [epoch[int((i + 0.5) / count * len(epoch))] for i in range(count)]


def _batches(name: str, count: int, seed: int, max_length: int, quick: bool) -> list[PaddedTokens]:
    """Draw the batches of a configuration, from short to long."""
    batch_size = 4 if quick else 128
    rng = np.random.default_rng(seed)
    match name:
        case "listops":
            if quick:
                expressions = generate(60, seed=seed, max_length=max_length)
            else:
                expressions = [one for one in standard(seed).train if len(one.tokens) <= max_length]
            examples = [[list(expression.tokens)] for expression in expressions]
        case "logic":  # drawn as in the logic task, with at most 6 operators as in training
            groups, _ = generate_pairs(400 if quick else 60_000, seed=seed)
            pairs = [pair for group in groups[: 3 if quick else 7] for pair in group]
            examples = [[list(pair.left), list(pair.right)] for pair in pairs]
        case "sst":  # sentences of 5 to 50 random words, 19 on average as in the treebank
            lengths = np.clip(rng.normal(19, 9, size=batch_size * 50).round(), 5, 50).astype(int)
            words = _WITHOUT_BATCHES["sst"].sizes.vocabulary
            examples = [[rng.integers(1, words + 1, size=length).tolist()] for length in lengths]
        case _:  # one batch of the longest of many ListOps expressions of at most 1,000 tokens
            batch_size, draws, longest = (2, 20, 30) if quick else (8, 400, 1000)
            expressions = generate(draws, seed=seed, min_length=longest * 9 // 10, max_length=longest)
            return [pad(sorted((list(one.tokens) for one in expressions), key=len)[-batch_size:])]
    # An example has one sequence or, in logic, two: the first ones of a batch come before the second ones.
    chosen = spread_batches([sum(map(len, example)) for example in examples], batch_size, count, seed)
    return [pad([examples[i][side] for side in range(len(examples[0])) for i in batch]) for batch in chosen]
