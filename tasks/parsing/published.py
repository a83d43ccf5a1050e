"""Published results of unsupervised parsing, from Table 2 of the ON-LSTM paper."""

from __future__ import annotations

from tasks.formatting.summary import Published

_BASELINES = {"right-branching": {"all": Published(39.8)}}
PUBLISHED: dict[str, dict[str, dict[str, Published]]] = {
    "onlstm": {
        "layer 1, prpn": {"all": Published(20.0, 2.8), "short": Published(35.2, 4.1)},
        "layer 2, prpn": {"all": Published(47.7, 1.5), "short": Published(65.1, 1.7)},
        "layer 3, prpn": {"all": Published(36.6, 3.3), "short": Published(54.0, 3.9)},
        **_BASELINES,
    },
    "prpn": {"layer 1, prpn": {"all": Published(37.4, 0.3), "short": Published(70.5, 0.4)}, **_BASELINES},
}
"""Sentence-level F1 in percent by `--model`, trees (as results name them) and sentences: `all` of the WSJ
test section, and the `short` ones of WSJ10."""
