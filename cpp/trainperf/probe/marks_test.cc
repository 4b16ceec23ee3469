#include "trainperf/probe/marks.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "trainperf/base/clock.h"
#include "trainperf/probe/marks_test_util.h"

namespace trainperf {
namespace {

TEST_F(MarksTest, CarriesClocksInOrder) {
  marks::Begin(Bracket::kFetch, 3, 2, kGradDisabled);
  marks::End(Bracket::kFetch, kFetchExhausted);
  const std::vector<Event> events = Drained();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, EventKind::kBegin);
  EXPECT_EQ(events[0].object, 3u);
  EXPECT_EQ(events[0].value, 2);
  EXPECT_EQ(events[0].flags & kGradDisabled, kGradDisabled);
  EXPECT_EQ(events[1].kind, EventKind::kEnd);
  EXPECT_EQ(events[1].value, kFetchExhausted);
  EXPECT_LE(events[0].end_ns, events[1].end_ns);
  EXPECT_LE(events[0].cpu_ns, events[1].cpu_ns);
  EXPECT_EQ(events[0].thread, marks::CurrentThreadId());
}

// As without a GIL: a ring is taken from its thread only when that is done with its last mark, and given to another.
TEST_F(MarksTest, WatchesBeginAndEndWhileThreadsMark) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&stop] {
      while (!stop.load()) {
        marks::Begin(Bracket::kFetch, 1, -1, 0);
        marks::RecordBegins(marks::EnterC());
        marks::RecordEnds();
        marks::End(Bracket::kFetch, kFetchedBatch);
        marks::Step();
        marks::NamedTimeHere();
        std::this_thread::yield();
      }
    });
  }
  int64_t events = 0;
  // On a machine that has other things to do, some more of them.
  for (int watch = 0; watch < 300 || (events <= 1000 && watch < 30'000); ++watch) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    marks::Disable();
    marks::AwaitLast();
    ThreadTable& table = ThreadTable::Get();
    for (ThreadId id = 1; id <= table.size(); ++id) {
      SpscRing<Event>* ring = table.info(id).ring.load();
      if (ring == nullptr) continue;
      ring->Drain([&](const Event& event) {
        EXPECT_EQ(event.thread, id);
        ++events;
      });
    }
    marks::ReleaseRings();
    table.Reset();
    EXPECT_EQ(table.generation() % 2, 0u);
    marks::Enable();
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(events, 1000);
}

TEST_F(MarksTest, ReadsRunDelayOnlyAfterBeingOffCpu) {
  for (int i = 0; i < 101; ++i) marks::Step();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  marks::Step();
  const std::vector<Event> events = Drained();
  ASSERT_EQ(events.size(), 102u);
  const auto reads = [](const Event& event) { return (event.flags & kHasRunDelay) != 0; };
  EXPECT_TRUE(reads(events[0]));                                                  // it has nothing to carry
  EXPECT_LT(std::count_if(events.begin() + 1, events.begin() + 101, reads), 50);  // those that were preempted
  EXPECT_TRUE(reads(events[101]));
  EXPECT_GE(events[101].run_delay_ns, events[0].run_delay_ns);
}

TEST_F(MarksTest, ClocksAreReadWithoutAMark) {
  std::thread([this] {
    for (const int64_t start_ns = ThreadCpuNs(); ThreadCpuNs() < start_ns + 2'000'000;) {
    }
    const Event before = marks::ClocksHere(EventKind::kWatchBegins);
    EXPECT_EQ(before.thread, marks::CurrentThreadId());
    EXPECT_EQ(marks::CurrentThread()->ring.load(), nullptr);
    marks::Step();
    const std::vector<Event> events = Drained();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_LE(before.end_ns, events[0].end_ns);
    EXPECT_LE(before.cpu_ns, events[0].cpu_ns);
    EXPECT_LE(events[0].cpu_ns - before.cpu_ns, events[0].end_ns - before.end_ns + 100'000);  // of the same clock
  }).join();
}

// Until `over`, on one CPU with a thread that leaves it no rest.
void ComputeBeside(const std::function<bool()>& over) {
  cpu_set_t before, one;
  sched_getaffinity(0, sizeof(before), &before);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof(one), &one);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load(std::memory_order_relaxed)) {
    }
  });
  while (!over()) {
  }
  stop.store(true);
  other.join();
  sched_setaffinity(0, sizeof(before), &before);
}

TEST_F(MarksTest, NamedTimeHasTheWaitsForACpuSinceTheLastMark) {
  if (!marks::CanReadRunDelay()) GTEST_SKIP() << "this kernel does not tell the run delay";
  constexpr int64_t kGilNs = 5'000'000;
  marks::Step();
  ThreadInfo* self = marks::CurrentThread();
  const marks::RunDelay delay;
  // Each reading lies between two of the kernel's.
  const int64_t first_ns = delay.Ns();
  const marks::NamedTime before = marks::NamedTimeHere();
  const int64_t start_ns = delay.Ns();
  ComputeBeside([&] { return delay.Ns() - start_ns > 4 * kGilNs; });
  self->gil_wait_ns += kGilNs;  // at another time: both count
  const int64_t end_ns = delay.Ns();
  const int64_t both_ns = marks::NamedTimeHere().Since(before);
  self->gil_delay_ns += kGilNs;  // that wait was one for a CPU: once
  const int64_t once_ns = marks::NamedTimeHere().Since(before);
  const int64_t last_ns = delay.Ns();
  EXPECT_GE(both_ns, end_ns - start_ns + kGilNs);
  EXPECT_LE(both_ns, last_ns - first_ns + kGilNs);
  EXPECT_GE(once_ns, end_ns - start_ns);
  EXPECT_LE(once_ns, last_ns - first_ns);
}

TEST_F(MarksTest, NamedTimeIsNeverLessThanItsWaitsForTheGil) {
  marks::Step();
  ThreadInfo* self = marks::CurrentThread();
  const marks::NamedTime before = marks::NamedTimeHere();
  self->gil_wait_ns += 7;
  self->gil_delay_ns += 1'000'000'000;  // which this thread's own clock does not show, or not yet
  EXPECT_EQ(marks::NamedTimeHere().Since(before), 7);
}

TEST_F(MarksTest, FetchTimeIsThatOfTheOutermost) {
  constexpr int64_t kNs = 2'000'000;
  const auto wait = [] {
    for (const int64_t start_ns = NowNs(); NowNs() < start_ns + kNs;) {
    }
  };
  marks::Begin(Bracket::kFetch, 1, -1, 0);
  const int64_t before_ns = marks::FetchTimeHere();
  wait();
  marks::Begin(Bracket::kFetch, 2, -1, 0);  // the dataset reads another loader
  wait();
  marks::End(Bracket::kFetch, kFetchedBatch);
  wait();
  EXPECT_GE(marks::FetchTimeHere() - before_ns, 3 * kNs);  // it has not ended
  wait();
  marks::End(Bracket::kFetch, kFetchExhausted);
  marks::End(Bracket::kFetch, kFetchExhausted);  // of none
  const int64_t ended_ns = marks::FetchTimeHere();
  EXPECT_GE(ended_ns - before_ns, 4 * kNs);
  marks::Begin(Bracket::kUserPhase, 0, 0, 0, Phase::kValidation);
  wait();
  marks::End(Bracket::kUserPhase, 0, Phase::kValidation);
  EXPECT_EQ(marks::FetchTimeHere(), ended_ns);
  marks::Begin(Bracket::kLoaderStart, 1, 0, 0);
  wait();
  marks::End(Bracket::kLoaderStart, 0);
  EXPECT_GE(marks::FetchTimeHere() - ended_ns, kNs);
}

TEST_F(MarksTest, AWaitWithinACollectionCountsOnce) {
  constexpr int64_t kGilNs = 2'000'000;
  marks::Step();
  ThreadInfo* self = marks::CurrentThread();
  const int64_t start_ns = NowNs();  // a wait for a CPU may come anywhere
  const marks::NamedTime before = marks::NamedTimeHere();
  marks::CollectionBegins(2);
  // On the CPU: a wait for one, in which the thread cannot wait for the GIL too, makes it longer.
  for (const int64_t end_ns = ThreadCpuNs() + 2 * kGilNs; ThreadCpuNs() < end_ns;) {
  }
  self->gil_wait_ns += kGilNs;
  marks::CollectionEnds(0);
  const marks::NamedTime after = marks::NamedTimeHere();
  const int64_t ns = NowNs() - start_ns;
  EXPECT_GE(after.Since(before), 2 * kGilNs - 50'000);
  EXPECT_LE(after.Since(before), ns);
  EXPECT_LE(after.gc_ns - before.gc_ns, ns - kGilNs);
}

TEST_F(MarksTest, DoesNothingWhenDisabled) {
  marks::Step();
  Drained();
  marks::Disable();
  marks::Step();
  EXPECT_TRUE(Drained().empty());
}

TEST_F(MarksTest, AMutedThreadLeavesNoMarks) {
  marks::Begin(Bracket::kFetch, 1, -1, 0);
  marks::Mute(true);
  marks::Begin(Bracket::kBackward, 0, 0, 0);
  marks::End(Bracket::kBackward, 0);
  marks::Step();
  std::thread([] {
    marks::Step();  // another thread is not muted
    EXPECT_NE(marks::CurrentThread()->ring.load(), nullptr);
  }).join();
  marks::Mute(false);
  marks::End(Bracket::kFetch, kFetchedBatch);
  const std::vector<Event> events = Drained();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].kind, EventKind::kEnd);
}

TEST_F(MarksTest, AMutedThreadIsMutedUntilTheOutermostEnds) {
  marks::Step();
  marks::Mute(true);
  marks::Mute(true);
  marks::Mute(false);
  marks::Step();
  marks::Mute(false);
  marks::Mute(false);  // one too many
  marks::Step();
  marks::Mute(true);
  marks::Step();
  marks::Mute(false);
  EXPECT_EQ(Drained().size(), 2u);
}

TEST_F(MarksTest, WhatBeganBeforeTheThreadWasMutedEnds) {
  marks::Begin(Bracket::kFetch, 1, -1, 0);
  marks::Begin(Bracket::kLogging, 0, -1, 0);
  marks::Mute(true);
  marks::Begin(Bracket::kBackward, 0, 0, 0);
  marks::Begin(Bracket::kOptimizer, 0, 0, 0);
  marks::End(Bracket::kOptimizer, 0);
  marks::Step();
  marks::End(Bracket::kBackward, 0);
  marks::End(Bracket::kLogging, 0);
  marks::Mute(true);  // it is already
  marks::End(Bracket::kFetch, kFetchedBatch);
  marks::Mute(false);
  const std::vector<Event> events = Drained();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2].kind, EventKind::kEnd);
  EXPECT_EQ(events[2].what, static_cast<uint8_t>(Bracket::kLogging));
  EXPECT_EQ(events[3].kind, EventKind::kEnd);
  EXPECT_EQ(events[3].what, static_cast<uint8_t>(Bracket::kFetch));
}

TEST_F(MarksTest, OtherThreadsLogsDoNotMakeThemWatched) {
  std::thread([] {
    marks::Begin(Bracket::kLogging, 0, 0, 0);
    marks::Begin(Bracket::kGc, 0, 0, 0);
    EXPECT_EQ(marks::CurrentThread()->ring.load(), nullptr);
    marks::Begin(Bracket::kFetch, 1, -1, 0);
    EXPECT_NE(marks::CurrentThread()->ring.load(), nullptr);
  }).join();
}

TEST_F(MarksTest, AThreadThatIsMadeWatchedHasOneRing) {
  for (int i = 0; i < 50; ++i) {
    std::atomic<ThreadId> id{0};
    std::atomic<bool> leave{false};
    std::thread other([&] {
      id = marks::CurrentThreadId();
      marks::Step();  // at the same time as WatchThread(): either may make the ring
      while (!leave) std::this_thread::yield();
    });
    while (id == 0) std::this_thread::yield();
    EXPECT_TRUE(marks::WatchThread(id));
    ThreadInfo& info = ThreadTable::Get().info(id);
    SpscRing<Event>* const ring = info.ring.load();
    ASSERT_NE(ring, nullptr);
    EXPECT_TRUE(marks::WatchThread(id));
    EXPECT_EQ(info.ring.load(), ring);
    EXPECT_GE(info.schedstat_fd.load(), 0);
    leave = true;
    other.join();
    int marked = 0;
    ring->Drain([&](const Event& event) { marked += event.thread == id; });
    EXPECT_EQ(marked, 1);
    while (!ThreadHasEnded(info.native_tid.load())) std::this_thread::yield();
    marks::ReleaseRingOfDead(id);
    EXPECT_EQ(info.ring.load(), nullptr);
  }
}

TEST_F(MarksTest, CountsWhatTheRingCannotTake) {
  for (int i = 0; i < 40'000; ++i) marks::Step();
  EXPECT_EQ(marks::stats().dropped, 40'000u - 32'768u);
}

TEST_F(MarksTest, TheRingOfADeadThreadIsDrainedBeforeItIsTaken) {
  ThreadId id = 0;
  std::thread([&id] {
    marks::Step();
    id = marks::CurrentThreadId();
  }).join();
  // join() returns a moment before the kernel has let go of the thread.
  while (!ThreadHasEnded(ThreadTable::Get().info(id).native_tid.load())) std::this_thread::yield();
  std::atomic<SpscRing<Event>*>& ring = ThreadTable::Get().info(id).ring;
  marks::ReleaseRingOfDead(id);
  ASSERT_NE(ring.load(), nullptr);
  EXPECT_EQ(ring.load()->Drain([](const Event&) {}), 1u);
  marks::ReleaseRingOfDead(id);
  EXPECT_EQ(ring.load(), nullptr);
}

TEST_F(MarksTest, ALivingThreadKeepsItsRing) {
  marks::Step();
  Drained();
  const SpscRing<Event>* ring = marks::CurrentThread()->ring.load();
  ASSERT_NE(ring, nullptr);
  marks::ReleaseRingOfDead(marks::CurrentThreadId());
  EXPECT_EQ(marks::CurrentThread()->ring.load(), ring);
  marks::Step();
  EXPECT_EQ(Drained().size(), 1u);
}

TEST_F(MarksTest, ItsCostIsItsOwnNotTheMachines) {
  for (int i = 0; i < 68; ++i) {
    marks::Step();
    std::this_thread::sleep_for(std::chrono::microseconds(300));  // off CPU between marks, never in one
  }
  const marks::Stats stats = marks::stats();
  EXPECT_EQ(stats.marks, 68);
  EXPECT_GT(stats.cost_ns, 68 * 400);
  EXPECT_LT(stats.cost_ns, 68 * 100'000);
}

TEST_F(MarksTest, FromCItCountsFromTheWrappersEntryAndNoCallFromPython) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer makes a mark cost more than a call from Python";
#endif
  // The least of some rounds: without rseq, what preempts a mark for a moment is timed with it.
  const auto least_cost_of_a_mark = [](const std::function<void()>& marks_twice) {
    int64_t least_ns = INT64_MAX;
    for (int round = 0; round < 10; ++round) {
      marks::Enable();
      for (int i = 0; i < 510; ++i) marks_twice();
      const marks::Stats stats = marks::stats();
      EXPECT_EQ(stats.marks, 1020);
      least_ns = std::min(least_ns, stats.cost_ns / std::max<int64_t>(stats.marks, 1));
    }
    return least_ns;
  };
  const int64_t from_c_ns = least_cost_of_a_mark([] {
    marks::BeginFromC(Bracket::kFetch, 1, 0, marks::EnterC());
    marks::EndFromC(Bracket::kFetch, 0, marks::EnterC());
  });
  const int64_t entered_before_ns = least_cost_of_a_mark([] {
    const int64_t entered_ns = marks::EnterC();
    while (entered_ns != 0 && NowNs() < entered_ns + 5'000) {  // what a wrapper does before its mark
    }
    marks::BeginFromC(Bracket::kFetch, 1, 0, entered_ns);
    marks::EndFromC(Bracket::kFetch, 0, marks::EnterC());
  });
  EXPECT_GT(entered_before_ns, from_c_ns + 1'500);
  const int64_t from_python_ns = least_cost_of_a_mark([] {
    marks::Step();
    marks::Step();
  });
  EXPECT_GT(from_python_ns, from_c_ns + 500);
}

TEST_F(MarksTest, WhatAWrapperWaitsForIsNotItsCost) {
  for (int i = 0; i < 340; ++i) {
    const int64_t entered_ns = marks::EnterC();
    if (entered_ns != 0) std::this_thread::sleep_for(std::chrono::microseconds(1));  // takes 50 us and more
    marks::BeginFromC(Bracket::kFetch, 1, 0, entered_ns);
  }
  const marks::Stats stats = marks::stats();
  EXPECT_EQ(stats.marks, 340);
  EXPECT_LT(stats.cost_ns, 340 * 25'000);
}

TEST_F(MarksTest, ARingIsUsedAgainAndStartsEmpty) {
  marks::Step();
  SpscRing<Event>* first = marks::CurrentThread()->ring.load();
  TearDown();
  SetUp();
  marks::Step();
  EXPECT_EQ(marks::CurrentThread()->ring.load(), first);
  EXPECT_EQ(Drained().size(), 1u);
}

}  // namespace
}  // namespace trainperf
