// What the tests of the run file share: reading a file back, and a random run.

#ifndef TRAINPERF_RUN_RUN_TEST_UTIL_H_
#define TRAINPERF_RUN_RUN_TEST_UTIL_H_

#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "trainperf/run/run_writer.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

// A folder that is removed, with the files in it, at the end of the test.
class TestFolder {
 public:
  TestFolder() {
    char name[] = "/tmp/trainperf_test_XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::system_error(errno, std::generic_category(), name);
    path_ = name;
  }
  ~TestFolder() { (void)!std::system(("rm -rf '" + path_ + "'").c_str()); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::unique_ptr<RunWriter> Create(const std::string& path, const RunWriterOptions& options = {}) {
  absl::StatusOr<std::unique_ptr<RunWriter>> writer = RunWriter::Create(path, options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  return writer.ok() ? *std::move(writer) : nullptr;
}

// Rows as text, columns joined by '|'; one row "error: ..." when it fails.
inline std::vector<std::string> Query(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  std::vector<std::string> rows;
  const auto add_row = [](void* out, int columns, char** values, char**) {
    std::string row;
    for (int i = 0; i < columns; ++i) row += (i > 0 ? "|" : "") + std::string(values[i] ? values[i] : "NULL");
    static_cast<std::vector<std::string>*>(out)->push_back(row);
    return 0;
  };
  if (sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE, nullptr) != SQLITE_OK ||
      sqlite3_exec(db, sql.c_str(), add_row, &rows, nullptr) != SQLITE_OK) {
    rows.push_back("error: " + std::string(sqlite3_errmsg(db)));
  }
  sqlite3_close(db);
  return rows;
}

inline std::string Scalar(const std::string& path, const std::string& sql) {
  const std::vector<std::string> rows = Query(path, sql);
  return rows.empty() ? "no row" : rows[0];
}

inline int64_t Number(const std::string& path, const std::string& sql) {
  const std::string text = Scalar(path, sql);
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  return *end == '\0' && !text.empty() ? value : INT64_MIN;
}

// All tables, row by row.
inline std::vector<std::string> Dump(const std::string& path) {
  std::vector<std::string> all;
  for (const std::string& table : Query(path, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")) {
    for (const std::string& row : Query(path, "SELECT * FROM " + table + " ORDER BY 1, 2, 3"))
      all.push_back(table + ": " + row);
  }
  return all;
}

// Steps, and what hangs below them, of a random but repeatable run.
class RandomRun {
 public:
  explicit RandomRun(uint32_t seed) : random_(seed) {}

  StepRecord Step() {
    StepRecord step{};
    step.index = index_++;
    step.start_ns = now_ns_;
    const int cells = 2 + static_cast<int>(random_() % 10);
    for (int i = 0; i < cells; ++i) {
      const auto ns = static_cast<int64_t>(random_() % 3'000'000);
      const uint32_t phase = random_() % kPhaseCount;
      const uint32_t mechanism = random_() % kMechanismCount;
      step.ns[phase][mechanism] += ns;
      step.segments.push_back(
          {now_ns_, now_ns_ + ns, static_cast<Phase>(phase), static_cast<Mechanism>(mechanism), 1, 0});
      now_ns_ += ns;
    }
    step.end_ns = now_ns_;
    step.flags = random_() % 5 == 0 ? 1u << (random_() % 4) : 0;
    if (step.index == 0 || random_() % 1000 == 0) step.flags |= kWarmUp;
    step.fetches = 1;
    step.backwards = static_cast<int32_t>(random_() % 3);
    step.optimizer_steps = 1;
    step.compile_ns = step.flags & kWarmUp ? 5 : 0;
    return step;
  }

  Detail OneDetail(int stacks) {
    Detail detail{};
    detail.kind = static_cast<DetailKind>(random_() % 4);
    detail.phase = static_cast<Phase>(random_() % kPhaseCount);
    detail.state = static_cast<SampleState>(random_() % kSampleStateCount);
    detail.thread = random_() % 4;
    detail.stack = random_() % static_cast<uint32_t>(stacks);
    detail.code = static_cast<int32_t>(random_() % 3);
    detail.step = random_() % 20 == 0 ? -1 : index_;
    detail.ns = static_cast<int64_t>(random_() % 5'000'000);
    detail.count = 1;
    return detail;
  }

  Span OneSpan() {
    Span span{};
    span.kind = static_cast<SpanKind>(random_() % kSpanKindCount);
    span.step = index_;
    span.start_ns = now_ns_;
    span.end_ns = now_ns_ + static_cast<int64_t>(random_() % 1'000'000'000);
    span.value = 7;
    span.thread = 1;
    return span;
  }

  FetchRecord Fetch() {
    FetchRecord fetch{};
    fetch.loader = 1 + random_() % 2;
    fetch.step = index_;
    fetch.start_ns = now_ns_;
    fetch.end_ns = now_ns_ + static_cast<int64_t>(random_() % 1'000'000);
    fetch.cpu_ns = 10;
    fetch.ready = static_cast<int32_t>(random_() % 5) - 1;
    fetch.first = random_() % 10 == 0;
    fetch.exhausted = random_() % 20 == 0;
    fetch.validation = random_() % 20 == 0;
    fetch.on_step_thread = random_() % 10 != 0;
    return fetch;
  }

  // One step and what comes with it.
  void Feed(RunWriter& writer) {
    for (uint32_t i = random_() % 6; i > 0; --i) writer.OnDetail(OneDetail(200));
    writer.OnFetch(Fetch());
    if (random_() % 4 == 0) writer.OnSpan(OneSpan());
    writer.OnStep(Step());
    if (index_ % 100 == 0) {
      writer.AddHostReading({now_ns_, index_, index_, index_, -1, 1 << 20, 8, 2});
      writer.AddWorkerReading(
          {1, 100 + static_cast<int32_t>(index_ % 7), now_ns_, index_ * 1000, "RSD"[index_ % 3], true});
      writer.SetThreadGilWait(1 + static_cast<uint32_t>(index_ % 5), index_, index_);
      writer.AddNote(index_ % 200 == 0 ? "even" : "odd");
      writer.SetMeta("last", std::to_string(index_));
      writer.SetOverhead("collector", index_);
    }
  }

  int64_t now_ns() const { return now_ns_; }
  int64_t steps() const { return index_; }

 private:
  std::mt19937 random_;
  int64_t index_ = 0;
  int64_t now_ns_ = 1'000'000'000;
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_RUN_TEST_UTIL_H_
