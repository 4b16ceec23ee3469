"""Reinforcement learning: each step samples a batch of transitions from a deque in this process, one by one.

With an argument, the path of a run file, it watches itself, and `run.phase("fetch")` is around that.
"""

import collections
import json
import os
import random
import sys
import time

import torch
from torch import nn

FIXED, PHASE = os.environ.get("FIXED") == "1", len(sys.argv) > 1
STEPS, KEPT, BATCH, STATE, ACTIONS = 1500, 5000, 128, 16, 4


class Buffer:
    def __init__(self):
        self.items = collections.deque(maxlen=KEPT)

    def add(self, state, action, reward, following):
        self.items.append((state, action, reward, following))

    def sample(self):
        chosen = random.sample(self.items, BATCH)  # trouble
        states, actions, rewards, following = zip(*chosen, strict=True)  # trouble
        return (
            torch.stack([torch.tensor(s) for s in states]),  # trouble
            torch.tensor(actions),  # trouble
            torch.tensor(rewards),  # trouble
            torch.stack([torch.tensor(s) for s in following]),  # trouble
        )


class Arrays:
    """The same in tensors, of which a batch is one indexing each."""

    def __init__(self):
        self.states, self.following = torch.zeros(KEPT, STATE), torch.zeros(KEPT, STATE)
        self.actions, self.rewards = torch.zeros(KEPT, dtype=torch.long), torch.zeros(KEPT)
        self.count = 0

    def add(self, state, action, reward, following):
        at = self.count % KEPT
        self.states[at], self.actions[at] = torch.tensor(state), action
        self.rewards[at], self.following[at] = reward, torch.tensor(following)
        self.count += 1

    def sample(self):
        at = torch.randint(0, min(self.count, KEPT), (BATCH,))
        return self.states[at], self.actions[at], self.rewards[at], self.following[at]


def transition():
    state, following = ([random.random() for _ in range(STATE)] for _ in range(2))
    return state, random.randrange(ACTIONS), random.random(), following


def network():
    return nn.Sequential(nn.Linear(STATE, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, ACTIONS))


def train(watch):
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net, target = network(), network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    buffer = Arrays() if FIXED else Buffer()
    for _ in range(KEPT):
        buffer.add(*transition())
    spent, started = 0, time.perf_counter_ns()
    for _ in range(STEPS):
        buffer.add(*transition())
        before = time.thread_time_ns()
        if PHASE:
            with watch.phase("fetch"):
                states, actions, rewards, following = buffer.sample()
        else:
            states, actions, rewards, following = buffer.sample()
        spent += time.thread_time_ns() - before
        with torch.no_grad():
            wanted = rewards + 0.9 * target(following).max(1).values
        loss = nn.functional.smooth_l1_loss(net(states).gather(1, actions[:, None])[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wall = time.perf_counter_ns() - started
    slug = "data-starved" if PHASE else "host-python"
    fix = "data.items()"
    truth = {"finding": slug, "fix": fix, "share": round(spent / wall, 3), "steps": STEPS}
    print("TRUTH " + json.dumps({"finding": None} if FIXED else truth))


if __name__ == "__main__":
    if PHASE:
        import trainperf

        with trainperf.watch(sys.argv[1], overwrite=True) as run:
            train(run)
    else:
        train(None)
