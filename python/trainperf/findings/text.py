"""How findings write numbers, and what several of them advise."""

from __future__ import annotations

SELDOM = "# what only looks (metrics, statistics, plots): if step % 50 == 0: ..."


def seldom_or(needed: str) -> str:
    """Of what a loop does in each step. What training needs there is no better for being done seldom: clipping, an
    average of the weights, a part of the loss."""
    return f"# what only looks (metrics): every N steps; what each step needs: {needed}\nif step % 50 == 0: ..."


OF_WEIGHTS = (
    "# of each weight or gradient by itself: of all at once (clip_grad_norm_, torch._foreach_lerp_); a copy of them: "
    "more rarely"
)

NOTHING = "# nothing, in a longer run"  # with a fix_share of 0


def plural(n: int, word: str, ending: str = "s") -> str:
    return f"{n:,} {word}{ending if n != 1 else ''}"


def ms(ns: float) -> str:
    """ "8.1 ms", "0.12 ms", "240 ms", "1,240 ms"."""
    value = ns / 1e6
    if value >= 100:
        return f"{value:,.0f} ms"
    return f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def size(n: float) -> str:
    """ "12.4 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} GB"
