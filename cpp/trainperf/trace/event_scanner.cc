#include "trainperf/trace/event_scanner.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace trainperf {
namespace {

constexpr size_t kMaxDepth = 1024;

// A third of a trace's events; they begin with their phase, so that the rest of them need not be looked at.
bool IsArrow(char phase) { return phase == 's' || phase == 'f' || phase == 't'; }

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// `text` stands where a key begins, so that there is room for any key behind it.
template <size_t kSize>
bool IsKey(const char* text, const char (&key)[kSize]) {
  return std::memcmp(text, key, kSize - 1) == 0;
}

constexpr size_t kBroken = SIZE_MAX;

// Where each piece of a text begins: a bracket, a comma, a colon, a value. A copy of its own for each call of Next(),
// as the compiler must think that writing a field may change a member.
struct Pieces {
  const char* text;
  const uint32_t* at;
  size_t count;

  const char* At(size_t i) const { return text + at[i]; }
};

std::string_view Token(const Pieces& p, size_t i) {
  const char* const begin = p.At(i);
  const char* end = p.At(i + 1);  // a piece follows every value: , } or ]
  while (end > begin + 1 && IsSpace(end[-1])) --end;
  return {begin, static_cast<size_t>(end - begin)};
}

bool IsNested(const Pieces& p, size_t i) { return *p.At(i) == '{' || *p.At(i) == '['; }

// This and what follows is given the place behind an opening bracket, and gives the one behind its closing one.
size_t SkipNested(const Pieces& p, size_t i) {
  int64_t depth = 1;
  while (i < p.count && depth > 0) {
    const char c = *p.At(i++);
    // { and [ are 0x7b and 0x5b, } and ] two more.
    depth += (c & 0xdf) == 0x5b;
    depth -= (c & 0xdf) == 0x5d;
  }
  return depth == 0 ? i : kBroken;
}

// Calls on_field(key, i) for each field of an object: `key` is behind the quote, `i` is where its value begins. It
// gives where to go on.
template <typename Field>
size_t ForEachField(const Pieces& p, size_t i, Field&& on_field) {
  while (i < p.count) {
    const char* const key = p.At(i);
    if (*key == '}') return i + 1;
    if (*key == ',') {
      ++i;
      continue;
    }
    if (*key != '"' || i + 3 >= p.count || *p.At(i + 1) != ':') return kBroken;
    i += 2;
    const char first = *p.At(i);
    if (first == '}' || first == ']' || first == ',' || first == ':') return kBroken;
    i = on_field(key + 1, i);
  }
  return kBroken;
}

// A key with its last quote, and where its value goes.
struct Wanted {
  std::string_view key;
  std::string_view EventFields::*to;
};
constexpr Wanted kOfEvent[] = {{"cat\"", &EventFields::category}, {"name\"", &EventFields::name},
                               {"pid\"", &EventFields::pid},      {"tid\"", &EventFields::tid},
                               {"ts\"", &EventFields::ts},        {"dur\"", &EventFields::dur}};
constexpr Wanted kOfArgs[] = {{"correlation\"", &EventFields::correlation}, {"device\"", &EventFields::device},
                              {"stream\"", &EventFields::stream},           {"bytes\"", &EventFields::bytes},
                              {"graph node id\"", &EventFields::graph},     {"name\"", &EventFields::label}};

// A loop that the compiler does not unroll compares keys of unknown size, which costs a sixth of the reading.
template <const auto& kAll, size_t... kEach>
void Take(const Pieces& p, const char* key, size_t value, EventFields* fields, std::index_sequence<kEach...>) {
  const auto take = [&](const Wanted& wanted) {
    if (*key == wanted.key.front() && std::memcmp(key, wanted.key.data(), wanted.key.size()) == 0) {
      fields->*wanted.to = Token(p, value);
    }
  };
  (take(kAll[kEach]), ...);
}

template <const auto& kAll>
void Take(const Pieces& p, const char* key, size_t value, EventFields* fields) {
  Take<kAll>(p, key, value, fields, std::make_index_sequence<std::size(kAll)>());
}

size_t ReadArgs(const Pieces& p, size_t i, EventFields* fields) {
  return ForEachField(p, i, [&](const char* key, size_t value) {
    if (IsNested(p, value)) return SkipNested(p, value + 1);
    Take<kOfArgs>(p, key, value, fields);
    return value + 1;
  });
}

size_t ReadEvent(const Pieces& p, size_t i, EventFields* fields) {
  return ForEachField(p, i, [&](const char* key, size_t value) {
    if (IsNested(p, value)) {
      const bool args = *p.At(value) == '{' && IsKey(key, "args\"");
      return args ? ReadArgs(p, value + 1, fields) : SkipNested(p, value + 1);
    }
    if (!IsKey(key, "ph\"")) {
      Take<kOfEvent>(p, key, value, fields);
      return value + 1;
    }
    const std::string_view phase = Token(p, value);
    fields->phase = phase.size() == 3 ? phase[1] : '?';
    if (!IsArrow(fields->phase)) return value + 1;
    const size_t after = SkipNested(p, value + 1);
    return after == kBroken ? kBroken : after - 1;
  });
}

}  // namespace

struct EventScanner::Index {
  std::unique_ptr<simdjson::internal::dom_parser_implementation> parser;
  size_t capacity = 0;

  bool Find(const char* text, size_t size) {
    if (size > capacity || parser == nullptr) {
      const size_t wanted = std::max<size_t>(size, 4096);
      parser.reset();
      capacity = 0;
      if (simdjson::get_active_implementation()->create_dom_parser_implementation(wanted, kMaxDepth, parser) !=
          simdjson::SUCCESS) {
        return false;
      }
      capacity = wanted;
    }
    return parser->stage1(reinterpret_cast<const uint8_t*>(text), size, simdjson::stage1_mode::regular) ==
           simdjson::SUCCESS;
  }
};

EventScanner::EventScanner() : index_(std::make_unique<Index>()) {
  static_assert(kPadding >= simdjson::SIMDJSON_PADDING);
}
EventScanner::~EventScanner() = default;

void EventScanner::Begin(const char* text, size_t size) {
  text_ = text;
  size_ = size;
  count_ = next_ = used_ = 0;
  if (size >= UINT32_MAX || !index_->Find(text, size)) return;
  at_ = index_->parser->structural_indexes.get();
  count_ = index_->parser->n_structural_indexes;
}

bool EventScanner::Next(EventFields* fields) {
  const Pieces pieces = {text_, at_, count_};
  while (next_ < count_ && *pieces.At(next_) == ',') ++next_;
  if (next_ >= count_) {
    if (count_ > 0) used_ = size_;
    return false;
  }
  used_ = at_[next_];
  if (*pieces.At(next_) != '{') return false;
  *fields = EventFields();
  const size_t after = ReadEvent(pieces, next_ + 1, fields);
  if (after == kBroken) return false;
  next_ = after;
  return true;
}

}  // namespace trainperf
