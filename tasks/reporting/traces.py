"""Traces: summarized in the terminal, written as JSON and as an HTML page, and explained to its readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ordered_memory.span_f1 import fraction_text
from ordered_memory.trace import Answer, Node, Trace, to_json
from ordered_memory.viewer import viewer_page
from tasks.formatting.tables import count_text
from tasks.runs.command_options import CommandConfig
from tasks.runs.files import check_writable_file, write_atomically

STANDARD_OUTPUT = Path("-")
ATTENTION = (
    "The model keeps what is not finished on a stack of memory slots; slot 1 is the top. p is how much a "
    "token attends to each slot. The subtrees down to the slot with the largest p are joined into one, and "
    "the token is put on top. In this way a tree grows while the model reads."
)
DISTANCES = (
    "The distance of a word is large if a constituent ends before it: in ON-LSTM, how many entries of the "
    "master forget gate are closed, and in PRPN, a number between 0 and 1. A tree is decoded from the "
    "distances of a layer."
)
BACKWARD = "In the backward direction it is large if a constituent begins after the word."


@dataclass
class FilesConfig(CommandConfig):
    """Output files."""

    json: Path | None = None
    """Write the trace to this JSON file; - prints it to standard output, and nothing else."""
    html: Path | None = None
    """Write an HTML page to this file that shows the trace step by step."""

    def check(self) -> None:
        super().check()
        if self.json != STANDARD_OUTPUT:
            check_writable_file("--json", self.json)
        check_writable_file("--html", self.html)

    def write(self, traces: Sequence[Trace], title: str, about: str) -> None:
        """Print a summary of traces, and write the files.

        Args:
            traces: traces of one example.
            title, about: title and introduction of the page.
        """
        lines = [summary_text(traces)]
        if self.html is not None:
            write_atomically(self.html, viewer_page(traces, title, f"{about} {explanation(traces)}"))
            lines.append(f"page: {self.html}")
        if self.json == STANDARD_OUTPUT:
            print(to_json(traces))
            return
        if self.json is not None:
            write_atomically(self.json, to_json(traces) + "\n")
            lines.append(f"trace: {self.json}")
        print("\n".join(lines))


def answer_text(answer: Answer) -> str:
    """Format the most probable answer and, if known, whether it is correct.

    Args:
        answer: answer of a classifier.
    Example:
        >>> answer_text({"classes": ["no", "yes"], "probabilities": [0.1, 0.9], "true": 0})
        'answer: yes (probability 0.900; wrong, it is no)'
    """
    classes, probabilities, true = answer["classes"], answer["probabilities"], answer["true"]
    predicted = probabilities.index(max(probabilities))
    verdict = "" if true is None else "; right" if predicted == true else f"; wrong, it is {classes[true]}"
    return f"answer: {classes[predicted]} (probability {fraction_text(probabilities[predicted], 3)}{verdict})"


def summary_text(traces: Sequence[Trace]) -> str:
    """Format the answer to an example, and one line for each of its sequences.

    Args:
        traces: traces of one example.
    """
    lines = [answer_text(trace["answer"]) for trace in traces[:1] if "answer" in trace]
    return "\n".join([*lines, *map(_line, traces)])


def explanation(traces: Sequence[Trace]) -> str:
    """Explain what traces show, in a few sentences.

    Args:
        traces: traces of any number of examples.
    """
    kinds = {key for trace in traces for key in trace}
    texts = [text for key, text in (("memory", ATTENTION), ("layers", DISTANCES)) if key in kinds]
    if any("layers" in trace and trace["direction"] == "backward" for trace in traces):
        texts.append(BACKWARD)
    return " ".join(texts)


def _line(trace: Trace) -> str:
    facts = [count_text(len(trace["tokens"]), "token")]
    if "memory" in trace:
        # Slot 0 stands for a subtree for which no slot was left.
        slots = {slot for step in trace["memory"]["steps"] for _, slot in step["stack"] if slot}
        facts.append(f"{len(slots)} of {trace['memory']['num_slots']} slots in use")
    if "layers" in trace:
        facts.append(f"distances of {', '.join(layer['name'] for layer in trace['layers'])}")
    nodes = _induced_nodes(trace)
    if nodes is not None and "true_nodes" in trace:
        same = all(node["in_true_tree"] is not False for node in nodes)
        facts.append(f"the induced tree is {'' if same else 'not '}the true one")
    caption = f"{trace['caption']}: " if trace["caption"] else ""
    return caption + "; ".join(facts)


def _induced_nodes(trace: Trace) -> list[Node] | None:
    """The nodes of the tree that counts as the induced one; None if there is no such tree."""
    chosen = trace.get("default_tree")
    if chosen is None:
        return trace.get("nodes")
    [trees] = [layer["trees"] for layer in trace["layers"] if layer["name"] == chosen["layer"]]
    return trees[chosen["decoding"]]
