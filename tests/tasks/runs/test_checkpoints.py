import math

import pytest
import torch
from torch import nn

from tasks.runs.checkpoints import (
    load_weights,
    read_checkpoint,
    read_metadata,
    read_state,
    rng_state,
    save_state,
    save_tensors,
    set_rng_state,
    write_directory,
)
from tasks.runs.errors import UserError


def test_any_nested_state_comes_back_as_it_was(tmp_path):
    shared = torch.randn(3)
    state = {
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}, 7: {"m": shared}}, "groups": [{"lr": 0.1}]},
        "numbers": [1, 0.1 + 0.2, None, True, "text", math.inf],
        "same": shared,
        "bytes": torch.arange(5, dtype=torch.uint8),
    }
    save_state(tmp_path / "x.safetensors", state)
    loaded = read_state(tmp_path / "x.safetensors")
    assert loaded["numbers"] == state["numbers"]
    assert loaded["optimizer"]["groups"] == state["optimizer"]["groups"]
    assert list(loaded["optimizer"]["state"]) == [0, 7]
    assert torch.equal(loaded["optimizer"]["state"][7]["m"], shared)
    assert torch.equal(loaded["same"], shared)
    assert loaded["bytes"].dtype == torch.uint8


def test_weights_keep_their_names_and_metadata(tmp_path):
    path = tmp_path / "w.safetensors"
    model, other = nn.Linear(2, 3), nn.Linear(2, 3)
    save_tensors(path, model.state_dict(), {"size": 3})
    load_weights(path, other)
    assert torch.equal(model.weight, other.weight)
    assert read_metadata(path) == {"size": 3}
    with pytest.raises(
        UserError, match=r"does not fit the model: bias is \(3,\) in the file, \(4,\) in the model"
    ):
        load_weights(path, nn.Linear(2, 4))
    with pytest.raises(UserError, match="bias is \\(3,\\) in the file, missing in the model"):
        load_weights(path, nn.Linear(2, 3, bias=False))


def test_tensors_need_not_be_contiguous_and_may_share_memory(tmp_path):
    weights = torch.arange(12.0).view(3, 4)
    tensors = {"turned": weights.T, "every_other": weights[:, ::2], "repeated": weights[:1].expand(2, 4)}
    tensors |= {"whole": weights, "again": weights, "part": weights[1]}
    save_tensors(tmp_path / "weights.safetensors", tensors, {})
    write_directory(tmp_path, tensors, {})
    save_state(tmp_path / "state.safetensors", tensors)
    read = [read_checkpoint(tmp_path / name)[0] for name in ("weights.safetensors", "")]
    for found in (*read, read_state(tmp_path / "state.safetensors")):
        for name, tensor in tensors.items():
            assert torch.equal(found[name], tensor)


class Masked(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.register_buffer("mask", torch.full((2, 2), -math.inf).triu(1))


def test_values_are_infinite_only_where_the_model_has_infinity_itself(tmp_path):
    path, model = tmp_path / "w.safetensors", Masked()
    save_tensors(path, model.state_dict(), {})
    load_weights(path, Masked())
    for name, value in (("mask", math.nan), ("mask", math.inf), ("weight", math.inf)):
        state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        state[name][1, 0] = value
        save_tensors(path, state, {})
        with pytest.raises(UserError, match=f"{name} has values that are not finite"):
            load_weights(path, Masked())


def test_what_is_no_checkpoint_is_said(tmp_path):
    (tmp_path / "text").write_text("not one")
    with pytest.raises(UserError, match="not a checkpoint"):
        read_metadata(tmp_path / "text")
    with pytest.raises(UserError, match="no such checkpoint"):
        read_metadata(tmp_path / "nothing")


def test_a_checkpoint_that_may_not_be_read_is_there(tmp_path, monkeypatch):
    def unreadable(path, framework):
        raise FileNotFoundError("No such file or directory")  # as safetensors says it of what it cannot open

    monkeypatch.setattr("tasks.runs.checkpoints.safe_open", unreadable)
    (tmp_path / "mine").write_text("")
    with pytest.raises(UserError, match="mine: no permission to read"):
        read_metadata(tmp_path / "mine")


def test_on_a_gpu_both_generators_come_back(monkeypatch):
    """The backends draw the seed of their dropout on the CPU, also for a GPU."""
    gpu, of_gpu = torch.device("cuda"), torch.arange(16, dtype=torch.uint8)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: of_gpu)
    restored = []
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: restored.append((state, device)))
    states = rng_state(gpu)
    drawn = torch.rand(3)
    set_rng_state(gpu, states)
    assert torch.equal(torch.rand(3), drawn)
    ((state, device),) = restored
    assert torch.equal(state, of_gpu)
    assert device == gpu


def test_what_is_read_is_aligned_since_rounding_may_depend_on_it(tmp_path):
    state = {f"{size}": torch.randn(size) for size in (7, 15, 9)}
    save_state(tmp_path / "last.safetensors", state)
    tensors, _ = read_checkpoint(tmp_path / "last.safetensors")
    assert [tensor.data_ptr() % 64 for tensor in tensors.values()] == [0, 0, 0]
