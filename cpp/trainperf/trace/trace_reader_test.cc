#include "trainperf/trace/trace_reader.h"

#include <pthread.h>
#include <zlib.h>

#include <random>

#include "gmock/gmock.h"
#include "trainperf/trace/json_value.h"
#include "trainperf/trace/trace_test_util.h"

namespace trainperf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(compressBound(text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string Message(const std::string& text) {
  const TempFile file(text);
  const auto trace = ReadTrace(file.path(), {});
  EXPECT_FALSE(trace.ok());
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(trace.status().message());
}

// A trace of everything that misleads: nested objects that look like events, names with brackets and quotes, both
// spellings.
std::string Varied(int events) {
  TraceText text;
  for (int i = 0; i < events; ++i) {
    const double at = 1000.0 + i * 10;
    text.Op(absl::StrCat("aten::add}, {\\\"ph\\\": \\\"", i % 7), at, 5);
    text.Call("cudaLaunchKernel", at + 1, 2, i + 1);
    text.Add(absl::StrCat(R"({"ph": "X", "cat": "cpu_op", "name": "aten::cat", "pid": 7, "tid": "main", "ts": )", at,
                          R"(.5, "dur": 1.25, "args": {"list": [{"ph": "X", "ts": 1}, {"name": "b"}, [[{}], {}]],
      "deep": {"ph": "X", "cat": "kernel", "name": "no", "ts": 5}}})"));
    text.Kernel(absl::StrCat("void k<", i % 5, ", {[(\\\\\\\"\\\\>"), at + 4, 3, i + 1, i % 2);
    text.Add(
        absl::StrCat(R"({"ph": "s", "id": )", i, R"(, "pid": 7, "tid": 1, "ts": 5, "cat": "ac2g", "name": "ac2g"})"));
  }
  return text.text();
}

TEST(TraceReaderTest, ReadsStampsByTheirDigits) {
  const auto parse = [](std::string_view text) {
    int64_t ns = -1;
    return ParseMicros(text, &ns) ? ns : -1;
  };
  EXPECT_EQ(parse("1712195495527376.234"), 1712195495527376234);
  EXPECT_EQ(parse("1712195495527376"), 1712195495527376000);
  EXPECT_EQ(parse("0.001"), 1);
  EXPECT_EQ(parse("7.5"), 7500);
  EXPECT_EQ(parse("7.12345"), 7123);
  EXPECT_EQ(parse("7.1235"), 7124);
  EXPECT_EQ(parse("1.5e-3"), 2);
  EXPECT_EQ(parse("2e3"), 2000000);
  EXPECT_EQ(parse("2305843009213693.952"), int64_t{1} << 61);
  for (const char* bad : {"", "-1", "NaN", "nan", "Infinity", "1.2.3", "9223372036854775808", "18446744073709551616",
                          "1e300", "2305843009213694", "0x10", "\"5\"", "null", "1e", "true", "12abc"}) {
    EXPECT_EQ(parse(bad), -1) << bad;
  }
}

TEST(TraceReaderTest, ReadsStampsOfAnyLength) {
  std::mt19937_64 random(3);
  for (int digits = 1; digits <= 18; ++digits) {
    for (int i = 0; i < 200; ++i) {
      std::string text;
      for (int d = 0; d < digits; ++d) text += static_cast<char>('0' + random() % 10);
      const int64_t micros = std::stoll(text);
      const bool fits = micros < (int64_t{1} << 61) / 1000;
      int64_t ns = -1;
      ASSERT_EQ(ParseMicros(text + ".25", &ns), fits) << text;
      if (fits) {
        ASSERT_EQ(ns, micros * 1000 + 250) << text;
      }
      text[random() % text.size()] = static_cast<char>("/:a \xb0\x80"[random() % 6]);
      ASSERT_FALSE(ParseMicros(text, &ns)) << text;
    }
  }
}

// Whichever parser meets a thread first: it has the number of its place in the file.
TEST(TraceReaderTest, ThreadsAreNumberedInTheOrderOfTheFile) {
  TraceText text;
  std::vector<std::string> keys;
  for (int tid = 300; tid > 0; --tid) {
    text.Op("op", tid, 1, tid).Step(400 - tid, tid, 1, tid);
    keys.push_back(absl::StrCat("7/", tid));
  }
  TraceReadOptions options;
  options.chunk_bytes = 400;
  options.threads = 4;
  const auto trace = MustRead(text.text(), options);
  ASSERT_NE(trace, nullptr);
  std::vector<std::string> found;
  for (const auto& thread : trace->tables.threads()) found.push_back(thread.key);
  EXPECT_EQ(found, keys);
  for (const HostRecord& r : HostRecords(trace.get())) {
    EXPECT_EQ(trace->thread_ids[r.thread], 301 - (r.start_ns / 1000)) << r.start_ns;
  }
  for (const StepMark& mark : trace->steps) EXPECT_EQ(mark.thread, 301 - mark.start_ns / 1000);
  for (size_t i = 1; i < trace->threads.size(); ++i) EXPECT_EQ(trace->threads[i].ops, 1);
}

TEST(TraceReaderTest, ReadsOldAndNewSpellings) {
  for (const bool old : {false, true}) {
    TraceText text;
    text.Span(old ? "Operator" : "cpu_op", "aten::mm", 10, 20);
    text.Span(old ? "Runtime" : "cuda_runtime", "cudaLaunchKernel", 12, 3, 1, "\"correlation\": 9");
    text.Span(old ? "Kernel" : "kernel", "sgemm", 20, 0.5, 7, "\"device\": 1, \"stream\": 7, \"correlation\": 9");
    text.Span(old ? "Memcpy" : "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 30, 2, 7,
              "\"device\": 1, \"stream\": 8, \"correlation\": 10, \"bytes\": 4096");
    text.Span(old ? "Memset" : "gpu_memset", "Memset (Device)", 33, 1, 7, "\"device\": 1, \"stream\": 8");
    text.Span("cuda_sync", "Stream Sync", 5, 100, 7, "\"device\": 1, \"stream\": 7");
    text.Span("gpu_user_annotation", "ProfilerStep#4", 5, 100, 7);
    text.Step(4, 9, 50);
    const auto trace = MustRead(text.text());
    ASSERT_NE(trace, nullptr);
    const auto host = HostRecords(trace.get());
    ASSERT_EQ(host.size(), 2u);
    EXPECT_EQ(host[0].kind, RecordKind::kOp);
    EXPECT_EQ(host[1].kind, RecordKind::kCall);
    EXPECT_EQ(host[1].correlation, 9u);
    const auto ops = DeviceOps(trace.get());
    ASSERT_EQ(ops.size(), 3u);
    EXPECT_EQ(ops[0].end_ns - ops[0].start_ns, 500);
    EXPECT_EQ(ops[0].device, 1u);
    EXPECT_EQ(ops[1].kind, DeviceOpKind::kMemcpy);
    EXPECT_EQ(ops[1].direction, CopyDirection::kHostToDevice);
    EXPECT_EQ(ops[1].from, MemoryKind::kPageable);
    EXPECT_EQ(ops[1].to, MemoryKind::kDevice);
    EXPECT_EQ(ops[1].bytes, 4096);
    EXPECT_EQ(ops[1].stream, 8u);
    EXPECT_EQ(ops[2].kind, DeviceOpKind::kMemset);
    ASSERT_EQ(trace->steps.size(), 1u);
    EXPECT_EQ(trace->steps[0].number, 4);
    EXPECT_EQ(trace->rank, 3);
    EXPECT_EQ(trace->world_size, 8);
    ASSERT_EQ(trace->devices.size(), 1u);
    EXPECT_EQ(trace->devices[0].name, "NVIDIA Test");
    EXPECT_THAT(trace->notes, IsEmpty());
  }
}

TEST(TraceReaderTest, EveryChunkSizeReadsTheSame) {
  const std::string text = Varied(150);
  TraceReadOptions whole;
  whole.chunk_bytes = 8 << 20;
  const auto expected = MustRead(text, whole);
  ASSERT_NE(expected, nullptr);
  EXPECT_EQ(expected->events, 5 * 150);
  const auto host = HostRecords(expected.get());
  const auto ops = DeviceOps(expected.get());
  EXPECT_EQ(host.size(), 450u);
  EXPECT_EQ(ops.size(), 150u);
  for (const size_t chunk : {1u, 7u, 64u, 100u, 257u, 999u, 4096u, 20000u}) {
    for (const int threads : {1, 3}) {
      TraceReadOptions options;
      options.chunk_bytes = chunk;
      options.threads = threads;
      options.memory_bytes = chunk < 100 ? 4096 : 64 << 20;  // some of it through the temporary file
      const auto trace = MustRead(text, options);
      ASSERT_NE(trace, nullptr);
      EXPECT_EQ(trace->events, expected->events) << chunk;
      EXPECT_EQ(trace->unreadable, 0);
      const auto same_host = HostRecords(trace.get());
      ASSERT_EQ(same_host.size(), host.size());
      for (size_t i = 0; i < host.size(); ++i) {
        ASSERT_EQ(same_host[i].start_ns, host[i].start_ns);
        ASSERT_EQ(same_host[i].end_ns, host[i].end_ns);
        ASSERT_EQ(trace->tables.host_names().name(same_host[i].name), expected->tables.host_names().name(host[i].name));
      }
      ASSERT_EQ(DeviceOps(trace.get()).size(), ops.size());
    }
  }
}

TEST(TraceReaderTest, WhatIsCutIsReadUpToThere) {
  const std::string text = Varied(6);
  const size_t begin = text.find("traceEvents\": [") + 15;
  int64_t before = 0;
  for (size_t size = 0; size < text.size(); size += size < 300 ? 1 : 7) {
    const TempFile file(text.substr(0, size));
    const auto trace = ReadTrace(file.path(), {});
    if (!trace.ok()) {
      EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument) << size;
      EXPECT_EQ(before, 0);
      continue;
    }
    EXPECT_GT(size, begin);
    EXPECT_GE((*trace)->events, before);
    before = (*trace)->events;
    if (size + 8 < text.size()) {
      EXPECT_THAT((*trace)->notes, ElementsAre(HasSubstr("cut"))) << size;
    }
  }
  EXPECT_EQ(before, 30);
}

TEST(TraceReaderTest, ReadsGzipAndWhatIsLeftOfIt) {
  const std::string text = Varied(400);
  const std::string packed = Gzip(text);
  EXPECT_EQ(MustRead(packed)->events, 2000);
  // Two members, as `cat a.gz b.gz` makes them; and the padding of a tape.
  const std::string parts = Gzip(text.substr(0, 5000)) + Gzip(text.substr(5000)) + std::string(512, '\0');
  const auto joined = MustRead(parts);
  EXPECT_EQ(joined->events, 2000);
  EXPECT_THAT(joined->notes, IsEmpty());
  for (size_t size = 2; size < packed.size(); size += 97) {
    const TempFile file(packed.substr(0, size));
    const auto trace = ReadTrace(file.path(), {});
    if (!trace.ok()) {
      EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    EXPECT_LT((*trace)->events, 2001);
    EXPECT_THAT((*trace)->notes, ElementsAre(HasSubstr("compressed data")));
  }
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {  // damage anywhere
    std::string bad = packed;
    bad[10 + random() % (bad.size() - 10)] ^= static_cast<char>(1 + random() % 255);
    const TempFile file(bad);
    ReadTrace(file.path(), {}).status().IgnoreError();
  }
}

TEST(TraceReaderTest, WhatIsNoTraceIsSaidInOneLine) {
  EXPECT_THAT(Message(""), HasSubstr("is empty"));
  EXPECT_THAT(Message("hello\n"), HasSubstr("no JSON"));
  EXPECT_THAT(Message("{}"), HasSubstr("no traceEvents"));
  EXPECT_THAT(Message(R"({"a": {"traceEvents": [{"ph": "X"}]}})"), HasSubstr("no traceEvents"));
  EXPECT_THAT(Message(R"({"traceEvents": {}})"), HasSubstr("no traceEvents"));
  EXPECT_THAT(Message(R"({"traceEvents": []})"), HasSubstr("no events"));
  EXPECT_THAT(Message(R"({"traceEvents": [1, "two", null, [3]]})"), HasSubstr("no events"));
  EXPECT_THAT(Message(R"([{"ph": "X", "cat": "toplevel", "ts": 1, "dur": 1}])"), HasSubstr("none of its 1 events"));
  EXPECT_THAT(Message("\x1f\x8bgarbage"), HasSubstr("its compressed data"));
  EXPECT_THAT(Message(std::string(3 << 20, ' ')), HasSubstr("no traceEvents"));
  EXPECT_EQ(ReadTrace("/no/such/trace.json", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadTrace("/tmp", {}).status().message()), HasSubstr("is a folder"));
  EXPECT_EQ(ReadTrace("/dev/zero", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TraceReaderTest, BadEventsAreLeftOutAndCounted) {
  TraceText text;
  text.Op("good", 10, 20);
  for (const char* ts : {"NaN", "-5", "9223372036854775808", "\"10\"", "null", "{}", "[1]", "1e400"}) {
    text.Add(absl::StrCat(R"({"ph": "X", "cat": "cpu_op", "name": "bad", "pid": 7, "tid": 1, "ts": )", ts,
                          R"(, "dur": 1})"));
  }
  text.Add(R"({"ph": "X", "cat": "cpu_op", "name": "bad", "pid": 7, "tid": 1, "ts": 5, "dur": -1})");
  text.Add(R"({"ph": "X", "cat": "cpu_op", "name": "bad", "pid": 7, "tid": 1, "dur": 1})");
  text.Add(R"({"ph": "X", "cat": "cpu_op", "name": "twice", "pid": 7, "tid": 1, "ts": 99, "ts": 40, "dur": 1})");
  text.Add(R"({"cat": "cpu_op", "name": "no phase", "pid": 7, "tid": 1, "ts": 1, "dur": 1})");
  text.Add(
      "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"not UTF-8 \xff\xc3\", \"pid\": 7, \"tid\": 1, \"ts\": 50, "
      "\"dur\": 1}");
  text.Add(
      "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a new\nline\", \"pid\": 7, \"tid\": 1, \"ts\": 60, \"dur\": "
      "1}");
  text.Add(
      "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\" \"no colon\", \"pid\": 7, \"tid\": 1, \"ts\": 61, \"dur\": 1}");
  text.Add(R"({"ph": "X", "cat": "cpu_op", "name": "last", "pid": 7, "tid": 1, "ts": 70})");
  const auto trace = MustRead(text.text());
  ASSERT_NE(trace, nullptr);
  std::vector<std::string> names;
  for (const HostRecord& r : HostRecords(trace.get())) names.push_back(trace->tables.host_names().name(r.name));
  EXPECT_THAT(names, ElementsAre("good", "twice", "not UTF-8 ??", "a new line", "last"));
  EXPECT_EQ(trace->bad_times, 10);
  EXPECT_EQ(trace->unreadable, 1);
  EXPECT_THAT(trace->notes, ElementsAre(HasSubstr("1 events of the trace were left out: their text is broken"),
                                        HasSubstr("10 events of the trace were left out: their time")));
}

TEST(TraceReaderTest, NestingThreadsAndDevicesAreBounded) {
  TraceText text;
  text.Op("good", 1, 2);
  std::string deep = R"({"ph": "X", "cat": "cpu_op", "name": "deep", "pid": 7, "tid": 1, "ts": 5, "dur": 1, "args": )";
  for (int i = 0; i < 200000; ++i) deep += "[{\"a\": ";
  deep += "1";
  for (int i = 0; i < 200000; ++i) deep += "}]";
  text.Add(deep + "}");
  for (int i = 0; i < 6000; ++i) text.Op("thread", 10 + i, 1, i);
  for (int i = 0; i < 600; ++i) text.Kernel("k", 10 + i, 1, i, i);
  const auto trace = MustRead(text.text());
  ASSERT_NE(trace, nullptr);
  EXPECT_EQ(trace->tables.threads().size(), size_t{TraceTables::kMaxThreads});
  EXPECT_EQ(trace->tables.devices().size(), TraceTables::kMaxDevices);
  EXPECT_EQ(trace->refused, 6000 - TraceTables::kMaxThreads + (600 - static_cast<int64_t>(TraceTables::kMaxDevices)));
}

TEST(TraceReaderTest, DescribesThreadsByTheirMetadata) {
  TraceText text;
  text.Op("a", 1, 2, 55);
  text.Add(
      R"x({"ph": "M", "name": "thread_name", "pid": 7, "tid": 55, "ts": 0, "args": {"name": "thread 55 (python)"}})x");
  text.Add(R"({"ph": "X", "cat": "cpu_op", "name": "b", "pid": "7", "tid": "55", "ts": 3, "dur": 1})");
  const auto trace = MustRead(text.text());
  ASSERT_EQ(trace->tables.threads().size(), 1u);  // a number and its text are one thread
  EXPECT_EQ(trace->tables.threads()[0].name, "thread 55 (python)");
  EXPECT_EQ(trace->tables.threads()[0].native_tid, 55);
}

// Where no thread can be started: one clear line. A stack that fits nowhere stands for the limit of processes.
TEST(TraceReaderTest, WithoutThreadsItSaysSo) {
  const TempFile file(Varied(20));
  pthread_attr_t before, none;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  pthread_attr_init(&none);
  pthread_attr_setstacksize(&none, size_t{1} << 47);
  ASSERT_EQ(pthread_setattr_default_np(&none), 0);
  const absl::Status status = ReadTrace(file.path(), {}).status();
  EXPECT_EQ(pthread_setattr_default_np(&before), 0);
  pthread_attr_destroy(&none);
  pthread_attr_destroy(&before);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(ReadTrace(file.path(), {}).ok());
}

// Of more marks than are kept the rest is not counted; whatever the counts say, there need not be a mark.
TEST(TraceReaderTest, AThreadWhoseMarksWereNotKeptHasNoSteps) {
  Trace trace(1 << 20);
  trace.threads.resize(3);
  trace.threads[1].steps = 1;
  trace.threads[2].steps = 5;
  trace.steps.push_back({10, 20, 4, 1});
  trace.first_ns = 10;
  trace.last_ns = 100;
  const StepPlan plan = PlanSteps(trace);
  EXPECT_EQ(plan.cuts, (std::vector<int64_t>{10, 100}));
  EXPECT_NE(plan.note, "");
}

TEST(TraceReaderTest, StopsWhenItIsTold) {
  const TempFile file(Varied(200));
  TraceReadOptions options;
  options.chunk_bytes = 1000;
  int asked = 0;
  options.progress = [&](double share) {
    EXPECT_GE(share, 0);
    EXPECT_LE(share, 1);
    return ++asked < 5;
  };
  EXPECT_EQ(ReadTrace(file.path(), options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(asked, 5);
}

// Whatever stands in a file: an answer, and quickly. `make fuzz` does the same for longer.
TEST(TraceReaderTest, SurvivesRandomDamage) {
  const std::string text = Varied(8);
  std::mt19937 random(11);
  for (int i = 0; i < 400; ++i) {
    std::string bad = text;
    for (int n = static_cast<int>(random() % 6); n >= 0; --n) {
      const size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = "{}[]\",:\\ 0e-.\n\xff"[random() % 15];
          break;
        case 1:
          bad.erase(at, random() % 200);
          break;
        case 2:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 300));
          break;
        default:
          bad[at] = static_cast<char>(random());
          break;
      }
      if (bad.empty()) bad = "{";
    }
    const TempFile file(bad);
    TraceReadOptions options;
    options.chunk_bytes = 50 + random() % 3000;
    options.threads = 2;
    auto trace = ReadTrace(file.path(), options);
    if (!trace.ok()) continue;
    RecordingFeed feed;
    ConvertStats stats;
    EXPECT_TRUE(Convert(trace->get(), PlanSteps(**trace), nullptr, &feed, nullptr, &stats).ok());
  }
}

}  // namespace
}  // namespace trainperf
