"""Adam and RAdam with a plateau, its average of the weights, and learning rates of submodules."""

import copy

import pytest
import torch

from tasks.runs.config import AdamConfig
from tasks.runs.optimization import PlateauAdam


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 2)
        self.second = torch.nn.Linear(2, 1)
        self.second.bias.requires_grad_(False)

    def forward(self, x):
        return self.second(self.first(x))


def steps(model, optimization, count):
    for seed in range(count):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        optimization.optimizer.zero_grad()
        model(x).square().sum().backward()
        optimization.optimizer.step()
        optimization.end_step()
        yield [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize(("name", "expected"), [("adam", torch.optim.Adam), ("radam", torch.optim.RAdam)])
def test_the_steps_are_those_of_the_optimizer_that_the_options_name(name, expected):
    model, options = Two(), {"lr": 0.1, "betas": (0.5, 0.9), "eps": 0.01, "weight_decay": 0.2}
    other = copy.deepcopy(model)
    by_hand = expected([parameter for parameter in other.parameters() if parameter.requires_grad], **options)
    config = AdamConfig(
        optimizer=name, learning_rate=0.1, adam_betas=(0.5, 0.9), adam_epsilon=0.01, weight_decay=0.2
    )
    for seed, weights in enumerate(steps(model, PlateauAdam(model, config), 8)):
        by_hand.zero_grad()
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        other(x).square().sum().backward()
        by_hand.step()
        torch.testing.assert_close(weights, [parameter.detach() for parameter in other.parameters()])


def test_the_average_is_that_of_the_formula():
    model = Two()
    optimization = PlateauAdam(model, AdamConfig(average_decay=0.7))
    assert optimization.evaluated_model is model
    expected = None
    for n, weights in enumerate(steps(model, optimization, 20)):
        decay = min(0.7, (n + 1) / (n + 10))
        expected = (
            weights
            if n == 0
            else [decay * old + (1 - decay) * new for old, new in zip(expected, weights, strict=True)]
        )
        for found, wanted in zip(optimization.evaluated_model.parameters(), expected, strict=True):
            torch.testing.assert_close(found.detach(), wanted)


def test_the_average_survives_a_checkpoint():
    model = Two()
    optimization = PlateauAdam(model, AdamConfig(average_decay=0.9))
    list(steps(model, optimization, 5))
    again = PlateauAdam(model, AdamConfig(average_decay=0.9))
    again.load_state_dict(optimization.state_dict())
    for _ in steps(model, optimization, 1):
        again.end_step()  # the same weights
    for continued, whole in zip(
        again.evaluated_model.parameters(),
        optimization.evaluated_model.parameters(),
        strict=True,
    ):
        assert torch.equal(continued, whole)


def test_without_a_decay_nothing_is_averaged():
    model = Two()
    optimization = PlateauAdam(model, AdamConfig())
    list(steps(model, optimization, 2))
    assert optimization.evaluated_model is model
    assert optimization.state_dict()["average"] is None


def test_submodules_have_rates_of_their_own_and_frozen_weights_none():
    model = Two()
    groups = PlateauAdam(model, AdamConfig(learning_rate=0.1), {"second": 0.01}).optimizer.param_groups
    assert [group["lr"] for group in groups] == [0.1, 0.01]
    assert [len(group["params"]) for group in groups] == [2, 1]
    assert groups[1]["params"][0] is model.second.weight


def test_a_rate_is_that_of_one_submodule_and_not_of_those_whose_names_begin_alike():
    model = torch.nn.ModuleDict({name: torch.nn.Linear(1, 1) for name in ("word", "words")})
    rest, group = PlateauAdam(model, AdamConfig(), {"word": 0.01}).optimizer.param_groups
    assert group["params"] == list(model["word"].parameters())
    assert rest["params"] == list(model["words"].parameters())


def test_the_rate_of_a_submodule_is_that_of_the_checkpoint_and_so_its_option_cannot_change():
    first, again = (PlateauAdam(Two(), AdamConfig(), {"second": rate}) for rate in (0.01, 0.5))
    again.optimizer.load_state_dict(first.optimizer.state_dict())
    assert again.optimizer.param_groups[1]["lr"] == 0.01
    assert "encoder_learning_rate" in again.restored_options


def test_every_rate_falls_on_a_plateau():
    config = AdamConfig(learning_rate=0.1, patience=0, learning_rate_decay=0.5)
    optimization = PlateauAdam(Two(), config, {"second": 0.01})
    for score in (0.5, 0.4):
        optimization.end_epoch(1.0, score)
    assert [group["lr"] for group in optimization.optimizer.param_groups] == pytest.approx([0.05, 0.005])


def test_the_smallest_gain_is_no_plateau():
    config = AdamConfig(learning_rate=0.1, patience=0, learning_rate_decay=0.5)
    optimization = PlateauAdam(Two(), config)
    rates = []
    for score in (0.9, 0.90001, 0.90001):
        optimization.end_epoch(1.0, score)
        rates.append(optimization.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1, 0.1, 0.05])


def test_rates_stay_in_the_constant_epochs_which_a_checkpoint_counts_too():
    config = AdamConfig(learning_rate=0.1, patience=0, learning_rate_decay=0.5)
    first, again = (PlateauAdam(Two(), config, constant_epochs=3) for _ in range(2))
    first.end_epoch(1.0, 0.5)
    again.load_state_dict(first.state_dict())
    rates = []
    for score in (0.4, 0.4, 0.4, 0.6, 0.5):
        again.end_epoch(1.0, score)
        rates.append(again.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025])


@pytest.mark.parametrize("restore_best", [False, True])
def test_training_goes_back_to_the_best_epoch_only_where_the_rate_falls(restore_best):
    optimization = PlateauAdam(Two(), AdamConfig(patience=1, restore_best=restore_best))
    returned = [optimization.end_epoch(1.0, score) for score in (0.5, 0.6, 0.4, 0.4, 0.4)]
    assert returned == [False, False, False, restore_best, False]


def test_a_resumed_plateau_compares_with_the_best_score_before():
    config = AdamConfig(learning_rate=0.1, patience=0, learning_rate_decay=0.5, restore_best=True)
    first, again = (PlateauAdam(Two(), config) for _ in range(2))
    first.end_epoch(1.0, 0.5)
    again.load_state_dict(first.state_dict())
    assert again.end_epoch(1.0, 0.4)
    assert again.optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


@pytest.mark.parametrize("name", ["third", "firs", "second.bias"])
def test_a_rate_of_a_submodule_without_weights_to_train_is_an_error(name):
    with pytest.raises(ValueError, match=f"no parameters to train in {name}"):
        PlateauAdam(Two(), AdamConfig(), {name: 0.01})
