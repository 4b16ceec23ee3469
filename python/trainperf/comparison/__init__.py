"""Two runs, compared: what changed, by which cause, and whether it is more than noise. A run may be the
ranks of a job.

    from trainperf.comparison import compare

    with trainperf.open("a.tpr") as a, trainperf.open("b.tpr") as b:
        print(compare(a, b).verdict)

Statistics only: trainperf.report.compare_* show it. The method is described in docs/compare.md.
"""

from __future__ import annotations

from trainperf.comparison.judge import compare, compare_jobs
from trainperf.comparison.model import Change, Comparison, RankChange, Side

__all__ = ["Change", "Comparison", "RankChange", "Side", "compare", "compare_jobs"]
