#include "trainperf/collect/collector.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/base/clock.h"
#include "trainperf/base/own_heap.h"
#include "trainperf/base/stack_table.h"
#include "trainperf/base/status_macros.h"
#include "trainperf/collect/commit_pace.h"
#include "trainperf/probe/cuda/safe_points.h"
#include "trainperf/probe/log_burst.h"
#include "trainperf/probe/marks.h"

namespace trainperf {
namespace {

// Each costs 0.2 ms, mostly for caches that the training has filled.
constexpr std::chrono::milliseconds kWakeUp(200);
// Until the loop is known, for the sampler to look at it from its begin. And with a device: CUPTI's buffers are given
// back, and its clock is read, at each.
constexpr std::chrono::milliseconds kWakeUpOftener(100);
constexpr int64_t kSecondNs = 1'000'000'000;
// Between a thread's reading of the clock and its push it may be preempted; younger events wait for the next wake-up,
// so that threads merge in order.
constexpr int64_t kSettleNs = 2'000'000;
// So long the others wait for a log record that its thread has yet to tell of.
constexpr int64_t kLongestPutOffNs = 1'000'000'000;
// Enabling CUPTI late takes seconds; a program must not hang when it takes for ever.
constexpr std::chrono::seconds kLongestCommand(20);

}  // namespace

absl::StatusOr<std::unique_ptr<Collector>> Collector::Start(const std::string& path, const CollectorOptions& options) {
  marks::ReleaseRings();  // in a forked child, of the parent's watch
  ThreadTable::Get().Reset();
  StackTable::Get().Init();
  StackTable::Get().Reset();
  RunWriterOptions writer_options;
  writer_options.overwrite = options.overwrite;
  writer_options.feeds_device = options.timeline.feeds_device;
  using Made = absl::StatusOr<std::unique_ptr<Collector>>;
  Made made = absl::UnknownError("");
  const auto make = [&]() -> Made {
    TRAINPERF_ASSIGN_OR_RETURN(auto writer, RunWriter::Create(path, writer_options));
    return std::unique_ptr<Collector>(new Collector(std::move(writer), options));
  };
  TRAINPERF_RETURN_IF_ERROR(OnOwnHeap([&] { made = make(); }));
  TRAINPERF_ASSIGN_OR_RETURN(std::unique_ptr<Collector> collector, std::move(made));
  collector->gil_.Start(collector->writer_.get());
  if (collector->gil_.samples()) collector->timeline_.AwaitSample();

  // Our thread must not run the user's signal handlers: it inherits this mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&collector->thread_, nullptr, &Collector::Main, collector.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread could be started for the collector: ", strerror(error),
                                                     ": raise the limit of processes (ulimit -u) or of memory"));
  }
  collector->running_ = true;
  marks::Enable();
  return collector;
}

Collector::Collector(std::unique_ptr<RunWriter> writer, const CollectorOptions& options)
    : options_(options),
      pid_(getpid()),
      started_ns_(NowNs()),
      writer_(std::move(writer)),
      closed_steps_(writer_.get(), options.timeline.feeds_device),
      timeline_(options.timeline, &closed_steps_),
      device_(writer_.get(), &timeline_, options.budget, options.cuda_steps),
      budget_(options.budget),
      gil_(options.gil, options.sampler_hz, &worker_stacks_),
      path_(writer_->path()) {
  writer_->SetStacks(&StackTable::Get());
  if (host_.throttled_why().empty()) {
    writer_->SetTier("throttling", "cgroup", "");
  } else {
    writer_->SetTier("throttling", "off", host_.throttled_why());
  }
  if (marks::CanReadRunDelay()) {
    writer_->SetTier("run_delay", "schedstat", "");
  } else {
    writer_->SetTier("run_delay", "off", "the kernel gives no /proc/self/task/TID/schedstat (CONFIG_SCHED_INFO)");
  }
  writer_->SetTier("cuda", "off", options.cuda ? "torch was not imported while the watch ran" : "not asked for");
}

Collector::~Collector() {
  if (!InThisProcess()) {
    gil_.Abandon();
    return;
  }
  RemoveProbes();
  Finish("exception").IgnoreError();
}

bool Collector::InThisProcess() const { return getpid() == pid_; }

void Collector::RemoveProbes() {
  if (!InThisProcess()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) return;  // the marks may be the next watch's by now
  }
  marks::Disable();
  marks::AwaitLast();
  gil_.RemoveWaits();
}

absl::Status Collector::Finish(const std::string& ended) {
  if (!InThisProcess()) return absl::OkStatus();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) return result_;
    stopping_ = true;
  }
  marks::Disable();
  wake_.notify_all();
  if (running_) pthread_join(thread_, nullptr);
  running_ = false;
  if (failure_.happened()) (void)ThreadFailure::Of([this] { WriteAfterFailure(); });  // there still may be no memory
  gil_.StopSampler();
  marks::AwaitLast();
  marks::ReleaseRings();
  absl::Status result = writer_->Finish(ended);
  std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
  result_ = std::move(result);
  if (path_ != writer_->path()) path_ = writer_->path();  // a rescued run lies elsewhere
  return result_;
}

void Collector::Begins() { MarkWatch(EventKind::kWatchBegins); }
void Collector::Ends() { MarkWatch(EventKind::kWatchEnds); }

void Collector::MarkWatch(EventKind kind) {
  if (!InThisProcess()) return;
  const Event event = marks::ClocksHere(kind);
  std::lock_guard<std::mutex> lock(mutex_);
  watch_marks_.push_back(event);
}

absl::Status Collector::Flush() {
  if (!InThisProcess()) return absl::OkStatus();
  marks::PushRecords();  // who waits within a log record is not to wait for its end
  std::unique_lock<std::mutex> lock(mutex_);
  if (finished_ || (stopping_ && !failure_.happened())) return result_;
  const int64_t ticket = ++flushes_wanted_;
  flush_asked_ns_ = NowNs();
  wake_.notify_all();
  done_.wait(lock, [&] { return flushes_done_ >= ticket || stopping_; });
  if (failure_.happened()) return absl::UnavailableError(failure_.Note());
  return commit_error_.empty() ? absl::OkStatus() : absl::UnavailableError(commit_error_);
}

std::string Collector::path() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return path_;
}

void Collector::Post(std::function<void(RunWriter&)> write) {
  if (!InThisProcess()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  posted_.push_back(std::move(write));
}

void Collector::WatchWorker(uint32_t loader, int32_t pid) {
  if (InThisProcess()) workers_.Watch(loader, pid, NowNs());
}

void Collector::WorkersAtWork(uint32_t loader) {
  if (InThisProcess()) workers_.AtWork(loader, NowNs());
}

std::vector<int32_t> Collector::UnnamedThreads() {
  return InThisProcess() ? thread_names_.Unnamed() : std::vector<int32_t>();
}

void Collector::NameThread(int32_t native_tid, const std::string& name) {
  if (!InThisProcess()) return;
  for (const ThreadId id : thread_names_.Name(native_tid)) {
    Post([id, native_tid, name](RunWriter& writer) { writer.SetThread(id, native_tid, name, ""); });
  }
}

std::vector<int32_t> Collector::UnnamedChildren() {
  return InThisProcess() ? children_.Unnamed() : std::vector<int32_t>();
}

void Collector::NameChild(int32_t pid, const std::string& name) {
  if (InThisProcess()) children_.Name(pid, name);
}

// False: it takes too long to be waited for, and may still run.
bool Collector::RunOnOurThread(std::function<void()> command) {
  if (!InThisProcess()) return true;
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopping_) return true;
  commands_.push_back(std::move(command));
  const int64_t ticket = ++commands_wanted_;
  wake_.notify_all();
  return done_.wait_for(lock, kLongestCommand, [&] { return commands_done_ >= ticket || stopping_; });
}

bool Collector::TraceCuda(const CudaTracerOptions& options) {
  if (!options_.cuda) return false;
  const auto traced = std::make_shared<std::atomic<bool>>(false);  // outlives a wait that was given up
  const bool finished = RunOnOurThread([this, options, traced] {
    marks::SumRecords(false);
    traced->store(device_.Attach(options));
  });
  return !finished || traced->load();  // one that is late may go live: the hand-over to others must know of it
}

void Collector::PauseCuda() {
  RunOnOurThread([this] { device_.Pause(); });
}

void Collector::ResumeCuda() {
  RunOnOurThread([this] { device_.Resume(); });
}

void Collector::ChangeCudaTier() {
  if (!SafePoints::IsDue()) return;
  if (!InThisProcess()) {
    SafePoints::SetDue(SafePoints::kNever);
    return;
  }
  const int64_t from_ns = NowNs();
  if (!device_.SwitchWindow()) RunOnOurThread([this] { device_.Change(); });
  device_.ChangeTook(NowNs() - from_ns);
}

void* Collector::Main(void* self) {
  auto* const collector = static_cast<Collector*>(self);
  const ThreadFailure failure = ThreadFailure::Of([collector] { collector->Loop(); });
  if (failure.happened()) collector->Fail(failure);
  return nullptr;
}

// Needs no memory.
void Collector::Fail(const ThreadFailure& failure) {
  marks::Disable();
  device_.Abandon();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failure_ = failure;
    failed_ns_ = NowNs();
    stopping_ = true;
  }
  done_.notify_all();
}

// After the thread has ended. What the timeline still holds is left, as the exception may have come in the middle of
// it: the step that was open, and those that waited in a ring, for a device, or until it was certain where steps end.
void Collector::WriteAfterFailure() {
  writer_->AddNote(failure_.Note());
  WriteTimes(failed_ns_);
  WriteOwnCost();
  WritePosted();
}

void Collector::Loop() {
  pthread_setname_np(pthread_self(), "trainperf");
  // Now too, or a short run would be judged by the little time between its only second and its end.
  host_readings_.Begin(NowNs(), writer_.get());
  cpu_rooms_.Begin(writer_.get());
  children_.Read(NowNs(), false, workers_.Pids(), writer_.get());
  next_second_ns_ = NowNs() + kSecondNs;
  CommitPace pace(NowNs());
  const marks::RunDelay run_delay;
  for (;;) {
    bool last = false;
    int64_t flush = 0;
    int64_t flush_asked_ns = 0;
    std::vector<std::function<void()>> commands;
    const std::chrono::nanoseconds wake_up = device_.traces() || !loop_begun_ ? kWakeUpOftener : kWakeUp;
    const int64_t asleep_ns = NowNs();
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait_for(lock, wake_up,
                     [&] { return stopping_ || flushes_wanted_ != flushes_done_ || !commands_.empty(); });
      last = stopping_;
      flush = flushes_wanted_;
      flush_asked_ns = flush_asked_ns_;
      commands.swap(commands_);
    }
    standstill_.Woke(asleep_ns, NowNs(), wake_up.count(), run_delay.Ns());
    for (const auto& command : commands) command();
    if (!commands.empty()) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        commands_done_ += static_cast<int64_t>(commands.size());
      }
      done_.notify_all();
    }
    const bool flushing = flush != flushes_done_;
    if (flushing && !last) std::this_thread::sleep_for(std::chrono::nanoseconds(2 * kSettleNs));
    const int64_t now = NowNs();
    Tick(now, last);
    const bool flushed = last || host_watermark_ns_ >= flush_asked_ns;  // else once more: a look takes long
    if (flushing && flushed && !last) {
      timeline_.WriteWaiting();
      steps_closed_.store(timeline_.steps_closed(), std::memory_order_relaxed);
    }
    const bool commit = (flushing && flushed) || pace.Due(now) || last;
    const int64_t cpu_ns = ThreadCpuNs();
    collector_cpu_ns_.store(cpu_ns, std::memory_order_relaxed);
    if (commit) {
      WriteTimes(now);
      WriteOwnCost();
    }
    if (commit && !last) {
      Commit();
      const int64_t commit_ns = ThreadCpuNs() - cpu_ns;
      pace.Done(now, commit_ns);
      if (device_.traces()) device_cpu_ns_ += commit_ns;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (flushed) flushes_done_ = flush;
    }
    done_.notify_all();
    if (last) return;
  }
}

void Collector::Tick(int64_t now_ns, bool last) {
  DrainRings(now_ns, last);
  WritePosted();
  marks::SumRecords(!device_.traces());
  workers_.Read(now_ns, last, writer_.get(), &cpu_rooms_);
  worker_stacks_.Drain([this](const WorkerSample& sample) { writer_->AddWorkerSample(sample); });
  const ThreadId step_thread = timeline_.step_thread();
  cpu_rooms_.Read(now_ns, 0, step_thread == 0 ? pid_ : ThreadTable::Get().info(step_thread).native_tid.load());
  host_readings_.Look();
  if (now_ns >= next_second_ns_ || last) {
    next_second_ns_ = now_ns + kSecondNs;
    const std::vector<int32_t> workers = workers_.Pids();
    host_readings_.Read(now_ns, step_thread, workers, writer_.get());
    children_.Read(now_ns, last, workers, writer_.get());
    cpu_rooms_.SetQuota(now_ns, host_.ReadQuotaMilli());
    cpu_rooms_.Write(writer_.get());
    WriteThreads();
    StepDownIfOverBudget(now_ns);
    device_.EverySecond(now_ns);
  }
  if (last) host_readings_.End();
  if (last) timeline_.Finish(now_ns);
  if (device_.traces()) TellSteps();
  steps_closed_.store(timeline_.steps_closed(), std::memory_order_relaxed);
  step_thread_.store(timeline_.step_thread(), std::memory_order_relaxed);
}

void Collector::TellSteps() {
  for (const ClosedStep& step : closed_steps_.Recent(step_told_)) {
    step_told_ = step.index;
    device_.SawStep(step.flags, step.start_ns, step.device_traced);
  }
}

void Collector::DrainRings(int64_t now_ns, bool last) {
  host_watermark_ns_ = last ? now_ns : now_ns - kSettleNs;
  if (!last) {  // before the rings are drained
    host_watermark_ns_ = gil_.SettledNs(host_watermark_ns_);
    const int64_t oldest_ns = host_watermark_ns_ - kLongestPutOffNs;
    host_watermark_ns_ = std::clamp(marks::PutOffSinceNs(), oldest_ns, host_watermark_ns_);
  }
  const auto take = [this](const Event& event) { pending_.push_back(event); };
  const ThreadTable& threads = ThreadTable::Get();
  for (ThreadId id = 1; id <= threads.size(); ++id) {
    if (auto* ring = threads.info(id).ring.load(std::memory_order_acquire)) ring->Drain(take);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);  // after the rings: before a mark that was drained, it was there
    for (const Event& event : watch_marks_) take(event);
    watch_marks_.clear();
  }
  gil_.Drain(take);
  const int64_t throttled = host_.ReadThrottledNs();
  if (throttled >= 0) {
    Event event{};
    event.kind = EventKind::kHost;
    event.start_ns = event.end_ns = host_watermark_ns_;  // steps up to here wait for it
    event.value = throttled;
    pending_.push_back(event);
  }
  const int64_t cpu_before_ns = ThreadCpuNs();
  const size_t calls = pending_.size();
  const int64_t watermark_ns = device_.Drain(now_ns, host_watermark_ns_, last, &pending_);
  if (!last) WatchLaunchers(calls);
  // Stable: events of one thread with equal times keep their order.
  std::stable_sort(pending_.begin(), pending_.end(),
                   [](const Event& a, const Event& b) { return a.end_ns < b.end_ns; });

  const uint64_t dropped = marks::stats().dropped;
  if (dropped != dropped_before_) {
    dropped_before_ = dropped;
    timeline_.MarkIncomplete();
  }
  size_t fed = 0;
  for (; fed < pending_.size() && pending_[fed].end_ns <= watermark_ns; ++fed) {
    device_.FeedUpTo(pending_[fed].end_ns);
    standstill_.Correct(&pending_[fed]);
    timeline_.Add(pending_[fed]);
  }
  device_.FeedUpTo(watermark_ns);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(fed));
  timeline_.AdvanceTo(watermark_ns);
  if (device_.traces()) device_cpu_ns_ += ThreadCpuNs() - cpu_before_ns;
  const ThreadId step_thread = timeline_.step_thread();
  if (step_thread == 0) return;
  gil_.Watch(step_thread);
  if (!loop_begun_) {
    loop_begun_ = true;
    gil_.MeetOnCpu();
    budget_.Restart();  // they come once, and are no measure of what the run costs
  }
}

// A thread that launches work, as autograd's does in backward, makes the device wait when it waits for the GIL itself.
void Collector::WatchLaunchers(size_t first) {
  ThreadId seen = 0;
  for (size_t i = first; i < pending_.size(); ++i) {
    const Event& call = pending_[i];
    if (call.thread == seen || call.thread == 0) continue;
    if (call.what != static_cast<uint8_t>(HostCall::kLaunchKernel)) continue;
    seen = call.thread;
    ThreadInfo& info = ThreadTable::Get().info(seen);
    if (info.ring.load(std::memory_order_relaxed) != nullptr) continue;
    // Records come after the fact: one that has ended would keep its ring from who comes next.
    if (!ThreadHasEnded(info.native_tid.load(std::memory_order_relaxed))) marks::WatchThread(seen);
  }
}

void Collector::WritePosted() {
  std::vector<std::function<void(RunWriter&)>> posted;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    posted.swap(posted_);
  }
  for (const auto& write : posted) write(*writer_);
}

void Collector::WriteThreads() {
  const ThreadTable& threads = ThreadTable::Get();
  for (ThreadId id = 1; id <= threads.size(); ++id) {
    const ThreadInfo& info = threads.info(id);
    const int32_t tid = info.native_tid.load(std::memory_order_relaxed);
    // Until Python tells its own name for it, the kernel's, which has none for one that has ended. To ask for it is ten
    // times as long as to ask whether it has; that is not remembered, since its id may be another thread's by and by.
    if (tid != 0 && !thread_names_.named(id)) {
      writer_->SetThread(id, tid, ThreadHasEnded(tid) ? "" : ReadThreadComm(tid), "");
    }
    marks::ReleaseRingOfDead(id);
    writer_->SetThreadGilWait(id, info.gil_wait_ns.load(std::memory_order_relaxed),
                              info.gil_waits.load(std::memory_order_relaxed));
  }
  static_assert(ThreadTable::kCapacity == 1024, "as the note says");
  if (threads.refused() > 0 && !many_threads_noted_) {
    many_threads_noted_ = true;
    writer_->AddNote("more than 1,024 threads were seen: later ones are not told apart by name");
  }
}

void Collector::WriteTimes(int64_t now_ns) {
  writer_->SetMeta("wall_ns", absl::StrCat(now_ns - started_ns_));
  writer_->SetMeta("lead_ns", absl::StrCat(timeline_.lead_ns()));
  writer_->SetMeta("stopped_ns", absl::StrCat(standstill_.SinceNs(timeline_.first_step_ns())));
  writer_->SetMeta("incomplete_steps", absl::StrCat(timeline_.incomplete_steps()));
  writer_->SetMeta("step_thread", absl::StrCat(timeline_.step_thread()));
  if (timeline_.another_trains_too() && !trains_too_noted_) {
    trains_too_noted_ = true;
    writer_->AddNote("another thread trains too: steps are one thread's at a time");
  }
}

void Collector::WriteOwnCost() {
  writer_->SetOverhead("collector", collector_cpu_ns_.load(std::memory_order_relaxed));
  const marks::Stats marks = marks::stats();
  writer_->SetOverhead("marks", marks.cost_ns);
  if (marks.summed > 0 && !summed_told_) {
    summed_told_ = true;
    writer_->SetTier("log_records", "summed",
                     absl::StrCat("of more than ", LogBurst::kMarked,
                                  " log records in a row the time is summed: it stays exact, where in a step it lies "
                                  "is coarser"));
  }
  writer_->SetDropped("marks", static_cast<int64_t>(marks.dropped));
  writer_->SetDropped("threads_without_ring", static_cast<int64_t>(marks.refused));
  writer_->SetDropped("late_events", timeline_.late_events());
  writer_->SetDropped("threads", static_cast<int64_t>(ThreadTable::Get().refused()));
  writer_->SetDropped("worker_samples", static_cast<int64_t>(worker_stacks_.dropped()));
  writer_->SetDropped("stacks", static_cast<int64_t>(StackTable::Get().refused()));
  gil_.WriteOwnCost(writer_.get());
}

// What the device's many records cost is not mended by looking less often.
void Collector::StepDownIfOverBudget(int64_t now_ns) {
  const int64_t collector_ns = collector_cpu_ns_.load(std::memory_order_relaxed) - device_cpu_ns_;
  const int64_t cost_ns = collector_ns + marks::stats().cost_ns + gil_.cost_ns();
  if (budget_.Exceeded(now_ns, cost_ns)) gil_.StepDown(options_.budget, writer_.get());
}

void Collector::Commit() {
  const absl::Status status = writer_->Commit();
  std::lock_guard<std::mutex> lock(mutex_);
  commit_error_ = status.ok() ? "" : std::string(status.message());
}

}  // namespace trainperf
