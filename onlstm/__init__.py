"""ON-LSTM (Shen et al., *Ordered Neurons*, ICLR 2019): an LSTM whose gates induce trees."""

from onlstm.cell import ONLSTMCell
from onlstm.functional import MasterGates, Recurrence, Weights, master_gates, recur, step
from onlstm.layer import ONLSTM, Distances

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
