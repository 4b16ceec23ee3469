"""A GAN: two optimizers and three backward passes, in one step."""

import torch
from _common import Program, Ready, Trainer
from torch import nn
from torch.utils.data import DataLoader


def main() -> None:
    program = Program(cause="", finding="", steps=300, size=0)
    source = Trainer()
    generator = nn.Sequential(nn.Linear(32, 384), nn.ReLU(), nn.Linear(384, 64))
    critic = nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 1))
    generator_optimizer = torch.optim.Adam(generator.parameters())
    critic_optimizer = torch.optim.Adam(critic.parameters())
    judge = nn.BCEWithLogitsLoss()

    def step(real: torch.Tensor) -> None:
        fake = generator(torch.randn(len(real), 32))
        critic_optimizer.zero_grad()
        judge(critic(real), torch.ones(len(real), 1)).backward()
        judge(critic(fake.detach()), torch.zeros(len(real), 1)).backward()
        critic_optimizer.step()
        generator_optimizer.zero_grad()
        judge(critic(fake), torch.ones(len(real), 1)).backward()
        generator_optimizer.step()

    for _ in range(program.warm_up):
        step(source.example()[0])
    with program.watch():
        for x, _y in DataLoader(Ready(source, program.steps), batch_size=None):
            step(x)
    program.report()


if __name__ == "__main__":
    main()
