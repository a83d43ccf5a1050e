"""What some versions of PyTorch cannot do."""

import pytest
import torch

MESSAGES_IN_GRAPHS = torch.__version__ >= (2, 13)
"""Whether an error that a graph raises while it is captured has the message of the exception."""

DROPOUT_OF_EAGER_MODE = pytest.mark.skipif(
    torch.__version__ < (2, 13),
    reason="with the same seed Inductor of this PyTorch draws other dropout masks than eager mode",
)

SHARDED_PARTS_AGAIN = pytest.mark.skipif(
    torch.__version__ < (2, 13),
    reason="this PyTorch does not gather the weights of a sharded part when steps are computed again",
)

PACKED_FIELDS_IN_GRAPHS = pytest.mark.skipif(
    (2, 12) <= torch.__version__ < (2, 13),
    reason="this PyTorch cannot read a PackedSequence made within a graph by the names of its fields",
)

PROPERTIES_IN_GRAPHS = pytest.mark.skipif(
    torch.__version__ < (2, 11),
    reason="this PyTorch cannot compute with a property of a NamedTuple within a graph",
)

SORTED_IN_GRAPHS = pytest.mark.skipif(
    torch.__version__ < (2, 13),
    reason="this PyTorch cannot read the size of a batch packed in order within a graph",
)
