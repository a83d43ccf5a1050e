"""A tagger in both directions, trained by Lightning Fabric: which letter is the last of its run?"""

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from ordered_memory import OrderedMemory

STEPS = 50


class Tagger(nn.Module):
    """Embedding, Ordered Memory in both directions, and a linear map of every output."""

    def __init__(self, vocabulary: int, tags: int, size: int = 12) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.memory = OrderedMemory(size, size, num_slots=3, bidirectional=True)
        self.output = nn.Linear(2 * size, tags)

    def forward(self, tokens: PackedSequence) -> Tensor:
        """Logits of every token of the packed batch, (P, tags)."""
        out = self.memory(tokens._replace(data=self.embedding(tokens.data)))
        logits: Tensor = self.output(out.output.data)
        return logits


def draw(batch_size: int) -> tuple[PackedSequence, Tensor]:
    """Random strings of 2 to 9 letters (of three), and for each letter whether it is the last of its run."""
    strings = [torch.randint(3, (length,)) for length in torch.randint(2, 10, (batch_size,)).tolist()]
    tags = [torch.cat([string[1:] != string[:-1], torch.tensor([True])]).long() for string in strings]
    return pack_sequence(strings, enforce_sorted=False), pack_sequence(tags, enforce_sorted=False).data


def main() -> None:
    """Train and test."""
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    fabric.seed_everything(0, verbose=False)
    model = Tagger(vocabulary=3, tags=2)
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for _ in range(STEPS):
        tokens, tags = fabric.to_device(draw(32))
        loss = F.cross_entropy(model(tokens), tags)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        tokens, tags = fabric.to_device(draw(200))
        correct = model(tokens).argmax(-1) == tags
    print(f"accuracy {correct.float().mean():.2f}")


if __name__ == "__main__":
    main()
