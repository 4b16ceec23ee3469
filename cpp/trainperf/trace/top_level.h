// The outside of a trace: what stands around its events, and, a byte at a time, the events themselves wherever their
// text is not as it should be. Fed with text in pieces of any size.
//
//   TopLevel top([&](std::string_view event) { ... }, [&](std::string_view key, std::string_view value) { ... });
//   size_t used = top.Push(text, /*stop_at_events=*/true);   // used < text.size(): the rest begins with events
//   ...
//   top.at_events()   // between two events: whoever can read them faster may go on
//
// Not thread-safe.

#ifndef TRAINPERF_TRACE_TOP_LEVEL_H_
#define TRAINPERF_TRACE_TOP_LEVEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace trainperf {

class TopLevel {
 public:
  static constexpr size_t kMaxValue = 4 << 20;  // of what stands around the events
  static constexpr size_t kMaxEvent = 64 << 20;

  using OnEvent = std::function<void(std::string_view)>;
  using OnValue = std::function<void(std::string_view key, std::string_view value)>;
  TopLevel(OnEvent on_event, OnValue on_value) : on_event_(std::move(on_event)), on_value_(std::move(on_value)) {}

  // How much of it was used: less than all only with `stop_at_events`.
  size_t Push(std::string_view text, bool stop_at_events);

  bool at_events() const { return state_ == State::kEvents; }
  bool saw_events() const { return saw_events_; }
  bool complete() const { return state_ == State::kOver; }  // its end was seen
  bool impossible() const { return state_ == State::kNoJson; }
  int64_t overlong() const { return overlong_; }  // events beyond kMaxEvent

 private:
  enum class State { kStart, kObject, kKey, kColon, kBeforeValue, kValue, kEvents, kEvent, kOver, kNoJson };

  size_t PushValue(std::string_view text, size_t from);
  void EndValue();

  const OnEvent on_event_;
  const OnValue on_value_;
  State state_ = State::kStart;
  bool array_ = false;  // the whole file is an array of events
  bool saw_events_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
  bool scalar_ = false;
  bool keep_ = false;
  int64_t depth_ = 0;
  int64_t overlong_ = 0;
  size_t limit_ = 0;
  std::string key_;
  std::string value_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_TOP_LEVEL_H_
