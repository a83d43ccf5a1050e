"""The table of results, as text and as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.formatting.tables import number, text_table, wrap
from tasks.reporting.report import Report, Table, write_report
from tasks.syntax_eval.evaluation import Key, Tally
from tasks.syntax_eval.paper_table import PUBLISHED_MODELS, Row, rows_for

Line = dict[str, Any]

PUBLISHED_NOTE = (
    "Published accuracies are from Table 3 of the ON-LSTM paper: models with two layers of 650 units, "
    "trained on 90 million words of Wikipedia, with another vocabulary."
)
ABOUT = (
    "A language model reads pairs of similar sentences, of which only one is grammatical. It is right if it "
    "assigns the higher probability to the grammatical sentence."
)
COUNTS = {"pairs": "comparisons", "covered": "covered", "scored": "scored"}
"""The numbers of comparisons, and the heads of their columns."""
FEW = 100
"""Accuracies over fewer scored comparisons are marked, since their standard error may exceed 0.05."""
FEW_MARK = "*"


def lines_of(tallies: Mapping[Key, Tally], models: Sequence[str]) -> list[Line]:
    """Build the lines of the table.

    Args:
        tallies: tallies from `evaluation.count_right`.
        models: their names.
    Returns:
        One dictionary for each line. `level` is 0 for a section, 1 for a group, 2 for a row. `name` is its
        name; rows also have `section` and `group`. `pairs`, `covered` and `scored` are numbers of
        comparisons. `few` is the number of rows (0 or 1 for a row) with fewer than FEW scored comparisons.
        `accuracy` has the accuracy, or None, by name of the model, published models included. The accuracy of
        a row is over all its scored comparisons; that of a section or group is the unweighted mean over its
        rows that have one.
    """
    row_lines = [_row_line(row, tallies, models) for row in rows_for(tallies)]
    lines: list[Line] = []
    for section in dict.fromkeys(line["section"] for line in row_lines):
        section_lines = [line for line in row_lines if line["section"] == section]
        lines.append(_heading_line(section, 0, section_lines))
        for group in dict.fromkeys(line["group"] for line in section_lines):
            group_lines = [line for line in section_lines if line["group"] == group]
            if group:
                lines.append(_heading_line(group, 1, group_lines))
            lines += group_lines
    return lines


def results_text(results: Mapping[str, Any], width: int | None = None) -> str:
    """Format the results as plain text.

    Args:
        results: results of the subcommand evaluate.
        width: maximum length of a line; see `text_table` and `wrap`. None for a line for each note.
    Returns:
        Several lines.
    """
    columns = _columns(results["lines"])
    rows = [["  " * line["level"] + line["name"], *_cells(line, columns)] for line in results["lines"]]
    notes = [line for note in results["notes"] for line in ([note] if width is None else wrap(note, width))]
    return "\n".join([text_table(["", *COUNTS.values(), *columns], rows, width), "", *notes])


def write_page(path: Path, results: Mapping[str, Any], facts: Mapping[str, str]) -> None:
    """Write the results as a page; see `tasks.reporting.report`.

    Args:
        path: the HTML file, in a directory that exists.
        results: results of the subcommand evaluate.
        facts: command, commit, date and machine, by name.
    """
    columns = _columns(results["lines"])
    tables = [
        Table(
            title=section[0]["name"],
            columns=["case", *COUNTS.values(), *columns],
            rows=[["\u2003" * line["level"] + line["name"], *_cells(line, columns)] for line in section],
        )
        for section in _sections(results["lines"])
    ]
    tables[-1].note = " ".join(results["notes"][2:])
    report = Report(
        title="Targeted syntactic evaluation",
        about=ABOUT,
        subtitle=" ".join(results["notes"][:2]),
        tables=tables,
        facts=facts,
        config=results["options"],
    )
    write_report(path, report)


def construction_lines(tallies: Mapping[Key, Tally], models: Sequence[str]) -> list[Line]:
    """List the counts and accuracies of each construction and comparison.

    Args:
        tallies: tallies from `evaluation.count_right`.
        models: their names.
    Returns:
        A line for each key of `tallies`, in its order.
    """
    return [key._asdict() | _pooled([tally], models) for key, tally in tallies.items()]


def _row_line(row: Row, tallies: Mapping[Key, Tally], models: Sequence[str]) -> Line:
    of_row = [
        tally for key, tally in tallies.items() if key.construction in row.cases and key.kind == row.kind
    ]
    line = _pooled(of_row, models)
    if row.published is not None:
        line["accuracy"] |= dict(zip(PUBLISHED_MODELS, row.published, strict=True))
    heading = {"level": 2, "section": row.section, "group": row.group, "name": row.name}
    return {**heading, **line, "few": int(0 < line["scored"] < FEW)}


def _heading_line(name: str, level: int, rows: Sequence[Line]) -> Line:
    """The line of a section or group: the mean over its rows that have scored comparisons.

    If one of these has no published accuracies, neither has the section or group.
    """
    complete = [line["accuracy"] for line in rows if line["scored"]]
    accuracy = {
        column: float(np.mean([row[column] for row in complete]))
        if complete and all(column in row for row in complete)
        else None
        for column in _columns(rows)
    }
    counts = {count: sum(line[count] for line in rows) for count in COUNTS}
    few = sum(line["few"] for line in rows)
    return {"level": level, "name": name, **counts, "few": few, "accuracy": accuracy}


def _pooled(tallies: Sequence[Tally], models: Sequence[str]) -> Line:
    """The counts and accuracies of all comparisons together."""
    counts = [(tally.comparisons, tally.covered, tally.scored) for tally in tallies]
    pairs, covered, scored = np.sum(counts, axis=0).tolist()
    right = np.sum([tally.right for tally in tallies], axis=0).tolist()
    accuracy = {name: count / scored if scored else None for name, count in zip(models, right, strict=True)}
    return {"pairs": pairs, "covered": covered, "scored": scored, "accuracy": accuracy}


def _columns(lines: Sequence[Line]) -> list[str]:
    """The names of the models in order, published models last."""
    names = dict.fromkeys(name for line in lines for name in line["accuracy"])
    return sorted(names, key=lambda name: name in PUBLISHED_MODELS)


def _cells(line: Line, columns: Sequence[str]) -> list[str]:
    """Counts, marked if few comparisons are scored, and accuracies; published ones have two digits."""
    mark = FEW_MARK if 0 < line["scored"] < FEW else ""
    return [
        *(f"{line[name]:,}" + (mark if name == "scored" else "") for name in COUNTS),
        *(
            number(line["accuracy"].get(name), 2 if name in PUBLISHED_MODELS else 4, whole=1)
            for name in columns
        ),
    ]


def _sections(lines: Sequence[Line]) -> Iterator[list[Line]]:
    starts = [i for i, line in enumerate(lines) if line["level"] == 0]
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield list(lines[start:stop])
