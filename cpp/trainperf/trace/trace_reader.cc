#include "trainperf/trace/trace_reader.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "trainperf/base/status_macros.h"
#include "trainperf/trace/byte_source.h"
#include "trainperf/trace/event_parser.h"
#include "trainperf/trace/parser_pool.h"
#include "trainperf/trace/top_level.h"

namespace trainperf {
namespace {

constexpr size_t kMaxChunk = 16 << 20;  // an event that is longer is read a byte at a time
constexpr int kMaxThreads = 4;
// In flight: one that is parsed and one that waits, for each thread; more of them do not fit into the caches.
constexpr size_t kChunksPerThread = 2;

// Where text of events may be cut: behind a } that a comma and the beginning of another event follow. It may be wrong
// (the same can stand inside an event): what comes out of the cut is checked before it is used. 0: nowhere.
size_t LastBoundary(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  for (size_t open = text.rfind('{'); open != std::string_view::npos && open > 1; open = text.rfind('{', open - 1)) {
    size_t key = open + 1;
    while (key < text.size() && space(text[key])) ++key;
    if (key + 2 >= text.size() || text[key] != '"' || std::strchr("pncatdis", text[key + 1]) == nullptr) continue;
    size_t before = open;
    while (before > 0 && space(text[before - 1])) --before;
    if (before == 0 || text[before - 1] != ',') continue;
    --before;
    while (before > 0 && space(text[before - 1])) --before;
    if (before > 0 && text[before - 1] == '}') return before;
  }
  return 0;
}

class Reader {
 public:
  Reader(ByteSource* source, const TraceReadOptions& options)
      : source_(source),
        options_(options),
        trace_(std::make_unique<Trace>(options.memory_bytes)),
        patient_(&trace_->tables),
        top_([this](std::string_view event) { OnEvent(event); },
             [this](std::string_view key, std::string_view value) { OnValue(key, value); }) {}

  absl::StatusOr<std::unique_ptr<Trace>> Read() {
    int threads = options_.threads;
    if (threads <= 0) {
      const int machine = static_cast<int>(std::thread::hardware_concurrency());
      threads = std::clamp(machine, 1, kMaxThreads);
    }
    {
      ParserPool pool(&trace_->tables, threads);
      if (pool.threads() == 0) {
        return absl::ResourceExhaustedError(
            "no thread could be started to read the trace: raise the limit of processes (ulimit -u) or of memory");
      }
      TRAINPERF_RETURN_IF_ERROR(ReadAll(&pool, pool.threads() * kChunksPerThread));
    }
    TRAINPERF_RETURN_IF_ERROR(Flush());
    OrderThreads();
    TRAINPERF_RETURN_IF_ERROR(Judge());
    return std::move(trace_);
  }

 private:
  absl::Status ReadAll(ParserPool* pool, size_t in_flight) {
    bool end = false;
    bool whole = false;  // carry_ is a chunk's text, whatever a boundary says
    while (!end) {
      std::unique_ptr<Chunk> chunk = NewChunk();
      chunk->size = carry_.size();
      chunk->text.resize(std::max(chunk->text.size(), carry_.size() + options_.chunk_bytes + EventParser::kPadding));
      std::memcpy(chunk->text.data(), carry_.data(), carry_.size());
      carry_.clear();
      const size_t got = source_->Read(chunk->text.data() + chunk->size, options_.chunk_bytes);
      end = got < options_.chunk_bytes;
      chunk->size += got;
      if (!top_.at_events() && pool->pending() == 0) {
        // Around the events: here it is read at once, as it decides how to go on.
        const std::string_view text(chunk->text.data(), chunk->size);
        const size_t used = top_.Push(text, true);
        if (top_.impossible()) return absl::OkStatus();
        carry_.assign(text.substr(used));
        spare_.push_back(std::move(chunk));
        if (end && !carry_.empty()) {
          end = false;
          whole = true;
        }
        TRAINPERF_RETURN_IF_ERROR(Progress());
        continue;
      }
      const std::string_view text(chunk->text.data(), chunk->size);
      size_t cut = end || whole ? text.size() : LastBoundary(text);
      if (cut == 0 && text.size() < kMaxChunk) {
        carry_.assign(text);
        spare_.push_back(std::move(chunk));
        continue;
      }
      if (cut == 0) cut = text.size();
      carry_.assign(text.substr(cut));
      chunk->size = cut;
      whole = false;
      if (chunk->size > 0) {
        std::memset(chunk->text.data() + chunk->size, ' ', EventParser::kPadding);
        pool->Submit(std::move(chunk));
      }
      while (pool->pending() >= in_flight || (end && pool->pending() > 0)) {
        TRAINPERF_RETURN_IF_ERROR(Accept(pool->TakeFirst()));
      }
      TRAINPERF_RETURN_IF_ERROR(Progress());
    }
    while (pool->pending() > 0) TRAINPERF_RETURN_IF_ERROR(Accept(pool->TakeFirst()));
    return absl::OkStatus();
  }

  std::unique_ptr<Chunk> NewChunk() {
    if (spare_.empty()) return std::make_unique<Chunk>();
    std::unique_ptr<Chunk> chunk = std::move(spare_.back());
    spare_.pop_back();
    return chunk;
  }

  absl::Status Accept(std::unique_ptr<Chunk> chunk) {
    const std::string_view text(chunk->text.data(), chunk->size);
    if (top_.at_events()) {  // so it was cut rightly, and what was read of it stands
      TRAINPERF_RETURN_IF_ERROR(Take(&chunk->batch));
      if (chunk->used < chunk->size) top_.Push(text.substr(chunk->used), false);
    } else {
      top_.Push(text, false);
    }
    spare_.push_back(std::move(chunk));
    return patient_batch_.host.size() + patient_batch_.device.size() > 16'384 ? Flush() : absl::OkStatus();
  }

  absl::Status Take(EventBatch* batch) {
    const int64_t events_before = trace_->events;
    trace_->events += batch->events;
    trace_->bad_times += batch->bad_times;
    trace_->refused += batch->refused;
    trace_->python_functions += batch->python_functions;
    trace_->first_ns = std::min(trace_->first_ns, batch->first_ns);
    trace_->last_ns = std::max(trace_->last_ns, batch->last_ns);
    const bool keeps_steps = trace_->steps.size() < kMaxSteps;
    if (keeps_steps) {
      trace_->steps.insert(trace_->steps.end(), batch->steps.begin(), batch->steps.end());
    }
    if (trace_->threads.size() < batch->threads.size()) trace_->threads.resize(batch->threads.size());
    for (size_t i = 0; i < batch->threads.size(); ++i) {
      ThreadCounts& all = trace_->threads[i];
      const ThreadCounts& some = batch->threads[i];
      if (some.first_event < INT64_MAX) all.first_event = std::min(all.first_event, events_before + some.first_event);
      if (keeps_steps) all.steps += some.steps;
      all.fetches += some.fetches;
      all.optimizers += some.optimizers;
      all.backward_ops += some.backward_ops;
      all.ops += some.ops;
      all.python_backward |= some.python_backward;
    }
    TRAINPERF_RETURN_IF_ERROR(trace_->host.Add(std::move(batch->host)));
    return trace_->device.Add(std::move(batch->device));
  }

  // What was read a byte at a time.
  absl::Status Flush() {
    patient_batch_.Sort();
    const absl::Status taken = Take(&patient_batch_);
    patient_batch_.Clear();
    return taken;
  }

  void OnEvent(std::string_view event) {
    if (!patient_.ParseOne(event, &patient_batch_)) ++trace_->unreadable;
  }

  void OnValue(std::string_view key, std::string_view value) {
    if (key != "deviceProperties" && key != "distributedInfo" && key != "baseTimeNanoseconds") return;
    simdjson::dom::parser parser;
    simdjson::dom::element root;
    if (parser.parse(value.data(), value.size()).get(root) != simdjson::SUCCESS) return;
    if (key == "baseTimeNanoseconds") {
      int64_t ns = 0;
      if (root.get(ns) == simdjson::SUCCESS) trace_->base_time_ns = ns;
    } else if (key == "distributedInfo") {
      int64_t number = 0;
      if (root["rank"].get(number) == simdjson::SUCCESS && number >= 0) trace_->rank = number;
      if (root["world_size"].get(number) == simdjson::SUCCESS && number > 0) trace_->world_size = number;
    } else {
      simdjson::dom::array devices;
      if (root.get(devices) != simdjson::SUCCESS) return;
      for (const simdjson::dom::element device : devices) {
        int64_t id = 0;
        std::string_view name;
        if (device["id"].get(id) != simdjson::SUCCESS || id < 0 || trace_->devices.size() >= TraceTables::kMaxDevices) {
          continue;
        }
        if (device["name"].get(name) != simdjson::SUCCESS) name = "";
        trace_->devices.push_back(
            {static_cast<uint32_t>(id), std::string(name.substr(0, NameTable::kMaxLength)), simdjson::minify(device)});
      }
    }
  }

  absl::Status Progress() {
    if (!options_.progress || source_->file_bytes() <= 0) return absl::OkStatus();
    const double share = static_cast<double>(source_->done_bytes()) / static_cast<double>(source_->file_bytes());
    return options_.progress(std::min(share, 1.0)) ? absl::OkStatus() : absl::CancelledError("stopped");
  }

  // Numbers threads as the file names them, whichever parser met them first: the same trace makes the same run.
  void OrderThreads() {
    const size_t count = trace_->tables.threads().size();
    std::vector<ThreadCounts>& counts = trace_->threads;
    counts.resize(count + 1);
    std::vector<uint16_t> order(count);
    std::iota(order.begin(), order.end(), uint16_t{1});
    std::stable_sort(order.begin(), order.end(),
                     [&](uint16_t a, uint16_t b) { return counts[a].first_event < counts[b].first_event; });
    std::vector<ThreadCounts> ordered(count + 1);
    trace_->thread_ids.assign(count + 1, 0);
    for (size_t i = 0; i < count; ++i) {
      ordered[i + 1] = counts[order[i]];
      trace_->thread_ids[order[i]] = static_cast<uint16_t>(i + 1);
    }
    counts.swap(ordered);
    for (StepMark& mark : trace_->steps) mark.thread = trace_->thread_ids[mark.thread];
    trace_->tables.OrderThreads(order);
  }

  absl::Status Judge() {
    constexpr char kAdvice[] = "make one with torch.profiler's export_chrome_trace()";
    const std::string& trouble = source_->trouble();
    if (!top_.saw_events()) {
      if (!trouble.empty()) return absl::InvalidArgumentError(absl::StrCat("it holds no events: ", trouble));
      return absl::InvalidArgumentError(absl::StrCat(top_.impossible() ? "it is no JSON" : "it has no traceEvents",
                                                     ", so it is no trace: ", kAdvice));
    }
    if (trace_->events == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("it holds no events", trouble.empty() ? "" : ": ", trouble, ": ", kAdvice));
    }
    if (trace_->last_ns < trace_->first_ns) {
      return absl::InvalidArgumentError(
          absl::StrCat("none of its ", trace_->events, " events is an operator, a call or a kernel: ", kAdvice));
    }
    if (!trouble.empty()) {
      trace_->notes.push_back(absl::StrCat("the trace is broken: ", trouble, "; what came before was used"));
    } else if (!top_.complete()) {
      trace_->notes.push_back("the trace is cut: it has no end; what was there was used");
    }
    const auto count = [this](int64_t events, const char* what) {
      if (events > 0) trace_->notes.push_back(absl::StrCat(events, " events of the trace were left out: ", what));
    };
    count(trace_->unreadable, "their text is broken");
    count(top_.overlong(), "each is longer than 64 MB");
    count(trace_->bad_times, "their time is no number, negative, or centuries away");
    count(trace_->refused, "they are on more threads or devices than trainperf tells apart");
    return absl::OkStatus();
  }

  static constexpr size_t kMaxSteps = 1 << 20;

  ByteSource* const source_;
  const TraceReadOptions& options_;
  std::unique_ptr<Trace> trace_;
  EventParser patient_;
  EventBatch patient_batch_;
  TopLevel top_;
  std::string carry_;
  std::vector<std::unique_ptr<Chunk>> spare_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Trace>> ReadTrace(const std::string& path, const TraceReadOptions& options) {
  TRAINPERF_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path));
  absl::StatusOr<std::unique_ptr<Trace>> trace = Reader(source.get(), options).Read();
  if (!trace.ok() && trace.status().code() == absl::StatusCode::kInvalidArgument) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", trace.status().message()));
  }
  return trace;
}

}  // namespace trainperf
