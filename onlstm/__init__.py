"""ON-LSTM (Shen et al., *Ordered Neurons*, ICLR 2019): an LSTM whose gates induce trees."""

from torch.serialization import add_safe_globals

from onlstm.cell import ONLSTMCell
from onlstm.functional import MasterGates, Recurrence, Weights, master_gates, recur, step
from onlstm.layer import ONLSTM, Distances

# Whole modules in a file are data and nothing else, as nn.LSTM's: torch.load may read them with care.
add_safe_globals([ONLSTM, ONLSTMCell])

__all__ = [
    "ONLSTM",
    "Distances",
    "MasterGates",
    "ONLSTMCell",
    "Recurrence",
    "Weights",
    "master_gates",
    "recur",
    "step",
]
