"""Unsupervised parsing: compare the trees of a language model, ON-LSTM or PRPN, with those of a treebank.

python -m tasks.parsing --checkpoint runs/language_model/demo-onlstm-1/best.safetensors
python -m tasks.parsing parse "the cat sees the dogs"
python -m tasks.parsing trees text.txt --layer 2 --output trees.txt
python -m tasks.parsing score trees.txt --treebank wsj.zip
"""
