#include "trainperf/probe/gil_waits.h"

#include <Python.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "trainperf/base/clock.h"
#include "trainperf/base/proc_text.h"
#include "trainperf/base/thread_table.h"
#include "trainperf/cpython/frame_reader.h"
#include "trainperf/cpython/gil_view.h"
#include "trainperf/cpython/interpreter_patch.h"
#include "trainperf/cpython/offsets.h"
#include "trainperf/cpython/thread_state.h"
#include "trainperf/probe/marks.h"

namespace trainperf {
namespace {

using TimedWait = int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*);
using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*);

// Captures run with CPython's GIL mutex held: 3 us each, so at most 0.6 % of the holder's time.
constexpr int64_t kCaptureEveryNs = 500'000;
constexpr int64_t kCaptureBurst = 32;

// Where the holder is when a wait begins is where it took the GIL, which is seldom what keeps it: it has just returned
// from queue.get(), and goes on to one function after the other. So a watched thread wakes in the midst of a wait, and
// looks again. At random: at regular times it would meet the same line of a holder that does the same each time.
constexpr int64_t kFirstLookNs = 300'000;   // after the wait's begin; +-75 %, as all
constexpr int64_t kNextLookNs = 1'600'000;  // after the look before
constexpr int kLooks = 12;                  // in a switch interval, as long as it may be set to
constexpr int64_t kLateNs = 100'000;        // a look that comes later than so was kept from a CPU
// Who wakes loses its place among those that wait, and others that came later get the GIL before it. So nobody looks
// where two threads have waited at the same time for so long.
constexpr int64_t kAloneForNs = 1'000'000'000;

// What a wait that timed out leaves to the next: the thread does not let go of the GIL mutex in between. The capture is
// made at the end of the slice and not at the begin of the next because there the holder has just been asked to let go:
// it would find us with the mutex, and awake, and hand over faster than it does without us.
struct Carry {
  const ThreadInfo* self;
  const void* holder_tstate;
  int64_t end_ns;
  int64_t run_delay_ns;
  ThreadId holder;
  StackId stack;
};

// All that the hook uses. Never destroyed: a thread may be asleep in the hook when it is taken out.
struct Hook {
  std::atomic<bool> enabled{false};
  std::atomic<int> recording{0};  // threads that are in Before or After
  std::atomic<TimedWait> next_timed_wait{&pthread_cond_timedwait};
  std::atomic<Wait> next_wait{&pthread_cond_wait};
  std::atomic<const void*> cond{nullptr};
  std::atomic<const void*> switch_cond{nullptr};
  GilView view;
  FrameReader* reader = nullptr;    // used under the GIL mutex only; nullptr: no frames can be read here
  ProcessMemory* memory = nullptr;  // nullptr: not even identities
  int64_t captures_paid_until = 0;  // under the GIL mutex
  Carry carry{};                    // under the GIL mutex
  uint32_t random = 0x9E3779B9;     // under the GIL mutex
  int waiting = 0;                  // threads asleep in HookTimedWait; under the GIL mutex
  int64_t crowded_ns = 0;           // when there were two of them; under the GIL mutex
  int64_t cost_unwatched_ns = 0;    // calibrated
  bool at_fork_registered = false;

  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> captures{0};
  std::atomic<int64_t> captures_refused{0};
  std::atomic<int64_t> cost_ns{0};
  std::atomic<int64_t> hand_offs{0};
  std::atomic<int64_t> hand_off_ns{0};
};
Hook g_hook;

// One wait, between Before and After. Plain data without destructors: pthread_exit and cancellation may unwind through
// the wait, at shutdown.
struct OpenWait {
  ThreadInfo* self;
  SpscRing<Event>* ring;  // nullptr: the thread is not watched
  uint64_t generation;
  int64_t start_ns;
  int64_t before_ns;     // cost of Before, watched threads
  int64_t run_delay_ns;  // -1: not known
  ThreadId holder;
  StackId stack;
  int looks;       // yet to be made; 0 as well: this goes on with a wait
  int64_t due_ns;  // when the look is due that is slept for
};

// How a slice of a wait ended: the last two go on.
enum class Over { kWoken, kTimedOut, kLook };

void Add(std::atomic<int64_t>& counter, int64_t value) { counter.fetch_add(value, std::memory_order_relaxed); }

// Only the thread itself writes to its slot, so it needs no locked instruction.
void AddOwn(std::atomic<int64_t>& counter, int64_t value) {
  counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

int64_t RunDelayNs(int fd) {
  int64_t fields[2];
  return fd >= 0 && ReadInts(fd, fields, 2) == 2 ? fields[1] : -1;
}

bool MayCapture(int64_t now_ns) {
  int64_t& paid = g_hook.captures_paid_until;
  if (paid < now_ns - kCaptureBurst * kCaptureEveryNs) paid = now_ns - kCaptureBurst * kCaptureEveryNs;
  if (paid > now_ns) return false;
  paid += kCaptureEveryNs;
  return true;
}

// Who holds the GIL. Read through the kernel although the GIL mutex keeps the holder's thread state alive: before 3.12
// a sub-interpreter's may be freed while it still stands as the last holder.
bool ReadHolder(const void* tstate, ThreadState* state) {
  return g_hook.memory != nullptr && ReadThreadState(*g_hook.memory, reinterpret_cast<uint64_t>(tstate), state);
}

// 0: beyond those that the table has room for.
ThreadId IdOf(const ThreadState& state) { return ThreadTable::Get().FindOrAdd(state.native_tid, state.id); }

StackId CaptureStack(const ThreadState& state, int64_t now_ns) {
  StackId stack = 0;
  if (g_hook.reader != nullptr && MayCapture(now_ns)) stack = g_hook.reader->Read(state);
  Add(stack != 0 ? g_hook.captures : g_hook.captures_refused, 1);
  return stack;
}

// The looks into one wait.
struct Looks {
  int left;
  int64_t begun_ns;     // the wait
  int64_t interval_ns;  // it ends so long after; read once, as it may be set meanwhile
  int64_t after_ns;     // when the last look was due, after the begin
};

// When to look next; false: not before `until`, when the wait ends.
bool NextLook(const timespec& until, Looks* looks, timespec* look) {
  if (looks->left == 0) return false;
  const int64_t mean_ns = looks->left-- == kLooks ? kFirstLookNs : kNextLookNs;
  uint32_t& random = g_hook.random;
  random ^= random << 13;
  random ^= random >> 17;
  random ^= random << 5;
  looks->after_ns += mean_ns / 4 + static_cast<int64_t>(random % 1024) * mean_ns * 3 / 2048;
  if (looks->after_ns >= looks->interval_ns || looks->after_ns <= NowNs() - looks->begun_ns) return false;
  // `until` is a switch interval after the begin, by a clock of CPython's choice.
  const int64_t at_ns = until.tv_sec * 1'000'000'000 + until.tv_nsec - (looks->interval_ns - looks->after_ns);
  if (at_ns <= 0) return false;  // the interval was set between CPython's look at it and ours
  *look = {at_ns / 1'000'000'000, at_ns % 1'000'000'000};
  return true;
}

// Called with the GIL mutex held for kTake, with the switch mutex held for kHandOff.
void RecordBefore(GilWaitKind kind, ThreadInfo* self, OpenWait* wait) {
  *wait = OpenWait{};
  wait->self = self;
  wait->generation = ThreadTable::Get().generation();
  wait->ring = self->ring.load(std::memory_order_acquire);
  // At a hand-off we ourselves are the last holder; who comes next is known only afterwards.
  const void* holder = kind == GilWaitKind::kTake ? g_hook.view.holder() : nullptr;
  if (kind == GilWaitKind::kTake && g_hook.carry.self == self) {
    const Carry carry = g_hook.carry;
    g_hook.carry.self = nullptr;
    wait->start_ns = carry.end_ns;
    self->waiting_since_ns.store(wait->start_ns, std::memory_order_release);
    wait->run_delay_ns = carry.run_delay_ns;
    if (holder == carry.holder_tstate) {
      wait->holder = carry.holder;
      wait->stack = carry.stack;
    }
    return;
  }
  wait->start_ns = NowNs();
  self->waiting_since_ns.store(wait->start_ns, std::memory_order_release);
  if (wait->ring == nullptr) return;
  wait->looks = kind == GilWaitKind::kTake ? kLooks : 0;
  wait->run_delay_ns = RunDelayNs(self->schedstat_fd.load(std::memory_order_acquire));
  if (ThreadState state; holder != nullptr && ReadHolder(holder, &state)) {
    wait->holder = IdOf(state);
    wait->stack = CaptureStack(state, wait->start_ns);
  }
  wait->before_ns = NowNs() - wait->start_ns;
}

// The GIL mutex is held, and stays so until the next wait of this thread.
void CarryOver(const OpenWait& wait, int64_t end_ns, int64_t run_delay_ns) {
  Carry& carry = g_hook.carry;
  carry = Carry{};
  carry.holder_tstate = g_hook.view.holder();
  if (carry.holder_tstate == nullptr) return;  // let go at the last moment: there is no next wait
  carry.self = wait.self;
  carry.end_ns = end_ns;
  carry.run_delay_ns = run_delay_ns;
  if (wait.ring == nullptr) return;
  ThreadState state;
  if (!ReadHolder(carry.holder_tstate, &state)) return;
  carry.holder = IdOf(state);
  carry.stack = CaptureStack(state, end_ns);
}

void AddWait(GilWaitKind kind, Over over, ThreadInfo* self, int64_t wait_ns) {
  AddOwn(self->gil_wait_ns, wait_ns);
  if (over == Over::kLook) return;
  AddOwn(self->gil_waits, 1);
  Add(g_hook.calls, 1);
  if (kind == GilWaitKind::kHandOff) {
    Add(g_hook.hand_offs, 1);
    Add(g_hook.hand_off_ns, wait_ns);
  }
}

void RecordAfter(GilWaitKind kind, const OpenWait& wait, Over over) {
  ThreadInfo* self = wait.self;
  if (ThreadTable::Get().generation() != wait.generation) return;  // the slot is another thread's by now
  const int64_t woken_ns = NowNs();
  self->waiting_since_ns.store(0, std::memory_order_release);
  const bool goes_on = over != Over::kWoken;
  if (wait.ring == nullptr) {
    AddWait(kind, over, self, woken_ns - wait.start_ns);
    Add(g_hook.cost_ns, g_hook.cost_unwatched_ns);
    if (goes_on) CarryOver(wait, woken_ns, -1);
    return;
  }
  Event event{};
  event.kind = EventKind::kGilWait;
  event.what = static_cast<uint8_t>(kind);
  event.start_ns = wait.start_ns;
  event.thread = marks::CurrentThreadId();
  event.object = wait.holder;
  event.stack = wait.stack;
  if (goes_on) event.flags |= kGilStillHeld;
  if (kind == GilWaitKind::kHandOff) {
    ThreadState state;
    const void* holder = g_hook.view.holder();
    if (holder != nullptr && ReadHolder(holder, &state)) event.object = IdOf(state);
    if (event.object == event.thread) event.object = 0;
  }
  // A thread that has just been woken has an up to date run delay. Where only a look is late, nothing waits for it: its
  // delay is left out, and read so that the next slice has none of it.
  const bool looks_in_time = over == Over::kLook && woken_ns - wait.due_ns < kLateNs;
  const int64_t run_delay_ns =
      looks_in_time ? wait.run_delay_ns : RunDelayNs(self->schedstat_fd.load(std::memory_order_acquire));
  // What we do still belongs to the wait, so that no time is lost between it and what follows.
  const int64_t end_ns = event.end_ns = NowNs();
  if (over != Over::kLook && wait.run_delay_ns >= 0 && run_delay_ns > wait.run_delay_ns) {
    event.run_delay_ns = std::min(run_delay_ns - wait.run_delay_ns, end_ns - wait.start_ns);
    AddOwn(self->gil_delay_ns, event.run_delay_ns);
  }
  if (goes_on) CarryOver(wait, end_ns, run_delay_ns);
  // Where the holder was at the first look is where it has been since the wait began, but for the moment of that.
  const Carry& carry = g_hook.carry;
  if (over == Over::kLook && wait.looks > 0 && carry.self == self && carry.holder == wait.holder && carry.stack != 0) {
    event.stack = carry.stack;
  }
  wait.ring->TryPush(event);
  AddWait(kind, over, self, end_ns - wait.start_ns);
  // What is done while the GIL is another's costs the thread nothing: what follows a wait that timed out, and what came
  // before one, unless the wait was over by then.
  const bool before_hidden = end_ns - wait.start_ns > 2 * wait.before_ns;
  Add(g_hook.cost_ns, (before_hidden ? 0 : wait.before_ns) + (goes_on ? 0 : end_ns - woken_ns));
}

bool Before(GilWaitKind kind, OpenWait* wait) {
  bool open = false;
  g_hook.recording.fetch_add(1);
  // At finalization thread states are freed under us: from there on we only pass on.
  if (g_hook.enabled.load() && Py_IsInitialized() != 0) {
    const int saved_errno = errno;
    if (ThreadInfo* self = marks::CurrentThread()) {
      marks::PushRecords();  // they began before the wait, and are to be told before it
      RecordBefore(kind, self, wait);
      open = true;
    }
    errno = saved_errno;
  }
  g_hook.recording.fetch_sub(1);
  return open;
}

void After(GilWaitKind kind, const OpenWait& wait, Over over) {
  g_hook.recording.fetch_add(1);
  if (g_hook.enabled.load()) {
    const int saved_errno = errno;
    RecordAfter(kind, wait, over);
    errno = saved_errno;
  } else {
    wait.self->waiting_since_ns.store(0, std::memory_order_release);
  }
  g_hook.recording.fetch_sub(1);
}

// Requires the GIL mutex.
bool MayLook() { return g_hook.waiting == 0 && NowNs() - g_hook.crowded_ns > kAloneForNs; }

// Requires the GIL mutex.
int SleepUntil(TimedWait next, pthread_cond_t* cond, pthread_mutex_t* mutex, const timespec* until) {
  if (g_hook.waiting++ > 0) g_hook.crowded_ns = NowNs();
  const int result = next(cond, mutex, until);
  --g_hook.waiting;
  return result;
}

int HookTimedWait(pthread_cond_t* cond, pthread_mutex_t* mutex, const timespec* until) {
  const TimedWait next = g_hook.next_timed_wait.load(std::memory_order_relaxed);
  OpenWait wait;
  if (cond != g_hook.cond.load(std::memory_order_relaxed)) return next(cond, mutex, until);
  if (!Before(GilWaitKind::kTake, &wait)) return SleepUntil(next, cond, mutex, until);
  timespec look;
  Looks looks{wait.looks, wait.start_ns, g_hook.view.switch_interval_ns(), 0};
  while (MayLook() && NextLook(*until, &looks, &look)) {
    wait.due_ns = looks.begun_ns + looks.after_ns;
    const int result = SleepUntil(next, cond, mutex, &look);
    const bool held = g_hook.view.holder() != nullptr;
    const bool woken = result == 0 || !held;  // let go as we woke: the signal for it found nobody
    After(GilWaitKind::kTake, wait, woken ? Over::kWoken : Over::kLook);
    if (woken) return 0;
    if (!Before(GilWaitKind::kTake, &wait)) return SleepUntil(next, cond, mutex, until);
  }
  const int result = SleepUntil(next, cond, mutex, until);
  After(GilWaitKind::kTake, wait, result == ETIMEDOUT ? Over::kTimedOut : Over::kWoken);
  return result;
}

int HookWait(pthread_cond_t* cond, pthread_mutex_t* mutex) {
  const Wait next = g_hook.next_wait.load(std::memory_order_relaxed);
  OpenWait wait;
  if (cond != g_hook.switch_cond.load(std::memory_order_relaxed) || !Before(GilWaitKind::kHandOff, &wait)) {
    return next(cond, mutex);
  }
  const int result = next(cond, mutex);
  After(GilWaitKind::kHandOff, wait, Over::kWoken);
  return result;
}

// In a forked child: nothing of ours runs there, and threads that were recording do not exist.
void DisableInChild() {
  g_hook.enabled.store(false);
  g_hook.recording.store(0);
  g_hook.waiting = 0;
}

// What the hook costs a thread that is not watched, without the wait itself.
int64_t CalibrateUnwatchedNs() {
  constexpr int kRounds = 2000;
  static ThreadInfo scratch;
  OpenWait wait;
  const int64_t start = NowNs();
  for (int i = 0; i < kRounds; ++i) {
    g_hook.recording.fetch_add(1);
    RecordBefore(GilWaitKind::kTake, &scratch, &wait);
    g_hook.recording.fetch_sub(1);
    g_hook.recording.fetch_add(1);
    RecordAfter(GilWaitKind::kTake, wait, Over::kWoken);
    g_hook.recording.fetch_sub(1);
  }
  return (NowNs() - start) / kRounds;
}

void ResetStats() {
  for (auto* counter : {&g_hook.calls, &g_hook.captures, &g_hook.captures_refused, &g_hook.cost_ns, &g_hook.hand_offs,
                        &g_hook.hand_off_ns}) {
    counter->store(0, std::memory_order_relaxed);
  }
}

class InstalledGilWaits : public GilWaits {
 public:
  InstalledGilWaits(std::unique_ptr<GotPatch> timed_wait, std::unique_ptr<GotPatch> wait)
      : timed_wait_(std::move(timed_wait)), wait_(std::move(wait)) {}

  ~InstalledGilWaits() override {
    g_hook.enabled.store(false);
    // Threads asleep in the hook are none of our concern: they find it disabled when they wake. Those that record right
    // now have a few microseconds to go, and need no GIL for it.
    while (g_hook.recording.load() != 0) usleep(20);
  }

  Stats stats() const override {
    timed_wait_->Reassert();
    if (wait_ != nullptr) wait_->Reassert();
    const auto get = [](const std::atomic<int64_t>& counter) { return counter.load(std::memory_order_relaxed); };
    return {get(g_hook.calls),   get(g_hook.captures),  get(g_hook.captures_refused),
            get(g_hook.cost_ns), get(g_hook.hand_offs), get(g_hook.hand_off_ns)};
  }

 private:
  const std::unique_ptr<GotPatch> timed_wait_;
  const std::unique_ptr<GotPatch> wait_;  // nullptr: hand-offs cannot be seen here
};

}  // namespace

absl::StatusOr<std::unique_ptr<GilWaits>> GilWaits::Install() {
  if (g_hook.enabled.load()) return absl::FailedPreconditionError("the GIL hook is installed already");
  absl::StatusOr<GilView> view = GilView::Locate();
  if (!view.ok()) return view.status();
  LearnNativeTids();  // where it fails, holders on 3.10 are known by their thread state only
  delete g_hook.reader;
  g_hook.reader = nullptr;
  if (auto reader = FrameReader::Create(); reader.ok()) g_hook.reader = reader->release();
  delete g_hook.memory;
  g_hook.memory = nullptr;
  if (ProcessMemory memory = ProcessMemory::Open(); memory.way() != ProcessMemory::Way::kNone) {
    g_hook.memory = new ProcessMemory(std::move(memory));
  }
  g_hook.view = *view;
  g_hook.captures_paid_until = 0;
  g_hook.carry = Carry{};
  g_hook.cost_unwatched_ns = 0;
  g_hook.cost_unwatched_ns = CalibrateUnwatchedNs();
  ResetStats();
  if (!g_hook.at_fork_registered) {
    g_hook.at_fork_registered = pthread_atfork(nullptr, nullptr, &DisableInChild) == 0;
    if (!g_hook.at_fork_registered) return absl::ResourceExhaustedError("pthread_atfork failed");
  }

  g_hook.cond.store(view->cond(), std::memory_order_relaxed);
  g_hook.switch_cond.store(view->switch_cond(), std::memory_order_relaxed);
  auto timed_wait = PatchInterpreter("pthread_cond_timedwait", reinterpret_cast<void*>(&HookTimedWait),
                                     reinterpret_cast<void*>(&pthread_cond_timedwait));
  if (!timed_wait.ok()) return timed_wait.status();
  g_hook.next_timed_wait.store(reinterpret_cast<TimedWait>((*timed_wait)->original()), std::memory_order_relaxed);
  auto wait = PatchInterpreter("pthread_cond_wait", reinterpret_cast<void*>(&HookWait),
                               reinterpret_cast<void*>(&pthread_cond_wait));
  if (wait.ok()) g_hook.next_wait.store(reinterpret_cast<Wait>((*wait)->original()), std::memory_order_relaxed);
  auto installed = std::make_unique<InstalledGilWaits>(*std::move(timed_wait),
                                                       wait.ok() ? *std::move(wait) : std::unique_ptr<GotPatch>());
  g_hook.enabled.store(true);
  return installed;
}

}  // namespace trainperf
