#include "trainperf/probe/log_burst.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "trainperf/base/clock.h"
#include "trainperf/base/off_cpu.h"
#include "trainperf/probe/marks.h"
#include "trainperf/probe/marks_test_util.h"

namespace trainperf {
namespace {

// By the marks that a thread leaves. A record in which it is preempted leaves marks of its own, at any time.
class LogBurstTest : public MarksTest {};

void Spin(int64_t ns) {
  for (const int64_t start_ns = NowNs(); NowNs() < start_ns + ns;) {
  }
}

void Record(const std::function<void()>& writes) {
  marks::RecordBegins(marks::EnterC());
  writes();
  marks::RecordEnds();
}

struct Logged {
  int64_t ns = 0;      // in the brackets of logging
  int64_t cpu_ns = 0;  // of it
  int brackets = 0;
};

// Checks that these marks of a thread are in order, and that its brackets of logging open and close. Of nested ones the
// outermost counts.
Logged LoggedIn(const std::vector<Event>& events) {
  Logged logged;
  std::vector<const Event*> open;
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    EXPECT_TRUE(i == 0 || (event.end_ns >= events[i - 1].end_ns && event.cpu_ns >= events[i - 1].cpu_ns)) << i;
    if (event.what != static_cast<uint8_t>(Bracket::kLogging)) continue;
    if (event.kind == EventKind::kBegin) {
      open.push_back(&event);
      continue;
    }
    EXPECT_FALSE(open.empty()) << i;
    if (open.empty()) continue;
    if (open.size() == 1) {
      logged.ns += event.end_ns - open[0]->end_ns;
      logged.cpu_ns += event.cpu_ns - open[0]->cpu_ns;
      ++logged.brackets;
    }
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
  return logged;
}

TEST_F(LogBurstTest, ManyRecordsInARowShareBracketsAndKeepTheirTime) {
  constexpr int kRecords = 400;
  marks::Step();
  int64_t least_ns = 0;
  int64_t most_ns = 0;
  for (int i = 0; i < kRecords; ++i) {
    const int64_t start_ns = NowNs();
    Record([&] {
      const int64_t within_ns = NowNs();
      Spin(5'000);
      least_ns += NowNs() - within_ns;
    });
    most_ns += NowNs() - start_ns;
    Spin(5'000);
  }
  marks::Step();
  const Logged logged = LoggedIn(Drained());
  EXPECT_GE(logged.ns, least_ns);
  EXPECT_LE(logged.ns, most_ns);
  EXPECT_LE(logged.cpu_ns, logged.ns);
  if (!OffCpu::Supported()) {
    EXPECT_EQ(logged.brackets, kRecords);
    return;
  }
  EXPECT_GE(logged.brackets, LogBurst::kMarked + 3);  // 2 ms in sums of half a millisecond
  EXPECT_LE(logged.brackets, kRecords / 2);           // also of a thread that is preempted all the time
  EXPECT_GE(marks::stats().summed, kRecords / 2);
  EXPECT_GT(marks::stats().cost_ns, marks::stats().summed * 60);
}

TEST_F(LogBurstTest, AMarkOfAnotherKindHasTheRecordsBeforeItAndTheFirstOnesAfterItLeaveMarks) {
  marks::Step();
  for (int i = 0; i < LogBurst::kMarked + 5; ++i) Record([] {});
  marks::Begin(Bracket::kBackward, 0, 0, 0);
  const size_t before = Drained().size();
  EXPECT_GE(before, size_t{2 + 2 * LogBurst::kMarked + 2});
  marks::End(Bracket::kBackward, 0);
  for (int i = 0; i < LogBurst::kMarked; ++i) Record([] {});
  EXPECT_EQ(Drained().size(), size_t{1 + 2 * LogBurst::kMarked});
}

TEST_F(LogBurstTest, ARecordThatIsLongOrLeavesItsCpuLeavesMarksOfItsOwn) {
  const auto computes = [] { Spin(2 * LogBurst::kLongNs); };
  const auto sleeps = [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
  for (const std::function<void()>& is_long : {std::function<void()>(computes), std::function<void()>(sleeps)}) {
    marks::Step();
    for (int i = 0; i < LogBurst::kMarked + 20; ++i) Record([] { Spin(2'000); });
    const int64_t start_ns = NowNs();
    Record(is_long);
    const int64_t end_ns = NowNs();
    const std::vector<Event> events = Drained();  // with no mark after it
    ASSERT_GE(events.size(), 2u);
    const Event& begin = events[events.size() - 2];
    EXPECT_EQ(begin.kind, EventKind::kBegin);
    EXPECT_GE(begin.end_ns, start_ns);
    EXPECT_EQ(events.back().kind, EventKind::kEnd);
    EXPECT_LE(events.back().end_ns, end_ns);
    EXPECT_GE(LoggedIn(events).ns, events.back().end_ns - begin.end_ns);
    EXPECT_GE(events.back().end_ns - begin.end_ns, 2 * LogBurst::kLongNs);
  }
}

TEST_F(LogBurstTest, AfterALongRecordTheNextOnesLeaveMarks) {
  if (!OffCpu::Supported()) return;  // then all do
  const auto after_a_long_one = [this] {
    marks::Step();
    for (int i = 0; i < LogBurst::kMarked + 20; ++i) Record([] { Spin(2'000); });
    Record([] { Spin(2 * LogBurst::kLongNs); });
    Drained();
    for (int i = 0; i < LogBurst::kMarked; ++i) Record([] {});
    return Drained().size();
  };
  size_t marks = 0;
  for (int tries = 0; marks != 2 * LogBurst::kMarked && tries < 20; ++tries) marks = after_a_long_one();  // preempted
  EXPECT_EQ(marks, size_t{2 * LogBurst::kMarked});
}

TEST_F(LogBurstTest, ACollectionInARecordThatLeftNoMarksIsWithinItsBracket) {
  using Marks = std::vector<std::pair<EventKind, Bracket>>;
  const auto marked = [this] {
    marks::Step();
    for (int i = 0; i < LogBurst::kMarked + 20; ++i) Record([] { Spin(2'000); });
    Record([] {
      Record([] {});  // within another: nothing of its own
      Spin(2'000);
      marks::CollectionBegins(0);
      Record([] {});
      marks::CollectionEnds(0);
      Spin(2'000);
    });
    const std::vector<Event> events = Drained();
    LoggedIn(events);
    Marks last;  // before them, the others
    for (size_t i = events.size() - 4; i < events.size(); ++i) {
      last.emplace_back(events[i].kind, static_cast<Bracket>(events[i].what));
    }
    return last;
  };
  const Marks wanted = {{EventKind::kBegin, Bracket::kLogging},
                        {EventKind::kBegin, Bracket::kGc},
                        {EventKind::kEnd, Bracket::kGc},
                        {EventKind::kEnd, Bracket::kLogging}};
  Marks last = marked();
  for (int tries = 0; last != wanted && tries < 20; ++tries) last = marked();  // it was preempted
  if (OffCpu::Supported()) {
    EXPECT_EQ(last, wanted);
  }
}

TEST_F(LogBurstTest, WhatIsPutOffIsToldBeforeTheThreadWaits) {
  const auto told_within = [this] {
    marks::Step();
    for (int i = 0; i < LogBurst::kMarked + 20; ++i) Record([] { Spin(2'000); });
    EXPECT_EQ(marks::PutOffSinceNs(), INT64_MAX);
    std::vector<Event> told;
    Record([&] {
      Drained();
      const int64_t since_ns = marks::PutOffSinceNs();
      marks::PushRecords();
      told = Drained();
      EXPECT_TRUE(told.empty() || told.back().end_ns == since_ns);
      EXPECT_EQ(marks::PutOffSinceNs(), INT64_MAX);
    });
    EXPECT_EQ(Drained().size(), 1u);  // its end
    return told.size();
  };
  size_t told = told_within();
  for (int tries = 0; told != 3 && tries < 20; ++tries) told = told_within();  // it was preempted
  // The others' sum, and its own begin.
  EXPECT_EQ(told, OffCpu::Supported() ? 3u : 0u);
}

TEST_F(LogBurstTest, WithATracedDeviceEachRecordLeavesMarks) {
  marks::SumRecords(false);
  marks::Step();
  for (int i = 0; i < 50; ++i) Record([] { Record([] {}); });
  EXPECT_EQ(Drained().size(), 101u);  // but of one within another
  marks::SumRecords(true);
}

TEST_F(LogBurstTest, WhatWasPutOffWhenTheWatchEndedIsTold) {
  marks::Step();
  for (int i = 0; i < LogBurst::kMarked + 20; ++i) Record([] {});
  const int64_t end_ns = marks::ClocksHere(EventKind::kWatchEnds).end_ns;
  Record([&] {
    marks::Disable();
    Record([] {});
  });
  const std::vector<Event> events = Drained();
  if (OffCpu::Supported()) {  // else nothing is put off, and the last one's begin is there
    EXPECT_GE(LoggedIn(events).brackets, LogBurst::kMarked + 1);
    EXPECT_LE(events.back().end_ns, end_ns);
  }
  ThreadTable::Get().Reset();  // another watch begins, within a record of the last one's
  marks::Enable();
  marks::RecordEnds();
  marks::Step();
  Record([] {});
  EXPECT_EQ(Drained().size(), 3u);
}

TEST_F(LogBurstTest, WhoIsMutedInARecordLeavesNoneOpen) {
  for (const int before : {0, LogBurst::kMarked + 20}) {  // the first ones leave marks
    for (const auto& then : {std::function<void()>([] {}), std::function<void()>(marks::PushRecords)}) {
      marks::Step();
      for (int i = 0; i < before; ++i) Record([] { Spin(2'000); });
      Record([&then] {
        marks::Mute(true);
        Record([] { Spin(2'000); });
        then();
      });
      Record([] { Spin(2'000); });
      marks::Mute(false);
      marks::Step();
      LoggedIn(Drained());
    }
  }
}

TEST_F(LogBurstTest, RecordsOfAThreadThatIsNotWatchedOrIsMutedLeaveNothing) {
  std::thread([this] {
    for (int i = 0; i < 100; ++i) Record([] { Spin(1'000); });
    EXPECT_TRUE(Drained().empty());
  }).join();
  marks::Step();
  marks::Mute(true);
  for (int i = 0; i < 100; ++i) Record([] { Spin(1'000); });
  marks::Mute(false);
  EXPECT_EQ(Drained().size(), 1u);
}

}  // namespace
}  // namespace trainperf
