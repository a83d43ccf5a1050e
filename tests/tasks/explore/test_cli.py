"""The command: it prints an address, refuses bad options in one line, and Ctrl-C ends it whatever it does."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from functools import partial

import pytest
import torch

from tasks.explore.__main__ import main
from tasks.runs.checkpoints import save_tensors
from tests.commands import refusal

fails = partial(refusal, main)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "-1"], "--port must lie in 0..65535, got -1"),
        (["--port", "65536"], "--port must lie in 0..65535, got 65536"),
        (["--checkpoint", "/nowhere.safetensors"], "/nowhere.safetensors: no such checkpoint"),
        (["--checkpoint", __file__], f"{__file__}: not a checkpoint of this project"),
        (["show"], "unknown subcommand 'show': expected one of serve"),
    ],
)
def test_bad_options_are_one_line(capsys, words, message):
    assert fails(capsys, *words).startswith(message)


def test_a_checkpoint_of_something_else(capsys, tmp_path):
    path = tmp_path / "other.safetensors"
    save_tensors(path, {"weight": torch.zeros(1)}, {"model": "lstm"})
    expected = f"{path}: not a checkpoint of listops, logic, sst, language_model"
    assert fails(capsys, "--checkpoint", str(path)) == expected


def test_a_port_that_is_taken(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert fails(capsys, "--port", port) == f"--port {port}: Address already in use"


@pytest.mark.parametrize("name", ["starlette", "uvicorn"])
def test_what_is_not_installed_is_named_with_its_extra(capsys, monkeypatch, name):
    monkeypatch.delitem(sys.modules, "tasks.explore.server", raising=False)
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    assert fails(capsys) == f"the page needs {name}: pip install '.[explore]'"


def test_ctrl_c_ends_it_at_once_without_a_trace():
    expression = f"[MAX {'[MAX 1 ' * 950}{'] ' * 950}]"
    body = json.dumps({"model": "ListOps", "texts": [expression]}).encode()
    head = f"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    words = [sys.executable, "-m", "tasks.explore"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address, _, hint = process.stdout.readline().partition("/ ")
            assert hint == "(Ctrl-C to stop)\n"
            port = int(address.removeprefix("http://127.0.0.1:"))
            with (
                socket.create_connection(("127.0.0.1", port), timeout=60) as idle,
                socket.create_connection(("127.0.0.1", port), timeout=60) as half,
                socket.create_connection(("127.0.0.1", port), timeout=60) as busy,
            ):
                idle.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert idle.recv(12) == b"HTTP/1.1 200"
                half.sendall(head.encode())
                busy.sendall(head.encode() + body)
                with urllib.request.urlopen(
                    f"{address}/", timeout=60
                ) as page:  # by now the other requests are there
                    assert page.status == 200
                process.send_signal(signal.SIGINT)
                output, errors = process.communicate(timeout=60)
        finally:
            process.kill()  # which has ended, unless the test has failed
        assert (process.returncode, output, errors) == (130, "", "")
