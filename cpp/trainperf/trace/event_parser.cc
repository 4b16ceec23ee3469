#include "trainperf/trace/event_parser.h"

#include <algorithm>
#include <charconv>

#include "trainperf/trace/json_value.h"

namespace trainperf {
namespace {

constexpr size_t kMaxThreadsCached = 65'536;

bool IsDevice(Category category) {
  return category == Category::kKernel || category == Category::kMemcpy || category == Category::kMemset;
}

uint64_t NumberOr(std::string_view token, uint64_t otherwise) {
  uint64_t number = 0;
  return ParseUnsigned(token, &number) ? number : otherwise;
}

// Events of the device have these in their args; old traces only in pid and tid.
std::string_view FirstOf(std::string_view token, std::string_view otherwise) {
  return token.empty() ? otherwise : token;
}

std::string KeyOf(const EventFields& fields) {
  return std::string(Unquoted(fields.pid)).append("/").append(Unquoted(fields.tid));
}

void Count(const HostRecord& record, ThreadCounts* counts) {
  switch (record.kind) {
    case RecordKind::kAnnotation:
      counts->fetches += record.what == static_cast<uint8_t>(TraceBracket::kFetch);
      counts->optimizers += record.what == static_cast<uint8_t>(TraceBracket::kOptimizer);
      break;
    case RecordKind::kPython:
      counts->python_backward |= record.what == static_cast<uint8_t>(TraceBracket::kBackward);
      break;
    case RecordKind::kOp:
      ++counts->ops;
      break;
    case RecordKind::kBackwardOp:
      ++counts->backward_ops;
      break;
    default:
      break;
  }
}

}  // namespace

size_t EventParser::Parse(const char* text, size_t size, EventBatch* batch) {
  scanner_.Begin(text, size);
  EventFields fields;
  while (scanner_.Next(&fields)) {
    ++batch->events;
    if (fields.phase == 'X') {
      Put(fields, batch);
    } else if (fields.phase == 'M') {
      NameThread(fields);
    }
  }
  return scanner_.used();
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

void EventParser::Put(const EventFields& fields, EventBatch* batch) {
  const Category category = CategoryOf(Unquoted(fields.category));
  if (category == Category::kIgnored) return;
  int64_t start_ns = 0;
  int64_t lasted_ns = 0;
  if (!ParseMicros(fields.ts, &start_ns) || (!fields.dur.empty() && !ParseMicros(fields.dur, &lasted_ns)) ||
      start_ns + lasted_ns > kMaxTraceNs) {
    ++batch->bad_times;
  } else if (IsDevice(category)) {
    PutDeviceOp(category, fields, start_ns, start_ns + lasted_ns, batch);
  } else {
    PutHostEvent(category, fields, start_ns, start_ns + lasted_ns, batch);
  }
}

void EventParser::PutHostEvent(Category category, const EventFields& fields, int64_t start_ns, int64_t end_ns,
                               EventBatch* batch) {
  const uint16_t thread = Thread(fields);
  if (thread == 0) {
    ++batch->refused;
    return;
  }
  const Known& known = Look(category, Text(fields.name));
  batch->Extend(start_ns, end_ns);
  ThreadCounts& counts = batch->counts(thread);
  if (known.step >= 0) {
    ++counts.steps;
    batch->steps.push_back({start_ns, end_ns, known.step, thread});
    return;
  }
  HostRecord record{start_ns, end_ns, 0, known.id, thread, known.meaning.kind, known.meaning.what};
  if (category == Category::kRuntime) record.correlation = NumberOr(fields.correlation, 0);
  if (category == Category::kAnnotation && record.kind == RecordKind::kOp) record.kind = RecordKind::kAnnotation;
  batch->python_functions += category == Category::kPython;
  Count(record, &counts);
  batch->host.push_back(record);
}

void EventParser::PutDeviceOp(Category category, const EventFields& fields, int64_t start_ns, int64_t end_ns,
                              EventBatch* batch) {
  DeviceOp op{};
  op.start_ns = start_ns;
  op.end_ns = end_ns;
  const uint64_t device = NumberOr(FirstOf(fields.device, fields.pid), 0);
  op.device = device < UINT32_MAX ? static_cast<uint32_t>(device) : 0;
  if (!KnowsDevice(op.device)) {
    ++batch->refused;
    return;
  }
  op.stream = static_cast<uint32_t>(NumberOr(FirstOf(fields.stream, fields.tid), 0));
  op.correlation = NumberOr(fields.correlation, 0);
  const uint64_t bytes = NumberOr(fields.bytes, UINT64_MAX);
  op.bytes = bytes <= INT64_MAX ? static_cast<int64_t>(bytes) : -1;
  if (NumberOr(fields.graph, 0) != 0) op.flags |= kFromGraph;
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
  op.name = Look(category, name.substr(0, NameTable::kMaxLength)).id;
  batch->Extend(start_ns, end_ns);
  batch->device.push_back(op);
}

const EventParser::Known& EventParser::Look(Category category, std::string_view name) {
  const uint8_t kind = static_cast<uint8_t>(category);
  if (const Known* const known = names_.Find(kind, name)) return *known;
  Known made;
  switch (category) {
    case Category::kRuntime:
      made.meaning = MeaningOfCall(name);
      break;
    case Category::kPython:
      made.meaning = MeaningOfPython(name);
      break;
    case Category::kOp:
    case Category::kAnnotation:
      made.meaning = MeaningOfSpan(name);
      made.step = StepNumber(name);
      break;
    default:
      break;
  }
  made.id = IsDevice(category) ? tables_->InternKernel(name) : tables_->InternHost(name);
  return *names_.Put(kind, name, made);
}

// Of two events that follow on one another most are of one thread.
uint16_t EventParser::Thread(const EventFields& fields) {
  if (fields.tid == last_tid_ && fields.pid == last_pid_) return last_thread_;
  last_pid_.assign(fields.pid);
  last_tid_.assign(fields.tid);
  std::string key = KeyOf(fields);
  const auto known = threads_.find(key);
  if (known != threads_.end()) return last_thread_ = known->second;
  if (threads_.size() >= kMaxThreadsCached) threads_.clear();
  const std::string_view tid = Unquoted(fields.tid);
  int64_t native = 0;
  std::from_chars(tid.data(), tid.data() + tid.size(), native);
  last_thread_ = tables_->Thread(key, native);
  threads_.emplace(std::move(key), last_thread_);
  return last_thread_;
}

void EventParser::NameThread(const EventFields& fields) {
  if (Unquoted(fields.name) != "thread_name" || fields.label.empty()) return;
  tables_->NameThread(KeyOf(fields), Text(fields.label));
}

bool EventParser::KnowsDevice(uint32_t device) {
  if (std::find(devices_.begin(), devices_.end(), device) != devices_.end()) return true;
  if (!tables_->Device(device)) return false;
  devices_.push_back(device);
  return true;
}

std::string_view EventParser::Text(std::string_view token) {
  const std::string_view text = Unquoted(token);
  if (text.find('\\') == std::string_view::npos) return text;
  Unescape(text, &unescaped_);
  return unescaped_;
}

}  // namespace trainperf
