"""The ranks of one job, each with its own run file: which files belong together, and who keeps the others waiting.

    with open_job("runs/job7") as job:
        print(ranks(job.runs).sentence)

Ranks meet here, offline: no rank waits for another while it trains.
"""

from __future__ import annotations

from trainperf.ranks.files import Job, files_of, open_all, open_job, rank_of, ranks_in_words, same_ranks
from trainperf.ranks.side_by_side import Rank, Ranks, ranks, straggler

__all__ = [
    "Job",
    "Rank",
    "Ranks",
    "files_of",
    "open_all",
    "open_job",
    "rank_of",
    "ranks",
    "ranks_in_words",
    "same_ranks",
    "straggler",
]
