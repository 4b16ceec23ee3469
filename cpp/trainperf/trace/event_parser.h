// Text of trace events, {...}, {...}, to records. simdjson finds where the text's pieces begin, at gigabytes a second;
// of what lies there only the few fields that are needed are looked at.
//
//   EventParser parser(&tables);
//   EventBatch batch;
//   size_t used = parser.Parse(text, size, &batch);   // kPadding readable bytes must follow `size`
//   if (used < size) ...                              // text[used] begins no whole event
//
// Not thread-safe: one for each thread, over the same tables.

#ifndef TRAINPERF_TRACE_EVENT_PARSER_H_
#define TRAINPERF_TRACE_EVENT_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/trace/classify.h"
#include "trainperf/trace/trace_record.h"
#include "trainperf/trace/trace_tables.h"

namespace trainperf {

struct ThreadCounts {
  int64_t steps = 0;
  int64_t fetches = 0;
  int64_t optimizers = 0;
  int64_t backward_ops = 0;
  int64_t ops = 0;
  bool python_backward = false;  // python_function events tell when backward runs
};

// What was read from a stretch of text.
struct EventBatch {
  void Clear();
  ThreadCounts& counts(uint16_t thread) {
    if (threads.size() <= thread) threads.resize(thread + size_t{1});
    return threads[thread];
  }

  std::vector<HostRecord> host;
  std::vector<DeviceOp> device;
  std::vector<StepMark> steps;
  std::vector<ThreadCounts> threads;
  int64_t events = 0;
  int64_t bad_times = 0;  // events without a usable time: NaN, negative, beyond 2^61 ns
  int64_t refused = 0;    // on more threads or devices than we tell apart
  int64_t python_functions = 0;
  int64_t first_ns = INT64_MAX;
  int64_t last_ns = INT64_MIN;
};

// Microseconds in decimal to nanoseconds, by their digits: a double would lose the last ones. False when it is no
// number, negative or beyond 2^61 ns.
bool ParseMicros(std::string_view token, int64_t* ns);

class EventParser {
 public:
  static constexpr size_t kPadding = 64;

  explicit EventParser(TraceTables* tables);
  ~EventParser();

  // How much of the text was whole events; adds them to `batch`.
  size_t Parse(const char* text, size_t size, EventBatch* batch);
  // One event that may hold anything: bytes that JSON or UTF-8 forbid are replaced. False: it is beyond repair.
  bool ParseOne(std::string_view text, EventBatch* batch);

 private:
  struct Structure;  // simdjson's
  struct Fields;
  struct Known {  // what a name means
    uint32_t id;
    Meaning meaning;
    int64_t step;  // ProfilerStep#N
  };

  size_t SkipNested(size_t i) const;
  bool ParseArgs(size_t* i, Fields* fields) const;
  bool ParseEvent(size_t* i, EventBatch* batch);
  void Put(const Fields& fields, EventBatch* batch);
  void PutDeviceOp(Category category, const Fields& fields, int64_t start_ns, int64_t end_ns, EventBatch* batch);
  void PutMetadata(const Fields& fields);
  const Known& Look(Category category, std::string_view name);
  uint16_t Thread(const Fields& fields);
  std::string_view Token(size_t i) const;
  std::string_view Text(std::string_view token);

  TraceTables* const tables_;
  std::unique_ptr<Structure> structure_;
  const char* text_ = nullptr;
  const uint32_t* at_ = nullptr;  // where each piece begins
  size_t count_ = 0;

  absl::flat_hash_map<std::string, Known> known_[4];  // by category
  absl::flat_hash_map<std::string, uint32_t> kernels_;
  absl::flat_hash_map<std::string, uint16_t> threads_;
  std::string last_pid_, last_tid_;
  uint16_t last_thread_ = 0;
  std::vector<uint32_t> devices_;
  std::string unescaped_;
  std::string key_;
  std::string patient_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_EVENT_PARSER_H_
