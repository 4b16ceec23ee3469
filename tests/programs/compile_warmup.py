"""torch.compile, 12 steps: the first compiles. A warm-up, not a trouble. Size: ms that the compiler takes."""

import time
from collections.abc import Callable
from typing import Any

import torch
from _common import Program, Ready, Trainer
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="warm_up", finding="compile-warmup", steps=12, size=1500.0, where="")
    trainer = Trainer(width=512).warm_up(program.warm_up)

    def compiler(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., Any]:
        time.sleep(program.size / 1e3)
        return graph.forward

    model = trainer.model
    if program.size:
        trainer.model = torch.compile(model, backend=compiler, fullgraph=True)  # type: ignore[assignment]
    x, y = trainer.example()
    with program.watch():
        for number, (x, y) in enumerate(DataLoader(Ready(trainer, program.steps), batch_size=None)):
            if number == 0 and program.size:
                start = time.perf_counter_ns()
                with program.trouble():
                    trainer.step(x, y)
                # With what it waited for a CPU: while a compiler's processes have them, that wait is compiling's.
                program.truth_max_ns = time.perf_counter_ns() - start
            else:
                trainer.step(x, y)
    program.report()


if __name__ == "__main__":
    main()
