#include "trainperf/trace/top_level.h"

namespace trainperf {
namespace {

constexpr size_t kMaxKey = 256;

bool IsBlank(char c) { return static_cast<unsigned char>(c) <= ' '; }

}  // namespace

// Takes text up to the end of the value that is open.
size_t TopLevel::PushValue(std::string_view text, size_t from) {
  size_t i = from;
  bool ended = false;
  for (; i < text.size() && !ended; ++i) {
    const char c = text[i];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        ended = depth_ == 0 && !scalar_;
      }
      continue;
    }
    switch (c) {
      case '"':
        in_string_ = true;
        break;
      case '{':
      case '[':
        ++depth_;
        break;
      case '}':
      case ']':
        if (depth_ == 0) {  // behind a number: it closes what is around it
          ended = true;
          --i;
          break;
        }
        ended = --depth_ == 0;
        break;
      case ',':
        if (depth_ == 0) {
          ended = true;
          --i;
        }
        break;
      default:
        break;
    }
  }
  if (keep_) {
    if (value_.size() + (i - from) <= limit_) {
      value_.append(text.substr(from, i - from));
    } else {
      keep_ = false;
      overlong_ += state_ == State::kEvent;
      value_.clear();
    }
  }
  if (ended) EndValue();
  return i;
}

void TopLevel::EndValue() {
  if (state_ == State::kEvent) {
    if (keep_ && !scalar_) on_event_(value_);
    state_ = State::kEvents;
  } else {
    if (keep_) on_value_(key_, value_);
    state_ = State::kObject;
  }
  value_.clear();
}

size_t TopLevel::Push(std::string_view text, bool stop_at_events) {
  size_t i = 0;
  while (i < text.size()) {
    const char c = text[i];
    switch (state_) {
      case State::kStart:
        if (c == '{') {
          state_ = State::kObject;
        } else if (c == '[') {
          state_ = State::kEvents;
          array_ = saw_events_ = true;
        } else if (!IsBlank(c) && c != '\xef' && c != '\xbb' && c != '\xbf') {  // the last three: a byte order mark
          state_ = State::kNoJson;
        }
        ++i;
        break;
      case State::kObject:
        if (c == '"') {
          state_ = State::kKey;
          key_.clear();
        } else if (c == '}') {
          state_ = State::kOver;
        }
        ++i;
        break;
      case State::kKey:
        if (escaped_) {
          escaped_ = false;
        } else if (c == '\\') {
          escaped_ = true;
        } else if (c == '"') {
          state_ = State::kColon;
        } else if (key_.size() < kMaxKey) {
          key_.push_back(c);
        }
        ++i;
        break;
      case State::kColon:
        if (c == ':') state_ = State::kBeforeValue;
        ++i;
        break;
      case State::kBeforeValue:
        if (IsBlank(c)) {
          ++i;
          break;
        }
        if (c == '[' && key_ == "traceEvents") {
          state_ = State::kEvents;
          saw_events_ = true;
          ++i;
          break;
        }
        state_ = State::kValue;
        scalar_ = c != '{' && c != '[' && c != '"';
        keep_ = true;
        limit_ = kMaxValue;
        depth_ = 0;
        in_string_ = escaped_ = false;
        break;
      case State::kEvents:
        if (stop_at_events) return i;
        if (c == ']') {
          state_ = array_ ? State::kOver : State::kObject;
          ++i;
        } else if (IsBlank(c) || c == ',' || c == '}') {
          ++i;  // a stray brace closes nothing
        } else {
          state_ = State::kEvent;
          scalar_ = c != '{' && c != '[' && c != '"';
          keep_ = c == '{';
          limit_ = kMaxEvent;
          depth_ = 0;
          in_string_ = escaped_ = false;
        }
        break;
      case State::kValue:
      case State::kEvent:
        i = PushValue(text, i);
        break;
      case State::kOver:
      case State::kNoJson:
        return text.size();
    }
  }
  return text.size();
}

}  // namespace trainperf
