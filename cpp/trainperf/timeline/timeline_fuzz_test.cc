// Anything may come out of a ring: whatever it is, no crash, and what holds of every step (see RecordingSink) still
// holds.

#include <random>

#include "gtest/gtest.h"
#include "trainperf/timeline/script.h"

namespace trainperf {
namespace {

// Random marks of a loop that makes little sense, on honest clocks.
int64_t PlausibleRun(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](uint32_t n) { return random() % n; };
  TimelineOptions options;
  options.max_segments = static_cast<int>(1 + pick(40));
  Script loop(options);
  loop.sink().max_segments = static_cast<size_t>(options.max_segments);
  loop.sink().touching = false;  // another thread may take over
  const uint32_t threads = pick(3) == 0 ? 3 : 1;
  const bool steps = pick(4) == 0;
  const bool device = pick(3) != 0;
  const bool cells = pick(3) == 0;  // of a notebook
  const auto operate = [&] {
    const uint64_t correlation = pick(40);
    switch (pick(4)) {
      case 0:
        loop.Launch(pick(200'000), pick(5'000'000), pick(100'000), pick(20));
        break;
      case 1:
        loop.Call(static_cast<HostCall>(pick(kHostCallCount)), pick(2'000'000), correlation, pick(2) == 0,
                  pick(10) == 0 ? kCallFailed : 0);
        break;
      case 2:
        loop.Kernel(loop.now() + pick(3'000'000), loop.now() + 3'000'000 + pick(4'000'000), correlation, pick(20),
                    pick(3));
        break;
      default:
        loop.Copy(loop.now() - pick(1'000'000), loop.now() + pick(2'000'000), correlation,
                  static_cast<CopyDirection>(pick(6)), static_cast<MemoryKind>(pick(5)),
                  static_cast<MemoryKind>(pick(5)), pick(100), pick(2));
    }
  };
  int64_t throttled = 0;
  for (int i = 0; i < 600; ++i) {
    loop.On(1 + pick(threads));
    const Bracket bracket = static_cast<Bracket>(pick(kBracketCount));
    if (device && pick(2) == 0) operate();
    switch (pick(14)) {
      case 0:
      case 1:
      case 2:
        loop.Begin(bracket, pick(4), pick(5), pick(4) == 0 ? kGradDisabled : 0, static_cast<Phase>(pick(10)));
        break;
      case 3:
      case 4:
      case 5:
        loop.End(bracket, pick(3));
        break;
      case 6:
        loop.Cpu(pick(5'000'000)).Backward(pick(1'000'000));
        break;
      case 7:
        loop.Fetch(pick(4), pick(1'000'000), pick(3) == 0 ? kGradDisabled : 0, static_cast<FetchEnd>(pick(3)));
        break;
      case 8:
        loop.Optimizer(pick(3), pick(1'000'000));
        break;
      case 9:
        loop.GilWait(pick(1'000'000), pick(5), pick(100), pick(2'000'000));
        break;
      case 10:
        loop.Sample(static_cast<SampleState>(pick(7)), pick(10'000'000), pick(50), pick(300));
        break;
      case 11:
        loop.Descheduled(pick(3'000'000)).Hold(pick(5), pick(50));
        break;
      case 12:
        throttled += pick(1'000'000);
        loop.Throttled(throttled);
        break;
      default:
        if (steps && pick(3) == 0) loop.RunStep();
        if (cells && pick(4) == 0) loop.WatchEnds();
        if (cells && pick(4) == 0) loop.WatchBegins();
        loop.Blocked(pick(20) == 0 ? 6'000'000'000 : pick(2'000'000));
        loop.timeline().AdvanceTo(loop.now());
    }
  }
  loop.Finish();
  int64_t explained = 0;
  for (const Step& step : loop.steps()) {
    for (const DeviceStep& d : step.devices) explained += d.starved_gaps > 0 && d.busy_ns > 0;
  }
  return explained;
}

TEST(TimelineFuzz, PlausibleEvents) {
  int64_t explained = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    explained += PlausibleRun(seed);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(explained, 1000);  // devices were among it
}

// On one thread, steps touch whatever the brackets are.
TEST(TimelineFuzz, StepsTouch) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    Script loop;
    for (int i = 0; i < 400; ++i) {
      const Bracket bracket = static_cast<Bracket>(random() % kBracketCount);
      loop.Cpu(random() % 100'000);
      const uint32_t object = random() % 3;
      if (random() % 2 == 0) {
        loop.Begin(bracket, object, -1, random() % 3 == 0 ? kGradDisabled : 0);
      } else {
        loop.End(bracket, random() % 2);
      }
    }
    loop.Finish();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(TimelineFuzz, HostileEvents) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937_64 random(seed);
    const auto anything = [&]() -> int64_t {
      switch (random() % 6) {
        case 0:
          return static_cast<int64_t>(random());
        case 1:
          return INT64_MAX - static_cast<int64_t>(random() % 3);
        case 2:
          return INT64_MIN + static_cast<int64_t>(random() % 3);
        case 3:
          return static_cast<int64_t>(random() % 5) - 2;
        default:
          return static_cast<int64_t>(random() % 1'000'000'000);
      }
    };
    RecordingSink sink;
    sink.touching = false;
    TimelineOptions options;
    options.max_segments = static_cast<int>(random() % 20) - 5;
    sink.max_segments = static_cast<size_t>(std::max(options.max_segments, 1));
    Timeline timeline(options, &sink);
    for (int i = 0; i < 2000; ++i) {
      Event e{};
      e.start_ns = anything();
      e.end_ns = anything();
      e.cpu_ns = anything();
      e.run_delay_ns = anything();
      e.value = anything();
      e.object = static_cast<uint32_t>(random() % 3 == 0 ? random() : random() % 5);
      e.thread = static_cast<ThreadId>(random() % 10 == 0 ? random() : random() % 3);
      e.stack = static_cast<StackId>(random());
      e.kind = static_cast<EventKind>(random() % 20 == 0 ? random() % 256 : random() % kEventKindCount);
      e.what = static_cast<uint8_t>(random() % 10 == 0 ? random() : random() % kBracketCount);
      e.phase = static_cast<uint8_t>(random());
      e.flags = static_cast<uint8_t>(random());
      timeline.Add(e);
      if (random() % 2 == 0) {
        DeviceOp op{};
        op.start_ns = anything();
        op.end_ns = anything();
        op.correlation = random() % 3 == 0 ? random() : random() % 50;
        op.bytes = anything();
        op.name = static_cast<uint32_t>(random() % 100);
        op.device = static_cast<uint32_t>(random() % 10 == 0 ? random() : random() % 3);
        op.kind = static_cast<DeviceOpKind>(random() % 10 == 0 ? random() % 256 : random() % 3);
        op.direction = static_cast<CopyDirection>(random() % 256);
        op.from = static_cast<MemoryKind>(random() % 256);
        op.to = static_cast<MemoryKind>(random() % 256);
        op.flags = static_cast<uint8_t>(random());
        timeline.Add(op);
        if (random() % 50 == 0) timeline.MarkDeviceIncomplete(op.device);
      }
      if (random() % 50 == 0) timeline.AdvanceTo(anything());
      if (random() % 50 == 0) timeline.MarkIncomplete();
    }
    timeline.Finish(anything());
    timeline.Add(Event{});  // after the end: nothing
    timeline.Finish(0);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trainperf
