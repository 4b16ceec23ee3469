"""DQN: the network acts, and of the transitions that it is trained on each value becomes a tensor. FIXED=1: they are
stacked as arrays, and converted once."""

import json
import os
import random
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STATE, BATCH, STEPS = 16, 256, 900


def to_batch(chosen):
    states, actions, rewards, following = zip(*chosen, strict=True)
    if FIXED:
        arrays = (np.stack(states), np.array(actions), np.array(rewards, np.float32), np.stack(following))
        return [torch.from_numpy(array) for array in arrays]
    return (
        torch.stack([torch.tensor(state) for state in states]),  # trouble
        torch.stack([torch.tensor(action) for action in actions]),  # trouble
        torch.stack([torch.tensor(reward) for reward in rewards]),  # trouble
        torch.stack([torch.tensor(state) for state in following]),  # trouble
    )


def network():
    return nn.Sequential(nn.Linear(STATE, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net, target = network(), network()
    optimizer = torch.optim.Adam(net.parameters(), 3e-4)
    kept, spent, steps, state = [], 0, 0, np.random.rand(STATE).astype(np.float32)
    started = time.perf_counter_ns()
    while steps < STEPS:
        with torch.no_grad():
            action = int(net(torch.from_numpy(state)).argmax())
        following = np.roll(state, 1 + action)
        kept.append((state, action, float(following[0]), following))
        state = following
        if len(kept) < BATCH:
            continue
        chosen = random.sample(kept, BATCH)
        before = time.perf_counter_ns()
        states, actions, rewards, after = to_batch(chosen)
        spent += time.perf_counter_ns() - before
        with torch.no_grad():
            wanted = rewards + 0.9 * target(after).max(1).values
        loss = (net(states).gather(1, actions[:, None])[:, 0] - wanted).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    wall = time.perf_counter_ns() - started
    truth = {"finding": "host-python", "fix": "np.stack(rows)", "share": round(spent / wall, 3)}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    main()
