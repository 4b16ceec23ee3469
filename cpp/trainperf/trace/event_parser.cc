#include "trainperf/trace/event_parser.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace trainperf {
namespace {

constexpr int64_t kMaxNs = int64_t{1} << 61;
constexpr size_t kMaxCached = 65'536;  // names, before the cache starts afresh
constexpr size_t kMaxDepth = 1024;

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view Unquoted(std::string_view token) {
  return token.size() >= 2 && token.front() == '"' ? token.substr(1, token.size() - 2) : token;
}

bool ParseUnsigned(std::string_view token, uint64_t* value) {
  token = Unquoted(token);
  const auto result = std::from_chars(token.data(), token.data() + token.size(), *value);
  return result.ec == std::errc() && result.ptr == token.data() + token.size();
}

void AppendUtf8(uint32_t code, std::string* to) {
  if (code < 0x80) {
    to->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    to->push_back(static_cast<char>(0xc0 | (code >> 6)));
    to->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code >= 0xd800 && code < 0xe000) {
    to->push_back('?');  // half of a pair
  } else {
    to->push_back(static_cast<char>(0xe0 | (code >> 12)));
    to->push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    to->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

void Unescape(std::string_view text, std::string* to) {
  to->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      to->push_back(text[i]);
      continue;
    }
    const char c = text[++i];
    if (c == 'u' && i + 4 < text.size()) {
      uint32_t code = 0;
      const char* const from = text.data() + i + 1;
      if (std::from_chars(from, from + 4, code, 16).ptr == from + 4) {
        AppendUtf8(code, to);
        i += 4;
        continue;
      }
    }
    to->push_back(c == 'n' || c == 't' || c == 'r' || c == 'b' || c == 'f' ? ' ' : c);
  }
}

}  // namespace

void EventBatch::Clear() {
  host.clear();
  device.clear();
  steps.clear();
  threads.clear();
  events = bad_times = refused = python_functions = 0;
  first_ns = INT64_MAX;
  last_ns = INT64_MIN;
}

bool ParseMicros(std::string_view token, int64_t* ns) {
  const char* p = token.data();
  const char* const end = p + token.size();
  if (p == end || !IsDigit(*p)) return false;
  int64_t micros = 0;
  for (; p != end && IsDigit(*p); ++p) {
    if (micros > kMaxNs / 1000) return false;
    micros = micros * 10 + (*p - '0');
  }
  if (micros > kMaxNs / 1000) return false;
  int64_t nanos = 0;
  if (p != end && *p == '.') {
    int64_t unit = 100;
    const char* const fraction = ++p;
    for (; p != end && IsDigit(*p); ++p, unit /= 10) nanos += unit * (*p - '0');
    if (p - fraction > 3 && fraction[3] >= '5') ++nanos;
  }
  if (p != end && (*p == 'e' || *p == 'E')) {
    // Nobody writes stamps so; durations of a float that is nearly nothing come like this.
    const std::string copy(token);
    char* stop = nullptr;
    const double value = std::strtod(copy.c_str(), &stop) * 1000;
    if (*stop != '\0' || !(value >= 0 && value < static_cast<double>(kMaxNs))) return false;
    *ns = static_cast<int64_t>(std::llround(value));
    return true;
  }
  *ns = micros * 1000 + nanos;
  return p == end && *ns <= kMaxNs;
}

struct EventParser::Structure {
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

struct EventParser::Fields {
  char phase = 0;
  std::string_view category, name, pid, tid, ts, dur;  // as in the text, quotes included
  std::string_view correlation, device, stream, bytes, graph, label;
};

EventParser::EventParser(TraceTables* tables) : tables_(tables), structure_(std::make_unique<Structure>()) {
  static_assert(kPadding >= simdjson::SIMDJSON_PADDING);
}
EventParser::~EventParser() = default;

std::string_view EventParser::Token(size_t i) const {
  const char* const begin = text_ + at_[i];
  const char* end = text_ + at_[i + 1];  // a piece follows every value: , } or ]
  while (end > begin + 1 && IsSpace(end[-1])) --end;
  return {begin, static_cast<size_t>(end - begin)};
}

std::string_view EventParser::Text(std::string_view token) {
  const std::string_view text = Unquoted(token);
  if (text.find('\\') == std::string_view::npos) return text;
  Unescape(text, &unescaped_);
  return unescaped_;
}

// `i` is just behind an opening bracket; gives what follows its closing one.
size_t EventParser::SkipNested(size_t i) const {
  int64_t depth = 1;
  while (i < count_ && depth > 0) {
    const char c = text_[at_[i++]];
    // { and [ are 0x7b and 0x5b, } and ] two more.
    depth += (c & 0xdf) == 0x5b;
    depth -= (c & 0xdf) == 0x5d;
  }
  return depth == 0 ? i : count_ + 1;
}

bool EventParser::ParseArgs(size_t* index, Fields* fields) const {
  size_t i = *index;
  for (;;) {
    if (i >= count_) return false;
    const char* const key = text_ + at_[i];
    if (*key == '}') break;
    if (*key == ',') {
      ++i;
      continue;
    }
    if (*key != '"' || i + 3 >= count_ || text_[at_[i + 1]] != ':') return false;
    i += 2;
    const char first = text_[at_[i]];
    if (first == '{' || first == '[') {
      i = SkipNested(i + 1);
      continue;
    }
    if (first == '}' || first == ']' || first == ',' || first == ':') return false;
    switch (key[1]) {
      case 'c':
        if (std::memcmp(key + 1, "correlation\"", 12) == 0) fields->correlation = Token(i);
        break;
      case 'd':
        if (std::memcmp(key + 1, "device\"", 7) == 0) fields->device = Token(i);
        break;
      case 's':
        if (std::memcmp(key + 1, "stream\"", 7) == 0) fields->stream = Token(i);
        break;
      case 'b':
        if (std::memcmp(key + 1, "bytes\"", 6) == 0) fields->bytes = Token(i);
        break;
      case 'g':
        if (std::memcmp(key + 1, "graph node id\"", 14) == 0) fields->graph = Token(i);
        break;
      case 'n':
        if (std::memcmp(key + 1, "name\"", 5) == 0) fields->label = Token(i);
        break;
      default:
        break;
    }
    ++i;
  }
  *index = i + 1;
  return true;
}

// `*index` is just behind the event's opening brace.
bool EventParser::ParseEvent(size_t* index, EventBatch* batch) {
  Fields fields;
  size_t i = *index;
  for (;;) {
    if (i >= count_) return false;
    const char* const key = text_ + at_[i];
    if (*key == '}') break;
    if (*key == ',') {
      ++i;
      continue;
    }
    if (*key != '"' || i + 3 >= count_ || text_[at_[i + 1]] != ':') return false;
    i += 2;
    const char first = text_[at_[i]];
    if (first == '{') {
      ++i;
      if (std::memcmp(key + 1, "args\"", 5) == 0) {
        if (!ParseArgs(&i, &fields)) return false;
      } else {
        i = SkipNested(i);
      }
      continue;
    }
    if (first == '[') {
      i = SkipNested(i + 1);
      continue;
    }
    if (first == '}' || first == ']' || first == ',' || first == ':') return false;
    switch (key[1]) {
      case 'p':
        if (key[2] == 'h' && key[3] == '"') {
          const std::string_view phase = Token(i);
          fields.phase = phase.size() == 3 ? phase[1] : '?';
          // Arrows between events are a third of a trace, and begin with their phase.
          if (fields.phase == 's' || fields.phase == 'f' || fields.phase == 't') {
            *index = SkipNested(i + 1);
            batch->events += *index <= count_;
            return *index <= count_;
          }
        } else if (key[2] == 'i' && key[3] == 'd' && key[4] == '"') {
          fields.pid = Token(i);
        }
        break;
      case 'c':
        if (std::memcmp(key + 1, "cat\"", 4) == 0) fields.category = Token(i);
        break;
      case 'n':
        if (std::memcmp(key + 1, "name\"", 5) == 0) fields.name = Token(i);
        break;
      case 't':
        if (key[2] == 's' && key[3] == '"') {
          fields.ts = Token(i);
        } else if (key[2] == 'i' && key[3] == 'd' && key[4] == '"') {
          fields.tid = Token(i);
        }
        break;
      case 'd':
        if (std::memcmp(key + 1, "dur\"", 4) == 0) fields.dur = Token(i);
        break;
      default:
        break;
    }
    ++i;
  }
  *index = i + 1;
  ++batch->events;
  if (fields.phase == 'X') {
    Put(fields, batch);
  } else if (fields.phase == 'M') {
    PutMetadata(fields);
  }
  return true;
}

const EventParser::Known& EventParser::Look(Category category, std::string_view name) {
  auto& known = known_[category == Category::kRuntime ? 0 : category == Category::kPython ? 1 : 2];
  key_.assign(name);
  const auto found = known.find(key_);
  if (found != known.end()) return found->second;
  if (known.size() >= kMaxCached) known.clear();
  Known made{};
  made.step = -1;
  switch (category) {
    case Category::kRuntime:
      made.meaning = MeaningOfCall(name);
      break;
    case Category::kPython:
      made.meaning = MeaningOfPython(name);
      break;
    default:
      made.meaning = MeaningOfSpan(name);
      made.step = StepNumber(name);
      break;
  }
  made.id = tables_->InternHost(name);
  return known.emplace(key_, made).first->second;
}

uint16_t EventParser::Thread(const Fields& fields) {
  if (fields.tid == last_tid_ && fields.pid == last_pid_) return last_thread_;
  last_pid_.assign(fields.pid);
  last_tid_.assign(fields.tid);
  key_.assign(Unquoted(fields.pid)).append("/").append(Unquoted(fields.tid));
  const auto known = threads_.find(key_);
  if (known != threads_.end()) return last_thread_ = known->second;
  if (threads_.size() >= kMaxCached) threads_.clear();
  const std::string_view tid = Unquoted(fields.tid);
  int64_t native = 0;
  std::from_chars(tid.data(), tid.data() + tid.size(), native);
  last_thread_ = tables_->Thread(key_, native);
  threads_.emplace(key_, last_thread_);
  return last_thread_;
}

void EventParser::PutMetadata(const Fields& fields) {
  if (Unquoted(fields.name) != "thread_name" || fields.label.empty()) return;
  const std::string key = std::string(Unquoted(fields.pid)) + "/" + std::string(Unquoted(fields.tid));
  tables_->NameThread(key, Text(fields.label));
}

void EventParser::Put(const Fields& fields, EventBatch* batch) {
  const Category category = CategoryOf(Unquoted(fields.category));
  if (category == Category::kIgnored) return;
  int64_t start_ns = 0;
  int64_t lasted_ns = 0;
  if (!ParseMicros(fields.ts, &start_ns) || (!fields.dur.empty() && !ParseMicros(fields.dur, &lasted_ns)) ||
      start_ns + lasted_ns > kMaxNs) {
    ++batch->bad_times;
    return;
  }
  const int64_t end_ns = start_ns + lasted_ns;
  if (category == Category::kKernel || category == Category::kMemcpy || category == Category::kMemset) {
    PutDeviceOp(category, fields, start_ns, end_ns, batch);
    return;
  }
  const uint16_t thread = Thread(fields);
  if (thread == 0) {
    ++batch->refused;
    return;
  }
  const Known& known = Look(category, Text(fields.name));
  HostRecord record{start_ns, end_ns, 0, known.id, thread, known.meaning.kind, known.meaning.what};
  batch->first_ns = std::min(batch->first_ns, start_ns);
  batch->last_ns = std::max(batch->last_ns, end_ns);
  ThreadCounts& counts = batch->counts(thread);
  if (known.step >= 0) {
    ++counts.steps;
    batch->steps.push_back({start_ns, end_ns, known.step, thread});
    return;
  }
  switch (category) {
    case Category::kRuntime:
      ParseUnsigned(fields.correlation, &record.correlation);
      break;
    case Category::kPython:
      ++batch->python_functions;
      counts.python_backward |= record.what == static_cast<uint8_t>(TraceBracket::kBackward);
      break;
    case Category::kAnnotation:
      if (record.kind == RecordKind::kOp) record.kind = RecordKind::kAnnotation;  // of any other name
      break;
    default:
      break;
  }
  if (record.kind == RecordKind::kAnnotation) {
    counts.fetches += record.what == static_cast<uint8_t>(TraceBracket::kFetch);
    counts.optimizers += record.what == static_cast<uint8_t>(TraceBracket::kOptimizer);
  }
  counts.ops += record.kind == RecordKind::kOp;
  counts.backward_ops += record.kind == RecordKind::kBackwardOp;
  batch->host.push_back(record);
}

void EventParser::PutDeviceOp(Category category, const Fields& fields, int64_t start_ns, int64_t end_ns,
                              EventBatch* batch) {
  DeviceOp op{};
  op.start_ns = start_ns;
  op.end_ns = end_ns;
  op.bytes = -1;
  uint64_t number = 0;
  if (!ParseUnsigned(fields.device.empty() ? fields.pid : fields.device, &number) || number >= UINT32_MAX) number = 0;
  op.device = static_cast<uint32_t>(number);
  if (std::find(devices_.begin(), devices_.end(), op.device) == devices_.end()) {
    if (!tables_->Device(op.device)) {
      ++batch->refused;
      return;
    }
    devices_.push_back(op.device);
  }
  number = 0;
  ParseUnsigned(fields.stream.empty() ? fields.tid : fields.stream, &number);
  op.stream = static_cast<uint32_t>(number);
  if (ParseUnsigned(fields.correlation, &number)) op.correlation = number;
  if (ParseUnsigned(fields.bytes, &number) && number <= INT64_MAX) op.bytes = static_cast<int64_t>(number);
  if (ParseUnsigned(fields.graph, &number) && number != 0) op.flags |= kFromGraph;
  const std::string_view name = Text(fields.name);
  switch (category) {
    case Category::kMemcpy:
      op.kind = DeviceOpKind::kMemcpy;
      DescribeCopy(name, &op);
      break;
    case Category::kMemset:
      op.kind = DeviceOpKind::kMemset;
      break;
    default:
      op.kind = DeviceOpKind::kKernel;
      break;
  }
  key_.assign(name.substr(0, NameTable::kMaxLength));
  const auto known = kernels_.find(key_);
  if (known != kernels_.end()) {
    op.name = known->second;
  } else {
    if (kernels_.size() >= kMaxCached) kernels_.clear();
    op.name = tables_->InternKernel(key_);
    kernels_.emplace(key_, op.name);
  }
  batch->first_ns = std::min(batch->first_ns, start_ns);
  batch->last_ns = std::max(batch->last_ns, end_ns);
  batch->device.push_back(op);
}

size_t EventParser::Parse(const char* text, size_t size, EventBatch* batch) {
  text_ = text;
  count_ = 0;
  if (size >= UINT32_MAX || !structure_->Find(text, size)) return 0;
  at_ = structure_->parser->structural_indexes.get();
  count_ = structure_->parser->n_structural_indexes;
  size_t i = 0;
  while (i < count_) {
    const size_t at = at_[i];
    if (text_[at] == ',') {
      ++i;
      continue;
    }
    if (text_[at] != '{') return at;
    ++i;
    if (!ParseEvent(&i, batch) || i > count_) return at;
  }
  return size;
}

bool EventParser::ParseOne(std::string_view text, EventBatch* batch) {
  patient_.assign(text);
  for (char& c : patient_) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  const size_t size = patient_.size();
  patient_.append(kPadding, ' ');
  return Parse(patient_.data(), size, batch) == size;
}

}  // namespace trainperf
