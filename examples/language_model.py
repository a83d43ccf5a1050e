"""A language model on ON-LSTM: state carried from batch to batch, and trees read off a sentence."""

import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onlstm import ONLSTM, Distances
from ordered_memory.brackets import to_brackets
from ordered_memory.tree_recovery import from_distances

SENTENCES, BATCH, BPTT = 1600, 20, 15
WORDS = ["<eos>", "the", "a", "cat", "dog", "bird", "sees", "hears", "chases", "near", "behind"]


class LanguageModel(nn.Module):
    """Embedding, two layers of ON-LSTM, softmax over the words."""

    def __init__(self, vocabulary: int, size: int = 40) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.recurrent = ONLSTM(size, size, num_layers=2, chunk_size=4)
        self.output = nn.Linear(size, vocabulary)

    def forward(
        self, tokens: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Distances]:
        """Logits of the next word (T, B, V), the state to go on from, and the distances."""
        output, next_state, distances = self.recurrent(self.embedding(tokens), state, distances=True)
        return self.output(output), next_state, distances


def phrase() -> list[str]:
    """A noun phrase, now and then with another one in it."""
    noun = [random.choice(["the", "a"]), random.choice(["cat", "dog", "bird"])]
    return [*noun, random.choice(["near", "behind"]), *phrase()] if random.random() < 0.3 else noun


def main() -> None:
    """Train one epoch, and parse a sentence."""
    torch.manual_seed(0)
    random.seed(0)
    verbs = ["sees", "hears", "chases"]
    text = [word for _ in range(SENTENCES) for word in [*phrase(), random.choice(verbs), *phrase(), "<eos>"]]
    ids = torch.tensor([WORDS.index(word) for word in text])
    columns = ids[: len(ids) // BATCH * BATCH].view(BATCH, -1).T  # (T, B): the text in BATCH columns

    model = LanguageModel(len(WORDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    state = None
    for start in range(0, len(columns) - 1, BPTT):
        targets = columns[start + 1 : start + 1 + BPTT]
        logits, (h, c), _ = model(columns[start : start + len(targets)], state)
        state = h.detach(), c.detach()  # the next segment goes on from here; gradients do not go back
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"perplexity of the last segment: {loss.exp():.2f}")

    model.eval()  # no dropout, if you add some
    sentence = ["the", "cat", "near", "the", "dog", "sees", "a", "bird"]
    with torch.inference_mode():
        read = ["<eos>", *sentence]  # a sentence follows the end of another one, whose distance is left out
        _, _, distances = model(torch.tensor([[WORDS.index(word)] for word in read]))
    for layer, forget in enumerate(distances.forget[:, 1:], start=1):
        (tree,) = from_distances(forget, decoding="unbiased")
        print(f"layer {layer}:", to_brackets(tree, sentence))


if __name__ == "__main__":
    main()
