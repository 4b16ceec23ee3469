// Walks over the text of trace events, {...}, {...}, and picks out the few values that anyone looks at. simdjson finds
// where the text's pieces begin, at gigabytes a second; nothing is copied.
//
//   EventScanner scanner;
//   scanner.Begin(text, size);            // kPadding readable bytes must follow `size`
//   EventFields fields;
//   while (scanner.Next(&fields)) Use(fields);
//   if (scanner.used() < size) ...        // text[used()] begins no whole event
//
// Not thread-safe.

#ifndef TRAINPERF_TRACE_EVENT_SCANNER_H_
#define TRAINPERF_TRACE_EVENT_SCANNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace trainperf {

// Values as they stand in the text, quotes included; empty where the event has none. Of two the last one counts.
struct EventFields {
  char phase = 0;
  std::string_view category, name, pid, tid, ts, dur;
  std::string_view correlation, device, stream, bytes, graph, label;  // of its args
};

class EventScanner {
 public:
  static constexpr size_t kPadding = 64;

  EventScanner();
  ~EventScanner();

  void Begin(const char* text, size_t size);
  // False at the end of the text, or where it goes wrong. Of an arrow between events only the phase is told.
  bool Next(EventFields* fields);
  // How much of the text is whole events, so far.
  size_t used() const { return used_; }

 private:
  struct Index;  // simdjson's

  std::unique_ptr<Index> index_;
  const char* text_ = nullptr;
  size_t size_ = 0;
  const uint32_t* at_ = nullptr;  // where each piece of the text begins
  size_t count_ = 0;
  size_t next_ = 0;
  size_t used_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_EVENT_SCANNER_H_
