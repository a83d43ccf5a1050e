"""Compare predictions of several runs: significance tests, agreement of trees, and the consensus of trees.

python -m tasks.predictions compare a.jsonl b.jsonl c.jsonl
python -m tasks.predictions consensus a.jsonl b.jsonl c.jsonl --output trees.txt
"""
