#!/usr/bin/python3
"""A lesson as a notebook would have it: how small must the bubble of a pipeline be?

Run it with `python3 tools/python/lesson.py`, or paste its cells into a notebook.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import distsim  # noqa: E402

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scenarios",
                     "gpt3-175b-pp8.dir")

# %% GPT-3 175B in eight stages. Without interleaving a stage waits (p - 1) of m + p - 1 turns.
SETTINGS = {"schedule": "1f1b", "virtual_stages": 1}
print("microbatches  idle    (p - 1)/(m + p - 1)")
for m in (8, 16):
    run = distsim.run(MODEL, microbatches=m, **SETTINGS)
    print(f"{m:12d}  {100 * run.bubble_fraction:4.1f} %  {100 * 7 / (m + 7):4.1f} %")

# %% The same, asked of the step: what goes away if no device waits for another?
table = distsim.ladder(MODEL, ["bandwidth", "transfers", "waits"], microbatches=16, **SETTINGS)
for row in distsim.records(table):
    print(f"without {row['change']:10s} {row['difference_ps'] * 1e-12:+.2f} s")

# %% Interleaving divides the bubble by the number of chunks, and sends as many times as much.
plain = distsim.run(MODEL, microbatches=16, **SETTINGS)
chunks = distsim.run(MODEL, microbatches=16)
print(f"interleaved: {plain.step_time:.2f} s -> {chunks.step_time:.2f} s, "
      f"{100 * chunks.bubble_fraction:.1f} % idle")
