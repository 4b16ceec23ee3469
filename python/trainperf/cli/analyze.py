"""`trainperf analyze TRACE...`: the verdict of torch.profiler traces, and run files of them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from trainperf.errors import TrainperfError


class Analyze:
    name = "analyze"
    help = "say why training is slow, from a torch.profiler trace"
    description = (
        "Reads traces of torch.profiler (Chrome JSON, plain or gzip) and shows the verdict of each. With -o the run "
        "file is kept, for every other command. Several traces, or a folder of them, become several run files in the "
        "folder that -o names."
    )

    epilog = """\
examples:
  trainperf analyze trace.json.gz
  trainperf analyze trace.json.gz -o job.tpr   keep it, for show, report ...
  trainperf analyze traces/ -o runs/           all ranks; trainperf report runs
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("traces", metavar="TRACE", nargs="+", help="a trace (.json, .json.gz), or a folder of them")
        parser.add_argument(
            "-o", "--output", metavar="RUN", help="keep the run file there; for several traces, a folder"
        )
        parser.add_argument("-f", "--force", action="store_true", help="overwrite existing run files")
        parser.add_argument(
            "--json", action="store_true", help="as JSON, see docs/show-json.md; a list for several traces"
        )

    def run(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
        from trainperf.traces import find_traces

        traces = find_traces(args.traces)
        several = len(traces) > 1
        folder = args.output if args.output and (several or args.output.endswith("/")) else None
        if args.output and not several and os.path.isdir(args.output):
            folder = args.output
        if folder is not None:
            if os.path.lexists(folder) and not os.path.isdir(folder):
                raise TrainperfError(f"{folder} is a file, and {len(traces)} traces need a folder: give another name")
            os.makedirs(folder, exist_ok=True)
        documents: list[dict[str, Any]] = []
        failed = 0
        for i, trace in enumerate(traces):
            if i and not args.json:
                print()
            try:
                self._one(trace, folder, args, documents, inputs=traces)
            except (TrainperfError, OSError, ValueError) as error:
                if not several:
                    raise
                failed += 1
                from trainperf.cli.errors import one_line

                print(f"trainperf analyze: {one_line(error)}", file=sys.stderr)
        if args.json:
            json.dump(documents if several else documents[0], sys.stdout, indent=2, allow_nan=False)
            sys.stdout.write("\n")
        sys.stdout.flush()
        return 1 if failed else 0

    def _one(
        self,
        trace: str,
        folder: str | None,
        args: argparse.Namespace,
        documents: list[dict[str, Any]],
        *,
        inputs: Sequence[str],
    ) -> None:
        from trainperf import traces
        from trainperf.output import check_target
        from trainperf.report import console, model
        from trainperf.report import json as as_json
        from trainperf.report.text import clean
        from trainperf.run import Run

        title = len(inputs) > 1
        output: str = args.output or ""
        if folder is not None:
            output = os.path.join(folder, f"{traces.stem(trace)}.tpr")
        if output:  # before the work
            check_target(output, overwrite=args.force, inputs=inputs, example="run.tpr")
        with contextlib.ExitStack() as cleanup:
            with _progress(trace) as progress:
                done = traces.analyze(trace, output, overwrite=args.force, progress=progress, inputs=inputs)
            if done.private:
                cleanup.callback(_remove, done.path)
            run = cleanup.enter_context(Run(done.path))
            report = model.build(run)
            if args.json:
                documents.append(as_json.to_dict(report))
                return
            width = console.terminal_width(sys.stdout)
            if title:
                rank = "" if done.rank is None else f", rank {done.rank}"
                print(f"== {clean(trace)}{rank}")
            lines = console.summary_lines if title else console.show_lines
            console.emit(lines(report, width=width, keep=not done.private), sys.stdout)


def _remove(path: str) -> None:
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)


@contextlib.contextmanager
def _progress(trace: str) -> Iterator[Any]:
    """How far it is, on stderr, once it has taken a second: on one line in a terminal, else said once."""
    started = time.monotonic()
    terminal = sys.stderr.isatty()
    told = False

    def tell(share: float) -> None:
        nonlocal told
        if time.monotonic() - started < 1 or (told and not terminal):
            return
        told = True
        name = os.path.basename(trace)
        sys.stderr.write(f"\rreading {name}: {share:4.0%} " if terminal else f"reading {name} ...\n")
        sys.stderr.flush()

    try:
        yield tell
    finally:
        if told and terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
