#include "trainperf/probe/gil_sampler.h"

#include <Python.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/base/clock.h"
#include "trainperf/base/spsc_ring.h"
#include "trainperf/base/thread_table.h"
#include "trainperf/cpython/frame_reader.h"
#include "trainperf/cpython/gil_view.h"
#include "trainperf/cpython/offsets.h"
#include "trainperf/probe/beside_signs.h"
#include "trainperf/probe/gil_thread_look.h"
#include "trainperf/probe/gil_waits.h"
#include "trainperf/probe/look_pace.h"

namespace trainperf {
namespace {

constexpr size_t kRingEvents = 16384;
constexpr int64_t kMinPeriodNs = 100'000;
constexpr int64_t kMaxGapPeriods = 4;              // a sample never stands for more than this
constexpr int64_t kFindAgainEveryNs = 50'000'000;  // how often to walk the thread states for one that was not found
constexpr int kMaxThreadStates = 1024;
constexpr int kMaxBeside = 8;          // threads looked at while the watched one sleeps in a lock
constexpr int64_t kReadCpuEvery = 16;  // ticks, after the first samples; it is a system call
constexpr size_t kStackSize = 512 * 1024;

// As in linux/sched/types.h, which older libcs do not have.
struct SchedAttr {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime;
  uint64_t deadline;
  uint64_t period;
};

// A short slice makes the scheduler let us in beside a busy thread at once, and not when it sleeps: otherwise the
// samples of a loaded core miss most of what runs there. Since Linux 6.12 anybody may ask; older kernels refuse or
// ignore it.
void AskForShortSlice() {
  prctl(PR_SET_NAME, "tp-sampler", 0, 0, 0);
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  SchedAttr attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.size = sizeof(attributes);
  attributes.runtime = 100'000;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

class Sampler : public GilSampler {
 public:
  explicit Sampler(const GilSamplerOptions& options)
      : options_(options), pid_(getpid()), memory_(ProcessMemory::Open()), ring_(kRingEvents) {}

  absl::Status Begin();
  ~Sampler() override;

  void Watch(ThreadId thread) override { watched_.store(thread, std::memory_order_release); }
  void MeetOnCpu() override { to_meet_.store(true, std::memory_order_relaxed); }
  void SetPeriod(int64_t period_ns) override {
    period_ns_.store(std::max(period_ns, kMinPeriodNs), std::memory_order_relaxed);
  }
  int64_t next_ns() const override { return next_ns_.load(std::memory_order_acquire); }
  size_t Drain(const std::function<void(const Event&)>& visit) override { return ring_.Drain(visit); }
  uint64_t dropped() const override { return ring_.dropped(); }
  Stats stats() const override;

 private:
  struct Holder {
    const void* tstate = nullptr;  // nullptr: nobody holds the GIL, or it could not be read who
    ThreadState state{};
    ThreadId thread = 0;
    StackId stack = 0;
    const void* then = nullptr;  // who held it as the stack was read
  };

  static void* Main(void* self);
  void Run();
  int64_t PeriodNs();
  bool SleepUntil(int64_t until_ns);
  void Tick(int64_t now_ns, int64_t start_ns);
  Holder LookAtHolder();
  bool LookAtWatched(const Holder& holder, Event* event);
  void LookBeside(Event event);
  StackId StackOf(const ThreadState& state, const void** holder);
  bool FindThreadState(uint64_t id, int64_t now_ns, ThreadState* state);
  uint32_t Random();

  const GilSamplerOptions options_;
  const pid_t pid_;
  const ProcessMemory memory_;
  GilView gil_;
  std::unique_ptr<FrameReader> reader_;  // nullptr: no frames can be read here
  ThreadLook look_;
  bool look_works_ = false;
  std::string why_;

  // Of the sampler's thread.
  uint64_t any_tstate_ = 0;    // where a walk of the thread states can begin
  uint64_t threads_head_ = 0;  // where it says where they begin; 0: not known
  uint64_t watched_tstate_ = 0;
  uint64_t watched_tstate_id_ = 0;
  int64_t next_find_ns_ = 0;
  BesideSigns beside_;
  uint32_t random_ = 0x9E3779B9;
  LookPace pace_;
  int64_t workers_cpu_ns_ = 0;  // for looks at workers, which have a pace of their own

  SpscRing<Event> ring_;
  std::atomic<ThreadId> watched_{0};
  std::atomic<bool> to_meet_{false};
  std::atomic<int64_t> period_ns_{0};
  std::atomic<int64_t> next_ns_{0};
  std::atomic<int> stop_{0};  // also the futex that the thread sleeps on
  std::atomic<int64_t> samples_{0};
  std::atomic<int64_t> late_{0};
  std::atomic<int64_t> rejected_{0};
  std::atomic<int64_t> cpu_ns_{0};
  pthread_t thread_{};
  bool started_ = false;
};

absl::Status Sampler::Begin() {
  SetPeriod(options_.period_ns);
  if (options_.look_at_gil) {
    absl::StatusOr<GilView> gil = GilView::Locate();
    if (!gil.ok()) return gil.status();
    gil_ = *gil;
  }
  if (absl::StatusOr<std::unique_ptr<FrameReader>> reader = FrameReader::Create(); reader.ok()) {
    reader_ = *std::move(reader);
    LearnNativeTids();  // where it fails, holders on 3.10 are known by their thread state only
    any_tstate_ = reinterpret_cast<uint64_t>(PyThreadState_Get());
    threads_head_ = reinterpret_cast<uint64_t>(TpThreadsHeadAddress());
    if (options_.workers != nullptr) options_.workers->Begin(options_.look_at_gil ? &gil_ : nullptr);
  } else {
    why_ = absl::StrCat("no stacks: ", std::string(reader.status().message()));
  }
  look_works_ = ThreadLook::Works();
  if (!look_works_) absl::StrAppend(&why_, why_.empty() ? "" : "; ", "/proc/self/task/TID/syscall cannot be read here");

  next_ns_.store(NowNs(), std::memory_order_release);  // no sample is of before, however late the thread begins
  // Signals are the user's: the thread starts with all of them masked, since it inherits our mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackSize);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread_, &attributes, &Sampler::Main, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) return absl::ResourceExhaustedError("no thread could be started for the sampler");
  started_ = true;
  return absl::OkStatus();
}

Sampler::~Sampler() {
  // In a forked child the thread does not exist, and joining it would never end.
  if (!started_ || getpid() != pid_) return;
  stop_.store(1);
  syscall(SYS_futex, &stop_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  pthread_join(thread_, nullptr);
}

GilSampler::Stats Sampler::stats() const {
  const auto get = [](const std::atomic<int64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  const bool waits = !options_.estimate_waits || (options_.look_at_gil && look_works_);
  const bool attached = !options_.look_at_gil && reader_ != nullptr && tp_python_offsets.tstate_state >= 0;
  return {get(samples_), get(late_), get(rejected_), get(cpu_ns_), reader_ != nullptr, attached, waits, why_};
}

void* Sampler::Main(void* self) {
  static_cast<Sampler*>(self)->Run();
  return nullptr;
}

uint32_t Sampler::Random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  return random_;
}

// False: it is time to stop.
bool Sampler::SleepUntil(int64_t until_ns) {
  const timespec until = {until_ns / 1'000'000'000, until_ns % 1'000'000'000};
  while (stop_.load(std::memory_order_relaxed) == 0) {
    syscall(SYS_futex, &stop_, FUTEX_WAIT_BITSET_PRIVATE, 0, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
    if (NowNs() >= until_ns) return stop_.load(std::memory_order_relaxed) == 0;
  }
  return false;
}

// What the next sample stands for, in the mean.
int64_t Sampler::PeriodNs() {
  if (to_meet_.exchange(false, std::memory_order_relaxed)) pace_.MeetOnCpu();
  if (pace_.first() || samples_.load(std::memory_order_relaxed) % kReadCpuEvery == 0) {
    cpu_ns_.store(ThreadCpuNs(), std::memory_order_relaxed);
  }
  const int64_t looks_cpu_ns = cpu_ns_.load(std::memory_order_relaxed) - workers_cpu_ns_;
  return pace_.NextNs(period_ns_.load(std::memory_order_relaxed), looks_cpu_ns);
}

void Sampler::Run() {
  AskForShortSlice();
  random_ ^= static_cast<uint32_t>(NowNs());
  int64_t before_ns = NowNs();
  while (true) {
    const int64_t period_ns = PeriodNs();
    // Jittered by +-75 %: with less, what takes turns as often as we look would be seen in the same turn for a while.
    const int64_t wake_ns = before_ns + period_ns / 4 + static_cast<int64_t>(Random() % 1024) * period_ns * 3 / 2048;
    next_ns_.store(wake_ns, std::memory_order_release);
    if (!SleepUntil(wake_ns)) break;
    const int64_t now_ns = NowNs();
    if (now_ns - wake_ns > period_ns) late_.fetch_add(1, std::memory_order_relaxed);
    // From Py_Finalize on there is nothing to be seen, and thread states are freed by the dozen.
    if (Py_IsInitialized() != 0) {
      Tick(now_ns, std::max(before_ns, now_ns - kMaxGapPeriods * period_ns));
      if (options_.workers != nullptr) workers_cpu_ns_ += options_.workers->Look(now_ns);
    }
    before_ns = now_ns;
  }
  cpu_ns_.store(ThreadCpuNs(), std::memory_order_relaxed);
}

void Sampler::Tick(int64_t now_ns, int64_t start_ns) {
  Event event{};
  event.start_ns = start_ns;
  event.end_ns = now_ns;
  const Holder holder = LookAtHolder();
  if (holder.thread != 0) {
    event.kind = EventKind::kHold;
    event.object = holder.thread;
    event.stack = holder.stack;
    ring_.TryPush(event);
  }
  bool on_cpu = false;
  const ThreadId watched = watched_.load(std::memory_order_acquire);
  if (watched != 0 && watched <= ThreadTable::Get().size()) {
    event.thread = watched;
    event.object = 0;
    event.stack = 0;
    event.kind = EventKind::kSample;
    const bool in_lock = LookAtWatched(holder, &event);
    // Without a GIL it is no wait for that; what it is, is measured.
    if (options_.look_at_gil || event.what != static_cast<uint8_t>(SampleState::kGilWait)) ring_.TryPush(event);
    const auto state = static_cast<SampleState>(event.what);
    on_cpu = state == SampleState::kPython || state == SampleState::kNative;
    if (in_lock) LookBeside(event);
    if (options_.estimate_waits && event.what == static_cast<uint8_t>(SampleState::kGilWait)) {
      event.kind = EventKind::kGilWait;
      event.what = static_cast<uint8_t>(GilWaitKind::kEstimate);
      event.object = holder.thread;
      event.stack = holder.stack;
      event.value = 0;
      ring_.TryPush(event);
    }
  }
  pace_.Looked(on_cpu);
  samples_.fetch_add(1, std::memory_order_relaxed);
}

// `holder`: who held the GIL then; it stays as it is when that is not known.
StackId Sampler::StackOf(const ThreadState& state, const void** holder) {
  if (reader_ == nullptr || state.frame == 0) return 0;
  const StackId stack = reader_->Read(state, options_.look_at_gil ? &gil_ : nullptr, holder);
  if (stack == 0) rejected_.fetch_add(1, std::memory_order_relaxed);
  return stack;
}

Sampler::Holder Sampler::LookAtHolder() {
  Holder holder;
  if (!options_.look_at_gil) return holder;
  const void* tstate = gil_.holder();
  if (tstate == nullptr) return holder;
  // If another holds it after the read, what was read may be of a freed thread state.
  if (!ReadThreadState(memory_, reinterpret_cast<uint64_t>(tstate), &holder.state) || gil_.last_holder() != tstate) {
    rejected_.fetch_add(1, std::memory_order_relaxed);
    return holder;
  }
  holder.tstate = tstate;
  any_tstate_ = reinterpret_cast<uint64_t>(tstate);
  holder.thread = ThreadTable::Get().FindOrAdd(holder.state.native_tid, holder.state.id);
  holder.then = tstate;
  holder.stack = StackOf(holder.state, &holder.then);
  return holder;
}

// The thread state of that id, found in the list that links them all.
bool Sampler::FindThreadState(uint64_t id, int64_t now_ns, ThreadState* state) {
  if (id == 0) return false;
  if (watched_tstate_id_ == id && watched_tstate_ != 0 && ReadThreadState(memory_, watched_tstate_, state) &&
      state->id == id) {
    return true;
  }
  if (watched_tstate_id_ == id && now_ns < next_find_ns_) return false;
  watched_tstate_id_ = id;
  watched_tstate_ = 0;
  next_find_ns_ = now_ns + kFindAgainEveryNs;
  // Without a GIL nobody is known to live.
  if (!options_.look_at_gil && threads_head_ != 0) memory_.Read(threads_head_, &any_tstate_, sizeof(any_tstate_));
  for (const bool forward : {true, false}) {
    uint64_t at = any_tstate_;
    for (int i = 0; at != 0 && i < kMaxThreadStates && ReadThreadState(memory_, at, state); ++i) {
      if (state->id == id) {
        watched_tstate_ = at;
        return true;
      }
      at = forward ? state->next : state->prev;
    }
  }
  return false;
}

// Whether it sleeps in a lock, and its thread state was found.
bool Sampler::LookAtWatched(const Holder& holder, Event* event) {
  const ThreadInfo& info = ThreadTable::Get().info(event->thread);
  const int32_t tid = info.native_tid.load(std::memory_order_relaxed);
  const uint64_t tstate_id = info.tstate_id.load(std::memory_order_relaxed);
  const auto be = [event](SampleState state) { event->what = static_cast<uint8_t>(state); };

  // Whether it holds the GIL is asked as its stack is read: between two small tensor operations a function of Python
  // lasts no longer than a look takes.
  const bool is_holder = holder.tstate != nullptr && holder.state.id == tstate_id && tstate_id != 0;
  const void* then = holder.then;
  ThreadState state = holder.state;
  const bool found = !is_holder && FindThreadState(tstate_id, event->end_ns, &state);
  if (is_holder) event->stack = holder.stack;
  if (found && state.attached && !options_.look_at_gil) then = reinterpret_cast<const void*>(state.address);
  if (found) event->stack = StackOf(state, &then);
  // Without a GIL it holds what it would need one for.
  const bool holds = (is_holder || found) && then != nullptr && then == reinterpret_cast<const void*>(state.address);

  look_.Follow(tid);
  const ThreadLook::State look = look_.Read();
  const bool waits = info.waiting_since_ns.load(std::memory_order_acquire) != 0 ||
                     (options_.look_at_gil && look.kind == ThreadLook::Kind::kAsleep &&
                      ThreadLook::IsFutex(look.syscall) && gil_.IsWaitAddress(look.first_argument));
  if (waits) {
    be(SampleState::kGilWait);
  } else if (look.kind == ThreadLook::Kind::kRunning) {
    be(holds ? SampleState::kPython : SampleState::kNative);
  } else if (look.kind == ThreadLook::Kind::kUnreadable) {
    // The holder runs Python, nearly always; of others nothing is known.
    be(holds ? SampleState::kPython : SampleState::kUnknown);
  } else if (look_.InOpenMp(memory_, look, event->end_ns)) {
    be(SampleState::kParallel);
  } else {
    be(SampleState::kBlocked);
    event->value = look.syscall + (ThreadLook::EndsSoon(memory_, look, kTimedWaitNs) ? kTimedWait : 0);
  }

  return found && event->what == static_cast<uint8_t>(SampleState::kBlocked) && ThreadLook::IsFutex(look.syscall);
}

// Where the other threads are: one of them is to let the watched one go on. Its thread state is where the walk begins.
void Sampler::LookBeside(Event event) {
  const ThreadTable& threads = ThreadTable::Get();
  const auto cpu_ns = [&threads](ThreadId id) {
    return id == 0 ? -1 : ThreadCpuNs(threads.info(id).native_tid.load(std::memory_order_relaxed));
  };
  const int64_t sleepers_cpu_ns = cpu_ns(event.thread);
  event.kind = EventKind::kBeside;
  event.thread = 0;
  event.value = 0;
  int left = kMaxBeside + 2;  // both ways begin at the watched one itself
  for (const bool forward : {true, false}) {
    ThreadState state;
    uint64_t next = watched_tstate_;
    for (; left > 0 && ReadThreadState(memory_, next, &state); --left) {  // what is read of a freed one may be a ring
      const uint64_t at = std::exchange(next, forward ? state.next : state.prev);
      if (at == watched_tstate_) continue;
      const void* nobody = nullptr;
      event.stack = StackOf(state, &nobody);
      ThreadState again;  // it may have ended while it was read; or begun, and had no number before
      if (event.stack == 0 || !ReadThreadState(memory_, at, &again) || again.id != state.id) continue;
      if (again.native_tid == 0) continue;
      event.object = ThreadTable::Get().FindOrAdd(again.native_tid, again.id);
      event.what =
          static_cast<uint8_t>(beside_.Look(event.object, cpu_ns(event.object), sleepers_cpu_ns, event.end_ns));
      ring_.TryPush(event);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<GilSampler>> GilSampler::Start(const GilSamplerOptions& options) {
  auto sampler = std::make_unique<Sampler>(options);
  absl::Status status = sampler->Begin();
  if (!status.ok()) return status;
  return sampler;
}

}  // namespace trainperf
