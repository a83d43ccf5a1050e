"""The layout of the table of results.

Marvin and Linzen's constructions come first, as in Table 3 of the ON-LSTM paper; others follow by group, in
the order of the pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

KINDS = ("grammatical vs. intrusive", "intrusive vs. ungrammatical", "grammatical vs. ungrammatical")
"""Comparisons of three sentences; in each of them the first sentence should be more probable."""

SHORT, LONG, OTHER = "Short-term dependency", "Long-term dependency", "Constructions"
AGREEMENT, REFLEXIVES, POLARITY = "Subject-verb agreement", "Reflexive anaphora", "Negative polarity items"

PUBLISHED_MODELS = ("ON-LSTM, published", "LSTM, published")
"""The columns of published accuracies."""


class Row(NamedTuple):
    """A row of the table, for one or more constructions whose pairs are pooled.

    Args:
        section, group: headings above the row.
        name: name of the row.
        cases: names of the constructions.
        kind: which comparison of three sentences, one of KINDS; empty if there are only two sentences.
        published: accuracies of PUBLISHED_MODELS in Table 3 of the ON-LSTM paper, or None.
    """

    section: str
    group: str
    name: str
    cases: tuple[str, ...]
    kind: str = ""
    published: tuple[float, float] | None = None


def _polarity(
    section: str, name: str, cases: tuple[str, ...], published: Iterable[tuple[float, float]]
) -> tuple[Row, ...]:
    return tuple(
        Row(section, POLARITY, f"{name} ({kind})", cases, kind, accuracies)
        for kind, accuracies in zip(KINDS, published, strict=True)
    )


def _both(stem: str) -> tuple[str, str]:
    """The constructions with animate and inanimate nouns."""
    return f"{stem}_anim", f"{stem}_inanim"


def _agree(section: str, name: str, cases: tuple[str, ...], published: tuple[float, float]) -> Row:
    return Row(section, AGREEMENT, name, cases, published=published)


PAPER_ROWS = (
    _agree(SHORT, "Simple", ("simple_agrmt",), (0.99, 1.00)),
    _agree(SHORT, "In a sentential complement", ("sent_comp",), (0.95, 0.98)),
    _agree(SHORT, "Short VP coordination", ("vp_coord",), (0.89, 0.92)),
    _agree(SHORT, "In an object relative clause", _both("obj_rel_within"), (0.84, 0.88)),
    _agree(SHORT, "In an object relative clause, no that", _both("obj_rel_no_comp_within"), (0.78, 0.81)),
    Row(SHORT, REFLEXIVES, "Simple", ("simple_reflexives",), published=(0.89, 0.82)),
    Row(SHORT, REFLEXIVES, "In a sentential complement", ("reflexive_sent_comp",), published=(0.86, 0.80)),
    *_polarity(SHORT, "Simple", _both("simple_npi"), [(0.18, 1.00), (0.50, 0.01), (0.07, 0.63)]),
    _agree(LONG, "Long VP coordination", ("long_vp_coord",), (0.74, 0.74)),
    _agree(LONG, "Across a prepositional phrase", _both("prep"), (0.67, 0.68)),
    _agree(LONG, "Across a subject relative clause", ("subj_rel",), (0.66, 0.60)),
    _agree(LONG, "Across an object relative clause", _both("obj_rel_across"), (0.57, 0.52)),
    _agree(LONG, "Across an object relative clause, no that", _both("obj_rel_no_comp_across"), (0.54, 0.51)),
    Row(LONG, REFLEXIVES, "Across a relative clause", ("reflexives_across",), published=(0.57, 0.58)),
    *_polarity(
        LONG, "Across a relative clause", _both("npi_across"), [(0.59, 0.95), (0.20, 0.00), (0.11, 0.04)]
    ),
)


def rows_for(keys: Iterable[tuple[str, str, str]]) -> list[Row]:
    """List the rows of a table, those of the paper first and in its order.

    Args:
        keys: (construction, kind, group) of the pairs.
    Returns:
        Rows that have pairs; each construction and kind belongs to exactly one row. Published accuracies are
        those of all constructions of a row together: a row that lacks one of them has none.
    """
    remaining = {(construction, kind): group for construction, kind, group in keys}
    rows = []
    for row in PAPER_ROWS:
        found = [case for case in row.cases if remaining.pop((case, row.kind), None) is not None]
        if found:
            rows.append(row if len(found) == len(row.cases) else row._replace(published=None))
    for (construction, kind), group in sorted(remaining.items(), key=lambda item: item[1]):
        name = f"{construction} ({kind})" if kind else construction
        rows.append(Row(OTHER, group, name, (construction,), kind))
    return rows
