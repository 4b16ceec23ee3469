"""The report as a browser shows it: accessible by axe-core, without network or script, on a phone and on paper."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
from runfiles import RunFile
from trainperf.notebook.page import frame
from trainperf.report.html import render
from trainperf.report.model import LOOKS_LESS
from trainperf.runfile import WARM_UP

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def rich(path: Path) -> RunFile:
    """A run with a panel of each kind, devices too."""
    file = RunFile(path, name="resnet", argv='["train.py"]')
    file.device(0, "NVIDIA H200", lead_us=120)
    hog = file.thread("metrics-writer")
    line = file.stack("/u/train.py:41 write_metrics", "/usr/lib/python3.11/threading.py:1012 run")
    own = file.stack("/v/site-packages/torch/nn/linear.py:3 forward", "/u/train.py:7 fit", "/u/train.py:90 <module>")
    file.step(compute=90, flags=WARM_UP)
    for i in range(199):
        slow = 9.0 if i < 66 else 0.5
        device = {"busy": 5.0, "kernels": 50, "kernel": 4.5, "idle_gil_wait": slow / 2}
        file.step(
            {("forward", "native"): 4.0, ("backward", "gpu_wait"): 3.0}, gil_wait=slow, python=1, devices={0: device}
        )
    file.keep(9, "worst", ("fetch", "unknown", 1), ("forward", "gil_wait", 9), ("backward", "unknown", 6), thread=hog)
    file.keep(30, "worst", ("forward", "unknown", 9), ("checkpoint", "unknown", 7))
    file.keep_device(9, 0, ("kernel", "gemm", 4.0), ("idle", "gil_wait", 4.0), ("copy", "h2d", 1.0))
    file.kernel("sm90_gemm_bf16", 800, kind="tensor_core", count=9000, steps=199)
    file.copy("h2d", 50, src="pageable", dst="device", count=199, bytes=10**8, exposed=40)
    file.call("stream_sync", 500, count=199, steps=199)
    file.detail("call", 480, phase="backward", state="stream_sync", stack=own)
    file.detail("gil_wait", 600, thread=hog, stack=line, count=200).detail("hold", 700, thread=hog, stack=line)
    file.detail("sample", 900, stack=own, state="native").detail("sample", 300, stack=own, state="blocked", code=202)
    loader = file.loader(1, fetches=199, wait=100, cpu=50, ready={0: (100, 90), 2: (99, 10)}, num_workers=2)
    file.worker(loader, 4321, cpu_share=0.9, seconds=5, states={"R": 40, "S": 3})
    child = file.child(4400, cpus=0.6, seconds=6, name="ForkPoolWorker-1")
    file.within(child, 90, "/u/train.py:31 augment", "/usr/lib/python3.11/multiprocessing/pool.py:125 worker")
    file.child(4401, cpus=0.2, seconds=6, command="ffmpeg")
    file.host(6, process_cpus=1.2, other_cpus=0.3, idle_cpus=0.5).overhead(collector=20, marks=4)
    file.note("something happened")
    return file


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, file in {
        "rich": rich(folder / "a.tpr").note(f"{LOOKS_LESS}, and nothing needs to be done"),
        "empty": RunFile(folder / "b.tpr", ended="killed"),
        "none": RunFile(folder / "c.tpr", torch=""),
    }.items():
        with file.open() as run:
            found[name] = render(run)
    return found


@pytest.fixture(scope="module")
def notebook_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    with rich(tmp_path_factory.mktemp("notebook") / "a.tpr").open() as run:
        return render(run, embedded=True)


def test_a_cost_that_is_the_gpus_idle_time_is_said_to_be(pages: dict[str, str]) -> None:
    """Its cause takes 3.3 ms of the step in the bar below it."""
    assert (
        "<b>1.7 ms</b> of each step’s 11.7 ms, in which the GPU idles &middot; <b>14%</b> of the run" in pages["rich"]
    )


def opened(browser: Any, page: str, *, width: int = 1180, dark: bool = False, script: bool = False) -> Any:
    """The page in a new window; `script`: the browser may run some (axe needs it, the report does not)."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        java_script_enabled=script,
    )
    window = context.new_page()
    window.set_content(page, wait_until="load")
    return window


@pytest.mark.parametrize(
    ("name", "width", "dark"), [("rich", 1180, False), ("rich", 400, True), ("empty", 800, False), ("none", 400, True)]
)
def test_axe_finds_nothing(browser: Any, pages: dict[str, str], name: str, width: int, dark: bool) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    window = opened(browser, pages[name], width=width, dark=dark, script=True)
    window.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = axe.Axe().run(window, options={"runOnly": RULES})
    told = [(v["id"], v["help"], v["nodes"][0]["html"][:200]) for v in found.response["violations"]]
    assert told == []
    assert len(found.response["passes"]) > 20
    window.context.close()


def test_asks_nobody_and_needs_no_script(browser: Any, pages: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    file.write_text(pages["rich"])
    asked: list[str] = []
    context = browser.new_context(java_script_enabled=False)
    window = context.new_page()
    window.on("request", lambda request: asked.append(request.url))
    window.goto(file.as_uri())
    assert asked == [file.as_uri()]
    heading = window.get_by_role("heading", level=1)
    assert "waits for the GIL" in heading.inner_text() and heading.bounding_box()["y"] < 200
    # A step opens by the keyboard alone.
    second = window.locator("details.worst").nth(1)
    assert second.locator(".lanes").is_hidden()
    second.locator("summary").focus()
    window.keyboard.press("Enter")
    assert second.locator(".lanes").is_visible()
    context.close()


def test_flame_graph_is_searched_and_zoomed_into(browser: Any, pages: dict[str, str]) -> None:
    window = opened(browser, pages["rich"], script=True)
    stacks = window.locator("#stacks")
    told, frames = stacks.locator("output"), stacks.locator("svg.flame > svg")

    def widths() -> list[float]:
        return frames.evaluate_all("all => all.map(f => f.getBoundingClientRect().width)")

    before = widths()
    assert len(before) >= 6 and stacks.get_by_role("button", name="Show all").is_disabled()
    stacks.get_by_label("Search").fill("LINEAR.py")
    assert "1 of" in told.inner_text() and "100.0% of the time" in told.inner_text()
    assert stacks.locator(".hit").count() == 1
    stacks.get_by_label("Search").fill("no such thing")
    assert "0 of" in told.inner_text() and stacks.locator(".hit").count() == 0
    # The blocked quarter of the samples, by the pointer: it and what it is called by take the whole width.
    blocked = next(i for i in range(len(before)) if "blocked in" in frames.nth(i).text_content())
    frames.nth(blocked).click()
    zoomed = widths()
    assert zoomed[blocked] == pytest.approx(before[0], rel=0.01) and before[blocked] < before[0] / 2
    assert sum(w > 0 for w in zoomed) < sum(w > 0 for w in before) and "blocked in" in told.inner_text()
    # And by the keyboard alone.
    stacks.locator("figure").focus()
    window.keyboard.press("Escape")
    assert widths() == pytest.approx(before, abs=0.5)
    window.keyboard.press("ArrowUp")
    assert told.inner_text().startswith("forward (torch/nn/linear.py:3)")
    window.keyboard.press("ArrowDown")
    assert "native code" in told.inner_text()  # the widest of those that it called
    window.keyboard.press("ArrowRight")
    assert "blocked in" in told.inner_text()
    window.keyboard.press("Enter")
    assert widths() == pytest.approx(zoomed, abs=0.5)
    stacks.get_by_role("button", name="Show all").click()
    assert widths() == pytest.approx(before, abs=0.5)
    window.context.close()


def test_flame_graph_turns_around(browser: Any, pages: dict[str, str]) -> None:
    window = opened(browser, pages["rich"], script=True)
    stacks = window.locator("#stacks")
    told, frames, turn = stacks.locator("output"), stacks.locator("svg.flame > svg"), stacks.get_by_text("Bottom-up")
    before = frames.evaluate_all("all => all.map(f => [f.textContent, f.getBoundingClientRect().width])")
    stacks.get_by_label("Search").fill("train.py")
    assert "2 of" in told.inner_text()
    stacks.get_by_label("Search").fill("")
    turn.click()
    assert turn.get_attribute("aria-pressed") == "true" and "who called it" in told.inner_text()
    names = frames.evaluate_all("all => all.map(f => f.querySelector('title').textContent.split(': ')[0])")
    assert names == [
        "the training thread",
        "forward (torch/nn/linear.py)",
        "fit (/u/train.py:7)",
        "<module> (/u/train.py:90)",
        "forward",
    ]
    boxes = frames.evaluate_all("all => all.map(f => f.getBoundingClientRect()).map(r => [r.y, r.height, r.width])")
    assert all(width == pytest.approx(boxes[0][2], rel=0.01) for *_, width in boxes)
    picture = stacks.locator("svg.flame").bounding_box()
    assert boxes[-1][0] + boxes[-1][1] <= picture["y"] + picture["height"] + 1 <= boxes[-1][0] + boxes[-1][1] + 3
    stacks.get_by_label("Search").fill("fit")
    assert "1 of 5 frames, 100.0% of the time" in told.inner_text()
    stacks.get_by_label("Search").fill("")
    stacks.locator("figure").focus()
    for key, name in (("ArrowDown", "forward (torch"), ("ArrowDown", "fit"), ("ArrowUp", "forward (torch")):
        window.keyboard.press(key)
        assert told.inner_text().startswith(name)
    window.keyboard.press("Enter")
    assert stacks.get_by_role("button", name="Show all").is_enabled()
    turn.click()
    after = frames.evaluate_all("all => all.map(f => [f.textContent, f.getBoundingClientRect().width])")
    assert [text for text, _ in after] == [text for text, _ in before]
    assert [width for _, width in after] == pytest.approx([width for _, width in before], abs=0.5)
    window.context.close()


def test_no_script_but_ours_runs(browser: Any, pages: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    alien = "<script>document.title = 'alien'</script><img src='https://example.invalid/x.png'>"
    file.write_text(pages["rich"].replace("<main>", f"<main>{alien}"))
    context = browser.new_context()
    window = context.new_page()
    failed: list[str] = []
    window.on("requestfailed", lambda request: failed.append(request.failure))
    window.goto(file.as_uri())
    assert window.title().startswith("trainperf: ") and window.locator(".tools").count() == 2
    assert failed == ["csp"]
    context.close()


@pytest.mark.parametrize("width", [360, 1180])
def test_fits_its_window(browser: Any, pages: dict[str, str], width: int) -> None:
    window = opened(browser, pages["rich"], width=width, script=True)
    assert window.evaluate("document.documentElement.scrollWidth") <= width
    seen = window.evaluate("[...document.querySelectorAll('svg.chart')].map(s => s.getBoundingClientRect().width)")
    assert len(seen) >= 8 and all(w <= width * 2 for w in seen)
    window.context.close()


def test_a_table_that_goes_on_sideways_has_shaded_edges(browser: Any, pages: dict[str, str]) -> None:
    """Two covers go with what is scrolled, so that the shades below show where there is more."""
    window = opened(browser, pages["rich"], width=390, script=True)
    host = window.locator("#host .scroll")
    assert host.evaluate("e => e.scrollWidth > e.clientWidth")
    style = host.evaluate("e => [getComputedStyle(e).backgroundAttachment, getComputedStyle(e).backgroundImage]")
    assert style[0] == "local, local, scroll, scroll" and style[1].count("linear-gradient") == 4
    window.context.close()


def test_dark_is_dark(browser: Any, pages: dict[str, str]) -> None:
    colours = []
    for dark in (False, True):
        window = opened(browser, pages["rich"], dark=dark, script=True)
        colours.append(window.evaluate("getComputedStyle(document.body).backgroundColor"))
        window.context.close()
    assert colours == ["rgb(255, 255, 255)", "rgb(20, 23, 26)"]


def test_prints(browser: Any, pages: dict[str, str]) -> None:
    window = opened(browser, pages["rich"], dark=True)
    pdf = window.pdf(format="A4")
    assert pdf.startswith(b"%PDF") and 2 <= pdf.count(b"/Type /Page\n") <= 9
    window.context.close()


def test_frame_of_a_notebook_shows_the_page(browser: Any, pages: dict[str, str]) -> None:
    output = f"<div style='width:800px'>{frame(pages['rich'], 'gil-hog & <more>', 'Why <x>')}</div>"
    window = opened(browser, output, script=True)
    inner = window.frame_locator("iframe")
    assert "waits for the GIL" in inner.get_by_role("heading", level=1).inner_text()
    box = inner.locator("svg.timeline").bounding_box()
    assert box["width"] > 500 and box["height"] > 100
    assert "gil-hog & <more>" in window.locator("small").inner_text()
    assert window.locator("pre").is_hidden()
    window.locator("summary").click()
    assert window.locator("pre").inner_text() == "Why <x>"
    window.context.close()


def served(browser: Any, pages: dict[str, str]) -> Any:
    """A window that gets `pages` (address -> page) from no network."""
    window = browser.new_context(color_scheme="dark").new_page()
    window.route(
        "**", lambda route: route.fulfill(body=pages.get(route.request.url, "elsewhere"), content_type="text/html")
    )
    return window


def test_links_within_the_frame_of_a_notebook_stay_in_it(browser: Any, notebook_page: str) -> None:
    """A link to "#worst" is of the notebook's address there, unless the page says otherwise."""
    lab = "https://lab.example/notebooks/a.ipynb"
    window = served(browser, {lab: f"<!doctype html><base href='/static/'>{frame(notebook_page, 'gil-hog', 'Why')}"})
    window.goto(lab)
    inner = window.frame_locator("iframe")
    worst = inner.get_by_role("heading", name="Worst steps")
    assert worst.bounding_box()["y"] > 1000
    inner.get_by_role("link", name="Worst steps").click()
    window.wait_for_function("document.activeElement.tagName === 'IFRAME'")
    assert worst.bounding_box()["y"] < 300
    assert window.url == lab and inner.get_by_role("heading", level=1).count() == 1
    window.context.close()


@pytest.mark.parametrize("policed", [False, True])
def test_frame_of_a_notebook_in_a_webview_of_vs_code(browser: Any, notebook_page: str, policed: bool) -> None:
    """VS Code shows outputs in a frame of its own: sandboxed, with another base, on request with a policy, and puts
    HTML into it by innerHTML (extensions/notebook-renderers/src/index.ts, backLayerWebView.ts and webview's main.js).
    """
    policy = (
        "default-src 'none'; script-src https://*.vscode-cdn.net 'unsafe-inline' 'unsafe-eval'; style-src "
        "https://*.vscode-cdn.net 'unsafe-inline'; img-src https://*.vscode-cdn.net https: http: data:; font-src "
        "https://*.vscode-cdn.net https:; connect-src https:; child-src https: data:;"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policed else ""
    style = "body.vscode-dark{--vscode-foreground:#ccc;color:#ccc;background:#1e1e1e}table,h1{display:none}"
    output = html.escape(json.dumps(frame(notebook_page, "gil-hog", "Why")))
    webview = (
        f'<html><head><meta charset="UTF-8"><base href="https://file+.vscode-resource.vscode-cdn.net/home/u/">{head}'
        f'<style>{style}</style></head><body class="vscode-dark"><div id="output" data-html="{output}"></div><script>'
        'const at = document.getElementById("output"), element = document.createElement("div");'
        "element.innerHTML = JSON.parse(at.dataset.html); at.appendChild(element);</script></body></html>"
    )
    rules = "allow-same-origin allow-pointer-lock allow-scripts allow-downloads allow-forms"
    workbench, fake = "https://workbench.example/", "https://x.vscode-cdn.net/fake.html"
    around = f'<!doctype html><iframe sandbox="{rules}" width="900" height="800" src="{fake}"></iframe>'
    window = served(browser, {workbench: around, fake: webview})
    window.goto(workbench)
    inner = window.frame_locator("iframe").frame_locator("iframe")
    inner.locator("svg.timeline").wait_for()
    assert "waits for the GIL" in inner.get_by_role("heading", level=1).inner_text()
    inner.locator("#stacks").get_by_label("Search").fill("linear")  # the page's own script runs
    assert "1 of" in inner.locator("#stacks output").inner_text()
    inner.get_by_role("link", name="Worst steps").click()
    assert inner.get_by_role("heading", name="Worst steps").bounding_box()["y"] < 300
    assert inner.get_by_role("heading", level=1).count() == 1
    window.context.close()


def test_frame_of_a_notebook_reads_where_only_others_scripts_run(browser: Any, notebook_page: str) -> None:
    """In a front end whose policy lets only its own scripts run: all is there, but zoom and search."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-x'"
    around = f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{policy}">'
    window = opened(browser, around + frame(notebook_page, "gil-hog", "Why"), dark=True, script=True)
    inner = window.frame_locator("iframe")
    inner.locator("svg.timeline").wait_for()
    assert "waits for the GIL" in inner.get_by_role("heading", level=1).inner_text()
    assert inner.locator("svg.flame").count() == 2 and inner.locator(".tools").count() == 0
    window.context.close()
