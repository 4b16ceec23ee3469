"""Makes docs/images: trains a part of the demo for real, writes its report, and takes pictures of it in Chromium.

    python scripts/screenshots.py [RUN]

RUN: a run file to use instead of a new one. Wants playwright (scripts/requirements.txt) and Chromium (apt-get install
chromium).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python")]

import trainperf  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDTH, MARGIN = 1100, 18
MOST_BYTES = 200_000


def trained(folder: Path) -> Path:
    """examples/demo.py metrics, in a process of its own, so that its run is one of a plain script."""
    code = (
        "import pathlib, runpy, sys, torch; torch.set_num_threads(1);"
        "sys.argv = ['demo.py']; demo = runpy.run_path('examples/demo.py');"
        f"demo['metrics'](pathlib.Path({str(folder)!r}))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    return folder / "metrics.tpr"


def main(arguments: list[str]) -> int:
    chromium = next(
        (c for name in ("chromium", "chromium-browser", "google-chrome") if (c := shutil.which(name))), None
    )
    if chromium is None:
        print("there is no Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary)
        run_file = Path(arguments[0]) if arguments else trained(folder)
        with trainperf.open(run_file) as run:
            page = folder / "report.html"
            run.report(page)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            window = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme=scheme)
            window.goto(page.as_uri())
            for part, name in (("header", "report"), ("#steps", "report-steps")):
                picture = IMAGES / f"{name}-{scheme}.png"
                box = window.locator(part).bounding_box()
                assert box is not None, part
                whole = {
                    "x": 0,
                    "y": max(0, box["y"] - MARGIN),
                    "width": WIDTH,
                    "height": box["height"] + 2 * MARGIN,
                }
                window.screenshot(path=picture, clip=whole, full_page=True)
                size = picture.stat().st_size
                print(f"{picture.relative_to(ROOT)}: {size / 1e3:.0f} kB")
                if size > MOST_BYTES:
                    print(f"{picture.name} is larger than {MOST_BYTES / 1e3:.0f} kB", file=sys.stderr)
                    return 1
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
