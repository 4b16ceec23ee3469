// A watch's windows of traced steps, by simulated time.

#include <deque>
#include <utility>

#include "trainperf/probe/cuda/trace_windows.h"
#include "trainperf/testing/fake_cupti.h"

namespace {
constexpr int64_t kLookNs = 100'000'000;
constexpr int64_t kToldNs = 100'000'000;  // what a step cost is known so much later
}  // namespace

extern "C" __attribute__((visibility("default"))) void fakecupti_plan_windows(double share, uint64_t seed,
                                                                              int64_t steps, const int64_t* wall_ns,
                                                                              int64_t cost_ns, int64_t switch_ns,
                                                                              uint8_t* traced) {
  trainperf::TraceWindows windows(share, seed, 0, 0);
  windows.SwitchTook(switch_ns);
  std::deque<std::pair<int64_t, int64_t>> told = {{0, 0}};  // when, and what all has cost by then
  int64_t now_ns = 0, looked_ns = 0, spent_ns = 0;
  const auto known_ns = [&] {
    while (told.size() > 1 && told[1].first <= now_ns - kToldNs) told.pop_front();
    return told.front().second;
  };
  for (int64_t step = 0; step < steps; ++step) {
    const bool on = windows.tracing();
    traced[step] = on ? 1 : 0;
    now_ns += wall_ns[step] + (on ? cost_ns : 0);
    spent_ns += on ? cost_ns : 0;
    told.emplace_back(now_ns, spent_ns);
    if (now_ns - looked_ns >= kLookNs) {
      looked_ns = now_ns;
      windows.Look(now_ns, step + 1, known_ns());
    }
    if (step + 1 < windows.due()) continue;
    windows.Switched(now_ns, step + 1);
    now_ns += switch_ns;
    spent_ns += switch_ns;
  }
  // The steps in which a window begins and ends are not whole: of the first one what runs was launched before it.
  uint8_t before = 1;
  for (int64_t step = 0; step < steps; ++step) {
    const uint8_t here = traced[step];
    if (here != 0 && (before == 0 || (step + 1 < steps && traced[step + 1] == 0))) traced[step] = 0;
    before = here;
  }
}
