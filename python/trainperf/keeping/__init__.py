"""What keeps memory: looked for in a process whose memory grows, while it trains (hooks/kept_memory.py says when).

Two looks at all objects, some steps apart, tell which containers got longer, which arrays larger and which tensors'
graphs reach back over steps (`census`). Then their names are looked for (`holders`), what they hold (`contents`), and
the one line of the source that may add to them (`lines`). Nothing of the program's own runs for it, and nothing is kept
of it but names, types and sizes.
"""
