"""Load the trained models that come with the project by name."""

from __future__ import annotations

from tasks.classifiers.classifier import Classifier
from tasks.listops.model import PRETRAINED as LISTOPS
from tasks.listops.model import ListOpsModel
from tasks.logic.model import PRETRAINED as LOGIC
from tasks.logic.model import LogicModel
from tasks.runs.errors import UserError
from tasks.sst.model import SentimentModel
from tasks.sst.task import PRETRAINED as SST

_MODELS: dict[str, tuple[type[Classifier], object]] = {
    "listops": (ListOpsModel, LISTOPS),
    "logic": (LogicModel, LOGIC),
    "sst2": (SentimentModel, SST[2]),
    "sst5": (SentimentModel, SST[5]),
}


def pretrained(name: str) -> Classifier:
    """Load a trained model that comes with the project; its `answer` method takes text.

    Args:
        name: "listops", "logic", "sst2" or "sst5".
    Raises:
        UserError: there is no model of this name.
    Example:
        >>> pretrained("listops").answer("[MAX 2 9 [MIN 4 7 ] 0 ]").answer
        '9'
    """
    if name not in _MODELS:
        raise UserError(f"name must be one of {', '.join(_MODELS)}, got {name!r}")
    model, path = _MODELS[name]
    return model.from_pretrained(path)
