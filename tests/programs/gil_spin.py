"""A thread that spins in pure Python and gives the GIL up only when it must, every 5 ms. Size: spinning threads."""

from _common import Program, Stoppable, Trainer, train_beside


def spin() -> None:
    for _ in range(10_000):  # trouble
        pass  # trouble


def main() -> None:
    program = Program(cause="gil_wait", finding="gil-hog", steps=12, size=1, who="spinner")
    trainer = Trainer(width=512).warm_up(program.warm_up)
    train_beside(program, trainer, [Stoppable(spin, f"spinner-{i}", cpu=1) for i in range(int(program.size))])


if __name__ == "__main__":
    main()
