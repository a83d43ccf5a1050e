"""Compare predictions of several runs: significance tests, agreement of trees, and the consensus of trees.

python -m tasks.listops evaluate --test 300-400 --predictions a.jsonl
python -m tasks.listops evaluate --test 300-400 --num-slots 8 --predictions b.jsonl
python -m tasks.predictions compare a.jsonl b.jsonl
"""
