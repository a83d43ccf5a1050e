"""ON-LSTM (Shen et al., *Ordered Neurons*, ICLR 2019): an LSTM whose gates induce trees.

>>> from onlstm import ONLSTM
>>> lstm = ONLSTM(input_size=16, hidden_size=32, chunk_size=8)
"""

from torch.serialization import add_safe_globals

from onlstm.cell import ONLSTMCell
from onlstm.distances import Distances
from onlstm.layer import ONLSTM
from ordered_memory import __version__ as __version__
from ordered_memory.serialization import register_named_tuples

# `torch.load(weights_only=True)` accepts a pickled module and its distances.
register_named_tuples("onlstm", Distances)
add_safe_globals([ONLSTM, ONLSTMCell])

__all__ = ["ONLSTM", "Distances", "ONLSTMCell"]
