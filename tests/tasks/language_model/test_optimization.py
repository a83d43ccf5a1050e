"""SGD, and ASGD from when validation no longer improves, as AWD-LSTM is trained."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from tasks.language_model.config import LanguageModelConfig
from tasks.language_model.optimization import AveragedSGD, build_optimization
from tasks.language_model.task import TextBatch
from tasks.runs.interfaces import Shard
from tests.tasks.language_model.tiny import ON_LSTM, build, options


def test_the_learning_rate_goes_with_the_tokens_of_a_step():
    model = build(ON_LSTM)
    optimization = AveragedSGD(model, options(learning_rate=8.0))
    optimization.begin_step(Shard(TextBatch(torch.zeros(5, 1), torch.zeros(5, 1), True), 5))
    assert optimization.optimizer.param_groups[0]["lr"] == 4.0
    optimization.end_step()
    assert optimization.optimizer.param_groups[0]["lr"] == 8.0


@pytest.mark.parametrize("model", ["onlstm", "lstm"])
def test_the_models_of_awd_lstm_are_trained_with_its_optimizer(model):
    config = LanguageModelConfig(model=model, learning_rate=0.5, weight_decay=0.25)
    optimization = build_optimization(torch.nn.Linear(2, 1), config)
    assert isinstance(optimization, AveragedSGD)
    (group,) = optimization.optimizer.param_groups
    assert (group["lr"], group["weight_decay"], group["momentum"]) == (0.5, 0.25, 0)


# With a patience of 2, the fourth and fifth losses are compared with the first one and two only, and the last
# is above the third, or above the first but not the second. With 4, the sixth is the first that is compared.
@pytest.mark.parametrize(
    ("losses", "patience"),
    [
        ((5.0, 4.0, 3.0, 3.5, 3.9, 3.1), 2),
        ((1.0, 3.0, 2.9, 0.5, 2.0), 2),
        ((1.0, 1.0, 1.0, 1.0, 1.5), 2),
        ((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), 4),
        ((1.0, 2.0), 0),
    ],
)
def test_averaging_begins_where_the_loss_is_above_the_best_of_long_before(losses, patience):
    optimization = AveragedSGD(build(ON_LSTM), options(patience=patience))
    for loss in losses:
        assert optimization.average.averaged is None
        assert not optimization.end_epoch(loss, -loss)  # training goes on from the weights themselves
    assert optimization.average.averaged is not None


def test_after_half_the_papers_epochs_an_average_forgets_what_came_before(monkeypatch):
    monkeypatch.setattr("tasks.language_model.optimization.RESTART_EPOCH", 4)
    model = build(ON_LSTM)
    ours = AveragedSGD(model, options(patience=0))
    averages = []
    for epoch, loss in enumerate((1.0, 2.0, 2.0, 2.0, 2.0), start=1):  # averages after the second
        with torch.no_grad():
            model.output_bias.fill_(epoch)
        ours.end_step()
        averages.append(ours.evaluated_model.output_bias[0].item())
        ours.end_epoch(loss, -loss)
    assert averages == [1.0, 2.0, 3.0, 3.5, 5.0]


def test_before_it_has_begun_an_average_does_not_start_afresh(monkeypatch):
    monkeypatch.setattr("tasks.language_model.optimization.RESTART_EPOCH", 1)
    model = build(ON_LSTM)
    ours = AveragedSGD(model, options())
    ours.end_epoch(1.0, -1.0)
    assert ours.evaluated_model is model


def test_a_resumed_run_compares_with_the_losses_before():
    model = build(ON_LSTM)
    ours, resumed = (AveragedSGD(model, options(patience=2)) for _ in range(2))
    for loss in (1.0, 2.0, 2.0):
        ours.end_epoch(loss, -loss)
    resumed.load_state_dict(ours.state_dict())
    assert resumed.average.averaged is None
    resumed.end_epoch(3.0, -3.0)
    assert resumed.average.averaged is not None


def test_of_the_options_of_sgd_the_weight_decay_alone_is_that_of_the_checkpoint():
    first, again = (
        AveragedSGD(build(ON_LSTM), options(weight_decay=decay, learning_rate=rate))
        for decay, rate in ((0.25, 8.0), (0.5, 4.0))
    )
    again.optimizer.load_state_dict(first.optimizer.state_dict())
    again.begin_step(Shard(TextBatch(torch.zeros(10, 1), torch.zeros(10, 1), True), 10))
    (group,) = again.optimizer.param_groups
    assert (group["weight_decay"], group["lr"]) == (0.25, 4.0)
    assert again.restored_options == ("weight_decay",)


def test_what_is_averaged_is_every_step_from_then_on_and_the_steps_are_those_of_asgd():
    torch.manual_seed(0)
    model, other = build(ON_LSTM).double(), build(ON_LSTM).double()
    other.load_state_dict(model.state_dict())
    config = options(learning_rate=0.5, weight_decay=0.01)
    ours = AveragedSGD(model, config)
    ours.end_epoch(1.0, -1.0)
    for _ in range(config.patience):
        ours.end_epoch(1.0, -1.0)
    ours.end_epoch(2.0, -2.0)
    asgd = torch.optim.ASGD(other.parameters(), lr=0.5, lambd=0.0, t0=0, weight_decay=0.01)
    tokens = torch.randint(11, (10, 2))
    visited = []
    for _ in range(4):
        for one, optimizer in ((model, ours.optimizer), (other, asgd)):
            one.zero_grad()
            cross_entropy(one(tokens).logits.flatten(0, 1), tokens.flatten()).backward()
            if one is model:
                ours.begin_step(Shard(TextBatch(tokens, tokens, True), 20))
            optimizer.step()
            if one is model:
                ours.end_step()
        visited.append({name: parameter.detach().clone() for name, parameter in model.named_parameters()})
    torch.testing.assert_close(dict(model.named_parameters()), dict(other.named_parameters()))
    averaged = dict(ours.evaluated_model.named_parameters())
    for name, parameter in averaged.items():
        torch.testing.assert_close(parameter, sum(weights[name] for weights in visited) / 4)
