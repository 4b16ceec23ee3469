#include "trainperf/probe/runtime_waits.h"

#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trainperf/base/clock.h"
#include "trainperf/base/proc_text.h"
#include "trainperf/base/thread_table.h"
#include "trainperf/cpython/field.h"
#include "trainperf/cpython/frame_reader.h"
#include "trainperf/cpython/interpreter_patch.h"
#include "trainperf/cpython/offsets.h"
#include "trainperf/cpython/thread_state.h"
#include "trainperf/probe/marks.h"

#ifdef Py_GIL_DISABLED

namespace trainperf {
namespace {

using SemWait = int (*)(sem_t*);
using SemClockWait = int (*)(sem_t*, clockid_t, const timespec*);

constexpr uint64_t kNear = 4096;  // the frames of CPython's that are between ours and the one that has the semaphore
constexpr uint64_t kMutexHeldWithWaiters = 3;  // the bits of a PyMutex that somebody waits for
constexpr int64_t kCaptureEveryNs = 500'000;
constexpr int64_t kCaptureBurst = 32;
constexpr int kMaxThreads = 256;  // that are looked at for the holder of a lock
constexpr int kMaxSections = 16;  // locks of objects that one of them holds
constexpr int64_t kLongestTryNs = 200'000'000;

// CPython's `struct wait_entry`, up to the semaphore that it is found by.
struct Parked {
  uint64_t argument;  // of a PyMutex: something on the thread's own stack
  uint64_t address;   // what is waited on
};

// All that the hook uses. Never destroyed: a thread may be asleep in it when it is taken out.
struct Hook {
  std::atomic<bool> enabled{false};
  std::atomic<int> recording{0};
  std::atomic<SemWait> next_wait{&sem_wait};
  std::atomic<SemClockWait> next_clock_wait{nullptr};
  TpStopOffsets stop{};
  uint64_t threads_head = 0;
  uint64_t lock_types[2] = {};  // of the locks that a program takes, where these are PyMutexes
  ProcessMemory* memory = nullptr;
  std::atomic_flag capturing = ATOMIC_FLAG_INIT;  // guards what follows
  FrameReader* reader = nullptr;                  // nullptr: no frames can be read here
  int64_t captures_paid_until = 0;
  bool at_fork_registered = false;

  std::atomic<const void*> tried{nullptr};  // the mutex of a wait of our own, while the hook tries itself
  std::atomic<bool> found{false};           // and it was recognized

  std::atomic<int64_t> world_stops{0};
  std::atomic<int64_t> locks{0};
  std::atomic<int64_t> captures{0};
  std::atomic<int64_t> captures_refused{0};
  std::atomic<int64_t> cost_ns{0};
};
Hook g_hook;

// One wait. Plain data without destructors: pthread_exit and cancellation may unwind through it, at shutdown.
struct OpenWait {
  GilWaitKind kind;
  ThreadInfo* self;
  SpscRing<Event>* ring;  // nullptr: the thread is not watched
  uint64_t generation;
  int64_t start_ns;
  int64_t cost_ns;
  int64_t run_delay_ns;  // -1: not known
  ThreadId other;
  StackId stack;
};

void Add(std::atomic<int64_t>& counter, int64_t value) { counter.fetch_add(value, std::memory_order_relaxed); }

void AddOwn(std::atomic<int64_t>& counter, int64_t value) {
  counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

int64_t RunDelayNs(int fd) {
  int64_t fields[2];
  return fd >= 0 && ReadInts(fd, fields, 2) == 2 ? fields[1] : -1;
}

bool IsNear(uint64_t address, uint64_t below) { return address - below < kNear; }

uint64_t StateAddress(const PyThreadState* state) {
  return reinterpret_cast<uint64_t>(state) + static_cast<uint64_t>(tp_python_offsets.tstate_state);
}

// Whether the mutex at `address` is held and waited for, and no lock of the program's own.
bool IsRuntimeLock(uint64_t address) {
  uint8_t bits = 0;
  if (!g_hook.memory->Read(address, &bits, sizeof(bits)) || (bits & kMutexHeldWithWaiters) != kMutexHeldWithWaiters) {
    return false;
  }
  const uint64_t object = address - static_cast<uint64_t>(g_hook.stop.object_size);
  uint64_t type = 0;
  const auto at = static_cast<uint64_t>(tp_python_offsets.object_type);
  if (!g_hook.memory->Read(object + at, &type, sizeof(type))) return true;
  return type == 0 || (type != g_hook.lock_types[0] && type != g_hook.lock_types[1]);
}

// What the calling thread is about to sleep for, in the semaphore of an entry on its own stack. False: nothing of
// these.
bool Recognize(const sem_t* semaphore, const Parked& parked, GilWaitKind* kind) {
  const auto at = reinterpret_cast<uint64_t>(semaphore);
  const PyThreadState* state = PyThreadState_GetUnchecked();
  if (state == nullptr) state = PyGILState_GetThisThreadState();
  if (state != nullptr && parked.address == StateAddress(state)) {
    *kind = GilWaitKind::kWorldStop;
    return true;
  }
  if (!IsNear(parked.argument, at)) return false;
  // Who would stop the world waits while another does.
  const auto is_stop = [&parked](const void* mutex) { return parked.address == reinterpret_cast<uint64_t>(mutex); };
  if (is_stop(g_hook.stop.stop_mutexes[0]) || is_stop(g_hook.stop.stop_mutexes[1])) {
    *kind = GilWaitKind::kWorldStop;
    return true;
  }
  if (!IsRuntimeLock(parked.address)) return false;
  *kind = GilWaitKind::kLock;
  return true;
}

// Who stops the world, if it does so before and after its thread state is read: that may go at once when it is done.
bool ReadRequester(ThreadState* state) {
  for (const void* const* requester : g_hook.stop.requester) {
    const void* const before = __atomic_load_n(requester, __ATOMIC_RELAXED);
    if (before == nullptr || !ReadThreadState(*g_hook.memory, reinterpret_cast<uint64_t>(before), state)) continue;
    if (__atomic_load_n(requester, __ATOMIC_RELAXED) == before) return true;
  }
  return false;
}

bool Holds(const ThreadState& state, uint64_t mutex) {
  const TpStopOffsets& stop = g_hook.stop;
  uint64_t section = state.critical_section;
  const uint64_t tags = stop.section_inactive | stop.section_has_two;
  for (int i = 0; i < kMaxSections && section != 0; ++i) {
    const uint64_t at = section & ~tags;
    const bool active = (section & stop.section_inactive) == 0;
    uint64_t held = 0;
    uint64_t second = 0;
    uint64_t next = 0;
    if (!g_hook.memory->Read(at + static_cast<uint64_t>(stop.section_mutex), &held, sizeof(held)) ||
        !g_hook.memory->Read(at + static_cast<uint64_t>(stop.section_previous), &next, sizeof(next))) {
      return false;
    }
    if ((section & stop.section_has_two) != 0) {
      g_hook.memory->Read(at + static_cast<uint64_t>(stop.section_mutex2), &second, sizeof(second));
    }
    if (active && (held == mutex || second == mutex)) return true;
    section = next;
  }
  return false;
}

// Of a lock's wait: the thread that holds it, if it is an object's and held for a critical section (0: not known), and
// the calling thread's own state.
void LookAtThreads(uint64_t mutex, int32_t own_tid, ThreadState* own, bool* has_own, ThreadId* holder) {
  uint64_t at = 0;
  if (!g_hook.memory->Read(g_hook.threads_head, &at, sizeof(at))) return;
  ThreadState state;
  for (int i = 0; i < kMaxThreads && at != 0 && ReadThreadState(*g_hook.memory, at, &state); ++i, at = state.next) {
    if (state.native_tid == own_tid) {
      *own = state;
      *has_own = true;
    } else if (*holder == 0 && Holds(state, mutex)) {
      *holder = ThreadTable::Get().FindOrAdd(state.native_tid, state.id);
    }
  }
}

bool MayCapture(int64_t now_ns) {
  int64_t& paid = g_hook.captures_paid_until;
  if (paid < now_ns - kCaptureBurst * kCaptureEveryNs) paid = now_ns - kCaptureBurst * kCaptureEveryNs;
  if (paid > now_ns) return false;
  paid += kCaptureEveryNs;
  return true;
}

// 0 where another thread is at it, or it was so too often.
StackId Capture(const ThreadState& state, int64_t now_ns) {
  StackId stack = 0;
  if (g_hook.reader != nullptr && !g_hook.capturing.test_and_set(std::memory_order_acquire)) {
    if (MayCapture(now_ns)) stack = g_hook.reader->Read(state);
    g_hook.capturing.clear(std::memory_order_release);
  }
  Add(stack != 0 ? g_hook.captures : g_hook.captures_refused, 1);
  return stack;
}

void RecordBefore(uint64_t address, OpenWait* wait) {
  ThreadInfo* const self = wait->self;
  wait->generation = ThreadTable::Get().generation();
  wait->ring = self->ring.load(std::memory_order_acquire);
  wait->start_ns = NowNs();
  self->waiting_since_ns.store(wait->start_ns, std::memory_order_release);
  if (wait->ring == nullptr) return;
  wait->run_delay_ns = RunDelayNs(self->schedstat_fd.load(std::memory_order_acquire));
  ThreadState state;
  if (wait->kind == GilWaitKind::kWorldStop) {
    if (ReadRequester(&state)) {
      wait->other = ThreadTable::Get().FindOrAdd(state.native_tid, state.id);
      wait->stack = Capture(state, wait->start_ns);
    }
  } else {
    bool has_own = false;
    LookAtThreads(address, self->native_tid.load(std::memory_order_relaxed), &state, &has_own, &wait->other);
    if (has_own) wait->stack = Capture(state, wait->start_ns);
  }
  wait->cost_ns = NowNs() - wait->start_ns;
}

void RecordAfter(const OpenWait& wait) {
  ThreadInfo* const self = wait.self;
  if (ThreadTable::Get().generation() != wait.generation) return;  // the slot is another thread's by now
  self->waiting_since_ns.store(0, std::memory_order_release);
  Add(wait.kind == GilWaitKind::kWorldStop ? g_hook.world_stops : g_hook.locks, 1);
  const int64_t woken_ns = NowNs();
  if (wait.ring == nullptr) {
    AddOwn(self->runtime_wait_ns, woken_ns - wait.start_ns);
    return;
  }
  Event event{};
  event.kind = EventKind::kGilWait;
  event.what = static_cast<uint8_t>(wait.kind);
  event.start_ns = wait.start_ns;
  event.thread = marks::CurrentThreadId();
  event.object = wait.other;
  event.stack = wait.stack;
  // A thread that has just been woken has an up to date run delay.
  const int64_t run_delay_ns = RunDelayNs(self->schedstat_fd.load(std::memory_order_acquire));
  event.end_ns = NowNs();  // what we do still belongs to the wait, so that no time is lost between it and what follows
  if (wait.run_delay_ns >= 0 && run_delay_ns > wait.run_delay_ns) {
    event.run_delay_ns = std::min(run_delay_ns - wait.run_delay_ns, event.end_ns - wait.start_ns);
    AddOwn(self->gil_delay_ns, event.run_delay_ns);
  }
  wait.ring->TryPush(event);
  AddOwn(self->runtime_wait_ns, event.end_ns - wait.start_ns);
  // What is done before the wait costs nothing where that would have been longer.
  const bool hidden = woken_ns - wait.start_ns > 2 * wait.cost_ns;
  Add(g_hook.cost_ns, (hidden ? 0 : wait.cost_ns) + event.end_ns - woken_ns);
}

// Only a semaphore near `frame`, on the caller's own stack, may be looked at: others are heap memory of any size.
bool Before(const sem_t* semaphore, const void* frame, OpenWait* wait) {
  const auto at = reinterpret_cast<uint64_t>(semaphore);
  if (!IsNear(at, reinterpret_cast<uint64_t>(frame))) return false;
  bool open = false;
  g_hook.recording.fetch_add(1);
  // At finalization thread states are freed under us: from there on we only pass on.
  if (Py_IsInitialized() != 0) {
    const int saved_errno = errno;
    Parked parked;
    std::memcpy(&parked, reinterpret_cast<const char*>(semaphore) - sizeof(parked), sizeof(parked));
    *wait = OpenWait{};
    const void* const tried = g_hook.tried.load(std::memory_order_acquire);
    if (tried != nullptr && parked.address == reinterpret_cast<uint64_t>(tried)) {
      if (Recognize(semaphore, parked, &wait->kind) && wait->kind == GilWaitKind::kLock) g_hook.found.store(true);
    } else if (g_hook.enabled.load() && Recognize(semaphore, parked, &wait->kind)) {
      wait->self = marks::CurrentThread();
      if (wait->self != nullptr) {
        marks::PushRecords();  // they began before the wait, and are to be told before it
        RecordBefore(parked.address, wait);
        open = true;
      }
    }
    errno = saved_errno;
  }
  g_hook.recording.fetch_sub(1);
  return open;
}

void After(const OpenWait& wait) {
  g_hook.recording.fetch_add(1);
  if (g_hook.enabled.load()) {
    const int saved_errno = errno;
    RecordAfter(wait);
    errno = saved_errno;
  } else {
    wait.self->waiting_since_ns.store(0, std::memory_order_release);
  }
  g_hook.recording.fetch_sub(1);
}

int HookWait(sem_t* semaphore) {
  const SemWait next = g_hook.next_wait.load(std::memory_order_relaxed);
  OpenWait wait;
  if (!Before(semaphore, __builtin_frame_address(0), &wait)) return next(semaphore);
  const int result = next(semaphore);
  After(wait);
  return result;
}

int HookClockWait(sem_t* semaphore, clockid_t clock, const timespec* until) {
  const SemClockWait next = g_hook.next_clock_wait.load(std::memory_order_relaxed);
  OpenWait wait;
  if (!Before(semaphore, __builtin_frame_address(0), &wait)) return next(semaphore, clock, until);
  const int result = next(semaphore, clock, until);
  After(wait);
  return result;
}

// In a forked child: nothing of ours runs there, and threads that were recording do not exist.
void DisableInChild() {
  g_hook.enabled.store(false);
  g_hook.recording.store(0);
  g_hook.tried.store(nullptr);
  g_hook.capturing.clear();
}

void* TakeAndLetGo(void* mutex) {
  PyMutex_Lock(static_cast<PyMutex*>(mutex));
  PyMutex_Unlock(static_cast<PyMutex*>(mutex));
  return nullptr;
}

// Whether a wait for a mutex of our own, on a thread of our own, is recognized: else this interpreter parks its threads
// in another way than we know.
bool RecognizesItsOwn() {
  PyMutex mutex{};
  PyMutex_Lock(&mutex);
  g_hook.found.store(false);
  g_hook.tried.store(&mutex, std::memory_order_release);
  sigset_t all, before;  // signals are the user's
  sigfillset(&all);
  pthread_t thread;
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = pthread_create(&thread, nullptr, &TakeAndLetGo, &mutex) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const int64_t give_up_ns = NowNs() + kLongestTryNs;
  while (started && !g_hook.found.load() && NowNs() < give_up_ns) usleep(20);
  PyMutex_Unlock(&mutex);
  if (started) pthread_join(thread, nullptr);
  g_hook.tried.store(nullptr);
  return g_hook.found.load();
}

// The address of _thread.NAME; 0: there is none.
uint64_t TypeOfLocks(const char* name) {
  PyObject* module = PyImport_ImportModule("_thread");
  PyObject* type = module != nullptr ? PyObject_GetAttrString(module, name) : nullptr;
  const auto address = reinterpret_cast<uint64_t>(type);  // a module's own type: it stays
  Py_XDECREF(type);
  Py_XDECREF(module);
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return address;
}

class InstalledRuntimeWaits : public RuntimeWaits {
 public:
  InstalledRuntimeWaits(std::unique_ptr<GotPatch> wait, std::unique_ptr<GotPatch> clock_wait)
      : wait_(std::move(wait)), clock_wait_(std::move(clock_wait)) {}

  ~InstalledRuntimeWaits() override {
    g_hook.enabled.store(false);
    // Threads asleep in the hook find it disabled when they wake. Those that record have a few microseconds to go.
    while (g_hook.recording.load() != 0) usleep(20);
  }

  Stats stats() const override {
    wait_->Reassert();
    if (clock_wait_ != nullptr) clock_wait_->Reassert();
    const auto get = [](const std::atomic<int64_t>& counter) { return counter.load(std::memory_order_relaxed); };
    return {get(g_hook.world_stops), get(g_hook.locks), get(g_hook.captures), get(g_hook.captures_refused),
            get(g_hook.cost_ns)};
  }

 private:
  const std::unique_ptr<GotPatch> wait_;
  const std::unique_ptr<GotPatch> clock_wait_;  // nullptr: no lock is waited for with a timeout
};

}  // namespace

absl::StatusOr<std::unique_ptr<RuntimeWaits>> RuntimeWaits::Install() {
  TpAskInterpreter();
  if (tp_python_offsets.unsupported != nullptr) return absl::UnimplementedError(tp_python_offsets.unsupported);
  if (g_hook.enabled.load()) return absl::FailedPreconditionError("the hook is installed already");
  g_hook.stop = TpStopTheWorld();
  if (!g_hook.stop.size_matches) {
    return absl::NotFoundError("this interpreter is not of the size that its version's headers say");
  }
  g_hook.threads_head = reinterpret_cast<uint64_t>(TpThreadsHeadAddress());
  g_hook.lock_types[0] = TypeOfLocks("LockType");
  g_hook.lock_types[1] = TypeOfLocks("RLock");
  delete g_hook.memory;
  g_hook.memory = nullptr;
  ProcessMemory memory = ProcessMemory::Open();
  if (memory.way() == ProcessMemory::Way::kNone) {
    return absl::PermissionDeniedError("neither process_vm_readv nor /proc/self/mem may be used here");
  }
  g_hook.memory = new ProcessMemory(std::move(memory));
  delete g_hook.reader;
  g_hook.reader = nullptr;
  if (auto reader = FrameReader::Create(); reader.ok()) g_hook.reader = reader->release();
  g_hook.captures_paid_until = 0;
  for (auto* counter :
       {&g_hook.world_stops, &g_hook.locks, &g_hook.captures, &g_hook.captures_refused, &g_hook.cost_ns}) {
    counter->store(0, std::memory_order_relaxed);
  }
  if (!g_hook.at_fork_registered) {
    g_hook.at_fork_registered = pthread_atfork(nullptr, nullptr, &DisableInChild) == 0;
    if (!g_hook.at_fork_registered) return absl::ResourceExhaustedError("pthread_atfork failed");
  }
  auto wait = PatchInterpreter("sem_wait", reinterpret_cast<void*>(&HookWait), reinterpret_cast<void*>(&sem_wait));
  if (!wait.ok()) return wait.status();
  g_hook.next_wait.store(reinterpret_cast<SemWait>((*wait)->original()), std::memory_order_relaxed);
  std::unique_ptr<GotPatch> clock_wait;
  // Newer than the oldest glibc that we run on: by what CPython itself calls.
  if (void* const real = dlsym(RTLD_DEFAULT, "sem_clockwait")) {
    g_hook.next_clock_wait.store(reinterpret_cast<SemClockWait>(real), std::memory_order_relaxed);
    auto patch = PatchInterpreter("sem_clockwait", reinterpret_cast<void*>(&HookClockWait), real);
    if (patch.ok()) {
      g_hook.next_clock_wait.store(reinterpret_cast<SemClockWait>((*patch)->original()), std::memory_order_relaxed);
      clock_wait = *std::move(patch);
    }
  }
  auto installed = std::make_unique<InstalledRuntimeWaits>(*std::move(wait), std::move(clock_wait));
  if (!RecognizesItsOwn()) {
    return absl::NotFoundError("the threads of this interpreter do not wait in the way that is known");
  }
  g_hook.enabled.store(true);
  return installed;
}

}  // namespace trainperf

#else

namespace trainperf {

absl::StatusOr<std::unique_ptr<RuntimeWaits>> RuntimeWaits::Install() {
  return absl::UnimplementedError("this build of CPython has a GIL");
}

}  // namespace trainperf

#endif
