"""Every test starts from the same seed, and Hypothesis draws the same examples every time."""

import os

import pytest
import torch
from hypothesis import settings

# Read when Triton is imported, which other packages do: without a GPU its kernels are interpreted.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")

# Tests are small: more threads only wait for one another, above all where something else is running. A sum
# shared among another number of threads rounds differently, so the programs a test starts have as many.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

settings.register_profile("reproducible", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def _same_seed():
    torch.manual_seed(20191026)


@pytest.fixture(scope="session", autouse=True)
def _reports_have_no_pictures():
    """Drawing those of one report takes ten times as long as the tiny run that it is about."""

    def attention_figure(attention, tokens):
        assert len(attention) == len(tokens)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.reporting.report.attention_figure", attention_figure)
        patch.setattr("tasks.reporting.report.curves_figure", lambda *_: None)
        patch.setattr("tasks.reporting.report.figure_img", lambda *_: "")
        yield


@pytest.fixture
def pictures(monkeypatch):
    """Reports have their pictures."""
    from tasks.reporting import drawing

    for name in ("attention_figure", "curves_figure", "figure_img"):
        monkeypatch.setattr(f"tasks.reporting.report.{name}", getattr(drawing, name))


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory):
    """A tiny finished run of each task, to be read only: see `tests.hostile_files.make_runs`."""
    from tests.hostile_files import make_runs

    return make_runs(tmp_path_factory.mktemp("small_runs"))
