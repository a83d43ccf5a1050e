"""An encoder of your own in the tasks. Run this in the directory of this file:

python -m tasks.logic --preset demo --model own_encoder:GRU
"""

import torch
from torch import Tensor, nn

from tasks.classifiers.config import EncoderConfig
from tasks.classifiers.encoded import Encoded


class GRU(nn.Module):
    """A GRU. Its trees are split where the output changes most."""

    def __init__(self, config: EncoderConfig, input_size: int) -> None:
        super().__init__()
        self.gru = nn.GRU(input_size, config.slot_size, batch_first=True)

    def forward(self, embedded: Tensor, lengths: Tensor) -> Encoded:
        """Encode embeddings, (B, T, E), padded on the right; `lengths`, (B,), are on the CPU."""
        output, _ = self.gru(embedded)
        last = (lengths - 1).to(output.device)
        summary = output[torch.arange(len(last), device=last.device), last]
        changes = (output[:, 1:] - output[:, :-1]).norm(dim=-1)  # between tokens t and t + 1
        return Encoded(summary, distances=nn.functional.pad(changes, (1, 0)))
