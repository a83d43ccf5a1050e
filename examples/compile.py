"""Both layers under torch.compile, as one graph: python examples/compile.py [inductor | aot_eager]"""

import sys

import torch
from torch import Tensor, nn

from onlstm import ONLSTM
from ordered_memory import OrderedMemory


class Classifier(nn.Module):
    """ON-LSTM below Ordered Memory, and a score for each of five classes."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = ONLSTM(8, 12, chunk_size=4)
        self.memory = OrderedMemory(12, 16, num_slots=6)
        self.scores = nn.Linear(16, 5)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(T, B, 8) and (B,) to (B, 5)."""
        summary = self.memory(self.lstm(x)[0], lengths=lengths).summary
        scores: Tensor = self.scores(summary)
        return scores


def main(backend: str) -> None:
    """Compare the compiled model with the model, gradients included."""
    torch.manual_seed(0)
    model = Classifier()
    compiled = torch.compile(model, fullgraph=True, backend=backend)  # no graph breaks
    x, lengths = torch.randn(10, 4, 8), torch.tensor([10, 7, 3, 1])
    results = []
    for run in (model, compiled):
        model.zero_grad()
        scores = run(x, lengths)
        scores.square().sum().backward()
        results.append([scores.detach(), *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*results)
    print("the compiled model gives the same scores and gradients")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "inductor")
