"""ONLSTM where code was written for nn.LSTM: as PyTorch's word language model example and its tagging
tutorial use it, with nothing but the name changed."""

import torch
from torch import nn

from onlstm import ONLSTM


class WordModel(nn.Module):
    """Encoder, recurrent layers in (T, B, ·), decoder, perhaps tied; the state is the caller's."""

    def __init__(self, words, size, layers, dropout, tied):
        super().__init__()
        self.encoder = nn.Embedding(words, size)
        self.rnn = ONLSTM(size, size, layers, dropout=dropout)
        self.decoder = nn.Linear(size, words)
        if tied:
            self.decoder.weight = self.encoder.weight
        self.layers, self.size = layers, size

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.encoder(tokens), hidden)
        return nn.functional.log_softmax(self.decoder(output).flatten(0, 1), dim=1), hidden

    def init_hidden(self, batch_size):
        weight = next(self.parameters())
        return tuple(weight.new_zeros(self.layers, batch_size, self.size) for _ in range(2))


def test_a_word_language_model_trains_by_truncated_backpropagation_and_comes_back_from_a_file(tmp_path):
    text = (torch.arange(60) % 5).view(3, 20).t().contiguous()
    model = WordModel(5, 8, 2, dropout=0.1, tied=True)
    hidden, losses = model.init_hidden(3), []
    for step in range(60):
        start = step % 3 * 6
        model.zero_grad()
        hidden = tuple(h.detach() for h in hidden)
        output, hidden = model(text[start : start + 6], hidden)
        loss = nn.functional.nll_loss(output, text[start + 1 : start + 7].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=-3.0)
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    torch.save(model, tmp_path / "model.pt")
    # The caller names its own classes; PyTorch's and this package's layers go without saying.
    known = {WordModel, nn.Embedding, nn.Linear, nn.modules.dropout.Dropout}
    # Leaving the context forgets what it names, so it names only what was not known before.
    with torch.serialization.safe_globals([*known.difference(torch.serialization.get_safe_globals())]):
        again = torch.load(tmp_path / "model.pt", weights_only=True)
    again.rnn.flatten_parameters()
    model.eval(), again.eval()
    hidden = model.init_hidden(3)
    assert torch.equal(again(text, hidden)[0], model(text, hidden)[0])


def test_a_tagger_reads_one_sentence_without_a_batch_and_learns():
    sentences = [(torch.tensor([0, 1, 2, 3, 4]), torch.tensor([0, 1, 2, 0, 1]))]
    sentences.append((torch.tensor([5, 6, 7, 8]), torch.tensor([1, 2, 0, 1])))
    embedding, lstm, tags = nn.Embedding(9, 6), ONLSTM(6, 6), nn.Linear(6, 3)
    parameters = [*embedding.parameters(), *lstm.parameters(), *tags.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.3)
    for _ in range(150):
        for words, wanted in sentences:
            optimizer.zero_grad()
            output, _ = lstm(embedding(words).view(len(words), 1, -1))
            nn.functional.cross_entropy(tags(output.view(len(words), -1)), wanted).backward()
            optimizer.step()
    for words, wanted in sentences:
        output, _ = lstm(embedding(words).view(len(words), 1, -1))
        assert (tags(output.view(len(words), -1)).argmax(1) == wanted).all()
