"""How words are spelled in treebanks, shared by tasks."""
