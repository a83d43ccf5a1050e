"""Ordered Memory (Shen et al., NeurIPS 2019): a recurrent layer that induces trees with a stack of slots.

>>> from ordered_memory import OrderedMemory
>>> layer = OrderedMemory(input_size=16, slot_size=32, num_slots=8)
"""

from torch import nn
from torch.serialization import add_safe_globals

from ordered_memory.attention import AdditiveScore, NormalizedScore, masked_attention
from ordered_memory.cells import GatedRecursiveCell, TreeRNNCell
from ordered_memory.cumulative import backward_mask, cumax, forward_mask
from ordered_memory.direction import Direction
from ordered_memory.layer import OrderedMemory, OrderedMemoryOutput
from ordered_memory.serialization import register_named_tuples
from ordered_memory.state import OrderedMemoryState

__version__ = "0.8.0"

# `torch.load(weights_only=True)` accepts a pickled layer, its padded output and its state.
register_named_tuples("ordered_memory", OrderedMemoryOutput, OrderedMemoryState)
add_safe_globals(
    [
        OrderedMemory,
        Direction,
        AdditiveScore,
        NormalizedScore,
        GatedRecursiveCell,
        TreeRNNCell,
        nn.LayerNorm,
        nn.Linear,
        nn.ModuleList,
    ]
)

__all__ = [
    "AdditiveScore",
    "GatedRecursiveCell",
    "NormalizedScore",
    "OrderedMemory",
    "OrderedMemoryOutput",
    "OrderedMemoryState",
    "TreeRNNCell",
    "backward_mask",
    "cumax",
    "forward_mask",
    "masked_attention",
]
