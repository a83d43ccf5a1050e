"""What a run leaves, to be compared with what another leaves."""

import json


def outcome(directory):
    """Everything a run ends with, but for the time it took."""
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"]
    weights = (directory / "best.safetensors").read_bytes()
    header = 8 + int.from_bytes(weights[:8], "little")  # names and shapes, and options, which may differ
    return rows, json.loads((directory / "results.json").read_text()), weights[header:]
