"""A classifier on Ordered Memory, with packed batches: is a string of brackets balanced?"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from ordered_memory import OrderedMemory
from ordered_memory.brackets import to_brackets
from ordered_memory.tree_recovery import from_attention

STEPS = 60


class Classifier(nn.Module):
    """Embedding, Ordered Memory, and a linear map of the summary."""

    def __init__(self, vocabulary: int, classes: int, size: int = 16, num_slots: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.memory = OrderedMemory(size, size, num_slots)
        self.output = nn.Linear(size, classes)

    def forward(self, tokens: PackedSequence) -> tuple[Tensor, Tensor]:
        """Logits (B, classes), and attention (T, B, N), which is padded."""
        out = self.memory(tokens._replace(data=self.embedding(tokens.data)))
        return self.output(out.summary), out.attention


def draw(batch_size: int) -> tuple[PackedSequence, list[int], Tensor]:
    """Strings of 2 to 8 brackets, 0 for "(" and 1 for ")", their lengths, and whether they are balanced."""
    lengths = (2 * torch.randint(1, 5, (batch_size,))).tolist()
    strings = [torch.randint(2, (length,)) for length in lengths]
    depths = [(1 - 2 * string).cumsum(0) for string in strings]
    balanced = torch.tensor([int(depth[-1] == 0 and depth.min() >= 0) for depth in depths])
    return pack_sequence(strings, enforce_sorted=False), lengths, balanced


def main() -> None:
    """Train, test, and show the trees of a few strings."""
    torch.manual_seed(0)
    model = Classifier(vocabulary=2, classes=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        tokens, _, labels = draw(64)
        loss = F.cross_entropy(model(tokens)[0], labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    model.eval()
    with torch.inference_mode():
        tokens, lengths, labels = draw(500)
        logits, attention = model(tokens)
    print(f"accuracy {(logits.argmax(-1) == labels).float().mean():.2f}, loss in training {loss:.2f}")
    for number, tree in enumerate(from_attention(attention, lengths)[:3]):
        length = lengths[number]
        print(f"{length} brackets:", to_brackets(tree, [str(position) for position in range(length)]))


if __name__ == "__main__":
    main()
