#include "trainperf/trace/converter.h"

#include <random>

#include "gmock/gmock.h"
#include "trainperf/trace/trace_test_util.h"

namespace trainperf {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ConverterTest, TheInnermostSpanOwnsTheTime) {
  TraceText text;
  text.Step(9, 0, 100).Op("aten::linear", 10, 50).Op("aten::addmm", 20, 30).Call("cudaLaunchKernel", 30, 5, 77);
  text.Op("aten::relu", 60, 10).Call("cudaStreamSynchronize", 80, 15, 78).Kernel("k", 40, 5, 77);
  StepPlan plan;
  const RecordingFeed feed = ConvertText(text.text(), nullptr, &plan);
  EXPECT_EQ(plan.first_index, 9);
  EXPECT_EQ(plan.note, "");
  EXPECT_THAT(feed.Told(1), ElementsAre("step@0", "cpu_op 10-30", "launch_kernel 30-35 #77", "cpu_op 35-70",
                                        "stream_sync 80-95 #78", "step@100"));
  ASSERT_EQ(feed.ops.size(), 1u);
  EXPECT_EQ(feed.ops[0].correlation, 77u);
}

TEST(ConverterTest, CallsOfNoTimeAreNotLost) {
  TraceText text;  // old traces count whole microseconds
  text.Step(1, 0, 10).Op("aten::add", 2, 0).Call("cudaLaunchKernel", 2, 0, 5).Call("cudaLaunchKernel", 2, 0, 6);
  text.Kernel("k", 3, 0, 5).Kernel("k", 3, 0, 6);
  const RecordingFeed feed = ConvertText(text.text());
  EXPECT_THAT(feed.Told(1), ElementsAre("step@0", "launch_kernel 2-2 #5", "launch_kernel 2-2 #6", "step@10"));
  EXPECT_EQ(feed.ops.size(), 2u);
}

TEST(ConverterTest, ASpanEndsWithTheOneAroundIt) {
  TraceText text;
  text.Step(1, 0, 100).Op("outer", 10, 10).Call("cudaLaunchKernel", 18, 5, 5).Op("next", 20, 10);
  const RecordingFeed feed = ConvertText(text.text());
  EXPECT_THAT(feed.Told(1),
              ElementsAre("step@0", "cpu_op 10-18", "launch_kernel 18-20 #5", "cpu_op 20-30", "step@100"));
}

TEST(ConverterTest, BackwardIsWhereAutogradEvaluates) {
  TraceText text;
  text.Step(1, 0, 100).Step(2, 100, 100);
  for (const int at : {0, 100}) {
    text.Op("aten::mm", at + 5, 10);
    text.Op("autograd::engine::evaluate_function: MmBackward0", at + 20, 10, 2);
    text.Op("aten::mm", at + 22, 5, 2);
    text.Op("autograd::engine::evaluate_function: AccumulateGrad", at + 40, 10, 2);
    text.Span("user_annotation", "Optimizer.step#SGD.step", at + 60, 20).Op("aten::add_", at + 62, 10);
  }
  const RecordingFeed feed = ConvertText(text.text());
  EXPECT_THAT(feed.Told(1), ElementsAre("step@0", "cpu_op 5-15", "begin backward@20", "end backward@50",
                                        "begin optimizer@60", "cpu_op 62-72", "end optimizer@80", "step@100",
                                        "cpu_op 105-115", "begin backward@120", "end backward@150",
                                        "begin optimizer@160", "cpu_op 162-172", "end optimizer@180", "step@200"));
  EXPECT_THAT(feed.Told(2), ElementsAre("cpu_op 20-30", "cpu_op 40-50", "cpu_op 120-130", "cpu_op 140-150"));
}

TEST(ConverterTest, BackwardOfTheStepThreadItself) {
  TraceText text;
  text.Step(1, 0, 100).Op("aten::mm", 5, 10).Op("autograd::engine::evaluate_function: A", 20, 10);
  text.Op("autograd::engine::evaluate_function: B", 31, 9).Op("aten::add_", 50, 10);
  EXPECT_THAT(ConvertText(text.text()).Told(1),
              ElementsAre("step@0", "cpu_op 5-15", "begin backward@20", "cpu_op 20-30", "cpu_op 31-40",
                          "end backward@40", "cpu_op 50-60", "step@100"));
}

TEST(ConverterTest, PythonTellsOfBackwardAndLines) {
  TraceText text;
  text.Step(1, 0, 100).Span("python_function", "train.py(12): train", 0, 99);
  text.Span("python_function", "/lib/torch/autograd/__init__.py(180): backward", 20, 40);
  text.Op("autograd::engine::evaluate_function: A", 25, 10, 2);
  text.Span("python_function", "<built-in function sleep>", 65, 10);
  text.Op("aten::item", 80, 10).Call("cudaStreamSynchronize", 82, 6, 5);
  StackTable stacks;
  stacks.Init();
  const RecordingFeed feed = ConvertText(text.text(), &stacks);
  EXPECT_THAT(feed.Told(1), ElementsAre("step@0", "python 0-20", "begin backward@20", "python 20-60", "end backward@60",
                                        "python 60-65", "python 75-80", "cpu_op 80-82", "stream_sync 82-88 #5",
                                        "stack 82-88", "cpu_op 88-90", "python 90-99", "step@100"));
  for (const Event& event : feed.events) {
    if (event.kind != EventKind::kSample) continue;
    ASSERT_NE(event.stack, 0u);
    const StackTable::Node inner = stacks.node(event.stack);
    EXPECT_EQ(stacks.site(inner.site).function, "aten::item");
    const Site outer = stacks.site(stacks.node(inner.parent).site);
    EXPECT_EQ(outer.file, "train.py");
    EXPECT_EQ(outer.function, "train");
    EXPECT_EQ(outer.line, 12);
  }
}

TEST(ConverterTest, AnAnnotationOutlivesTheFunctionThatOpensIt) {
  TraceText text;
  text.Step(1, 0, 100).Span("python_function", "train.py(3): loop", 0, 90);
  text.Span("python_function", "profiler.py(9): __enter__", 10, 4);
  text.Span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 12, 40);
  text.Span("python_function", "data.py(5): read", 20, 20).Span("python_function", "profiler.py(12): __exit__", 50, 5);
  EXPECT_THAT(ConvertText(text.text()).Told(1),
              ElementsAre("step@0", "python 0-12", "begin fetch@12", "python 20-40", "python 50-52", "end fetch@52",
                          "python 52-90", "step@100"));
}

TEST(ConverterTest, TwinsOfStepsCountOnce) {
  TraceText text;
  text.Step(5, 0, 100).Span("Operator", "ProfilerStep#5", 0.5, 99);
  text.Step(6, 100, 100).Span("Operator", "ProfilerStep#6", 100.5, 99).Op("a", 10, 5);
  StepPlan plan;
  EXPECT_THAT(ConvertText(text.text(), nullptr, &plan).Told(1),
              ElementsAre("step@0", "cpu_op 10-15", "step@100", "step@200"));
  EXPECT_EQ(plan.first_index, 5);
}

TEST(ConverterTest, StepsWithoutMarks) {
  const auto plan_of = [](const TraceText& text) {
    StepPlan plan;
    ConvertText(text.text(), nullptr, &plan);
    return plan;
  };
  TraceText nothing;
  nothing.Op("a", 10, 5);
  EXPECT_THAT(ConvertText(nothing.text()).Told(1), ElementsAre("step@0", "cpu_op 0-5", "step@5"));
  EXPECT_THAT(plan_of(nothing).note, HasSubstr("one step"));

  TraceText fetches;  // an inference
  for (const int at : {0, 50, 100}) {
    fetches.Span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 10)
        .Op("a", at + 20, 5);
  }
  EXPECT_THAT(ConvertText(fetches.text()).Told(1),
              ElementsAre("step@0", "begin fetch@0", "end fetch@10", "cpu_op 20-25", "step@50", "begin fetch@50",
                          "end fetch@60", "cpu_op 70-75", "step@100", "begin fetch@100", "end fetch@110",
                          "cpu_op 120-125", "step@125"));
  EXPECT_THAT(plan_of(fetches).note, HasSubstr("DataLoader"));

  TraceText optimizer;
  for (const int at : {0, 50}) optimizer.Span("user_annotation", "Optimizer.step#SGD.step", at + 20, 10).Op("a", at, 5);
  EXPECT_THAT(ConvertText(optimizer.text()).Told(1),
              ElementsAre("step@0", "cpu_op 0-5", "begin optimizer@20", "end optimizer@30", "step@30", "cpu_op 50-55",
                          "begin optimizer@70", "end optimizer@80", "step@80"));

  TraceText kernels;
  kernels.Kernel("k", 0, 5, 1).Kernel("k", 10, 5, 2);
  EXPECT_THAT(ConvertText(kernels.text()).Told(1), ElementsAre("step@0", "step@15"));
}

TEST(ConverterTest, ALaunchThatWaitsForRoomIsNoSlowLaunch) {
  TraceText text;
  text.Step(1, 0, 100000);
  for (int i = 0; i < 1100; ++i) text.Call("cudaLaunchKernel", 10 + i, 0.5, i + 1);
  text.Call("cudaLaunchKernel", 2000, 300, 5000).Kernel("k", 9000, 10, 5000);
  for (int i = 0; i < 1100; ++i) text.Kernel("k", 3000 + i * 5, 4, i + 1);
  text.Call("cudaLaunchKernel", 20000, 300, 6000).Kernel("k", 20300, 10, 6000);  // as slow, but nothing waits
  const auto told = ConvertText(text.text()).Told(1);
  EXPECT_THAT(told, Contains("queue_full 2000-2300"));
  EXPECT_THAT(told, Contains("launch_kernel 2300-2300 #5000"));
  EXPECT_THAT(told, Contains("launch_kernel 20000-20300 #6000"));
  int full = 0;
  for (const std::string& line : told) full += line.find("queue_full") != std::string::npos;
  EXPECT_EQ(full, 1);
}

TEST(ConverterTest, AnUnknownCallThatTakesLongTellsNothing) {
  TraceText text;
  text.Step(1, 0, 10000).Op("aten::empty", 10, 9000).Call("cudaDeviceGetStreamPriorityRange", 20, 8000, 5);
  text.Op("aten::relu", 9500, 10).Call("cudaEventQuery", 9502, 5, 6);
  EXPECT_THAT(ConvertText(text.text()).Told(1),
              ElementsAre("step@0", "cpu_op 10-20", "cpu_op 8020-9010", "cpu_op 9500-9510", "step@10000"));
}

// Any spans: in order, disjoint in each thread, and what spans cover is covered once.
TEST(ConverterTest, AnySpansBecomeDisjoint) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    TraceText text;
    std::map<int, std::vector<bool>> covered;
    text.Step(1, 0, 5000);
    for (int i = 0; i < 200; ++i) {
      const int tid = 1 + static_cast<int>(random() % 3);
      const int start = static_cast<int>(random() % 4000);
      const int size = static_cast<int>(random() % (1 + random() % 600));
      if (random() % 3 == 0) {
        text.Call("cudaLaunchKernel", start, size, i + 1, tid);
      } else if (random() % 8 == 0) {
        text.Op("autograd::engine::evaluate_function: X", start, size, tid);
      } else {
        text.Op("op", start, size, tid);
      }
      covered[tid].resize(5000);
      for (int t = start; t < start + size; ++t) covered[tid][static_cast<size_t>(t)] = true;
      if (random() % 4 == 0) text.Kernel("k", start, size, i + 1, static_cast<int>(random() % 2));
    }
    const RecordingFeed feed = ConvertText(text.text());  // checks order and disjointness
    std::map<ThreadId, int64_t> sums;
    for (const Event& event : feed.events) {
      if (event.kind == EventKind::kCall) sums[event.thread] += event.end_ns - event.start_ns;
    }
    int64_t all = 0, expected = 0;
    for (const auto& [thread, sum] : sums) all += sum;
    for (const auto& [tid, times] : covered) expected += std::count(times.begin(), times.end(), true) * 1000;
    // A span that outlives the one around it is cut at its end, so what sticks out may be lost: never more is given.
    EXPECT_LE(all, expected);
    EXPECT_GT(all, expected / 2);
  }
}

}  // namespace
}  // namespace trainperf
