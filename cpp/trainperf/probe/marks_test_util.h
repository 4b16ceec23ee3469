// What the tests of marks share: a watch's begin and end, and what the thread has marked.

#ifndef TRAINPERF_PROBE_MARKS_TEST_UTIL_H_
#define TRAINPERF_PROBE_MARKS_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <vector>

#include "trainperf/probe/marks.h"

namespace trainperf {

class MarksTest : public testing::Test {
 protected:
  void SetUp() override {
    ThreadTable::Get().Reset();
    marks::Enable();
  }
  void TearDown() override {
    marks::Disable();
    marks::ReleaseRings();
  }
  // What this thread has marked since the last call.
  std::vector<Event> Drained() {
    std::vector<Event> events;
    SpscRing<Event>* ring = marks::CurrentThread()->ring.load();
    if (ring != nullptr) ring->Drain([&](const Event& event) { events.push_back(event); });
    return events;
  }
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_MARKS_TEST_UTIL_H_
