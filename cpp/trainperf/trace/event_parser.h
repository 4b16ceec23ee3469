// Text of trace events, {...}, {...}, to records.
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
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/trace/classify.h"
#include "trainperf/trace/event_batch.h"
#include "trainperf/trace/event_scanner.h"
#include "trainperf/trace/name_cache.h"
#include "trainperf/trace/trace_tables.h"

namespace trainperf {

class EventParser {
 public:
  static constexpr size_t kPadding = EventScanner::kPadding;

  explicit EventParser(TraceTables* tables) : tables_(tables) {}

  // How much of the text was whole events; adds them to `batch`.
  size_t Parse(const char* text, size_t size, EventBatch* batch);
  // One event that may hold anything: bytes that JSON or UTF-8 forbid are replaced. False: it is beyond repair.
  bool ParseOne(std::string_view text, EventBatch* batch);

 private:
  struct Known {  // what a name means
    uint32_t id = 0;
    Meaning meaning{};
    int64_t step = -1;  // ProfilerStep#N
  };

  void Put(const EventFields& fields, EventBatch* batch);
  void PutHostEvent(Category category, const EventFields& fields, int64_t start_ns, int64_t end_ns, EventBatch* batch);
  void PutDeviceOp(Category category, const EventFields& fields, int64_t start_ns, int64_t end_ns, EventBatch* batch);
  void NameThread(const EventFields& fields);

  const Known& Look(Category category, std::string_view name);
  uint16_t Thread(const EventFields& fields);
  bool KnowsDevice(uint32_t device);
  std::string_view Text(std::string_view token);

  TraceTables* const tables_;
  EventScanner scanner_;
  NameCache<Known> names_;
  absl::flat_hash_map<std::string, uint16_t> threads_;
  std::string last_pid_, last_tid_;
  uint16_t last_thread_ = 0;
  std::vector<uint32_t> devices_;
  std::string unescaped_;
  std::string patient_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_EVENT_PARSER_H_
