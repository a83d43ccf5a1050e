"""Fixtures of the tests of encoders."""

import pytest

from tests.tasks.sst.tiny_encoder import write_encoder


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    def refuse(host, *_, **__):
        raise OSError(f"no network in tests: {host}")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="module")
def encoder_directory(tmp_path_factory):
    """An encoder that tests must not change."""
    return write_encoder(tmp_path_factory.mktemp("encoder"))
