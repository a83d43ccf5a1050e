"""Both layers under torch.compile, as one graph: python examples/compile.py [inductor | aot_eager]"""

import sys

import torch
from torch import Tensor, nn

from onlstm import ONLSTM
from ordered_memory import OrderedMemory


class Encoder(nn.Module):
    """ON-LSTM below Ordered Memory: one vector per sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = ONLSTM(8, 12, chunk_size=4)
        self.memory = OrderedMemory(12, 16, num_slots=6)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(T, B, 8) and (B,) to (B, 16)."""
        return self.memory(self.lstm(x)[0], lengths=lengths).summary


def main(backend: str) -> None:
    """Compare the compiled model with the model, gradients included."""
    torch.manual_seed(0)
    model = Encoder()
    compiled = torch.compile(model, fullgraph=True, backend=backend)  # no graph breaks
    x, lengths = torch.randn(10, 4, 8), torch.tensor([10, 7, 3, 1])
    results = []
    for run in (model, compiled):
        model.zero_grad()
        summary = run(x, lengths)
        summary.square().sum().backward()
        results.append([summary.detach(), *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*results)
    print("the compiled model gives the same summary and gradients")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "inductor")
