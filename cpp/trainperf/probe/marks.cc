#include "trainperf/probe/marks.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <new>
#include <utility>

#include "trainperf/base/clock.h"
#include "trainperf/base/off_cpu.h"
#include "trainperf/base/proc_text.h"
#include "trainperf/base/spsc_ring.h"
#include "trainperf/probe/log_burst.h"

namespace trainperf {
namespace marks {
namespace {

constexpr size_t kRingEvents = 32768;  // 1.8 MB; 200 ms of marks at 160k/s
constexpr int kMaxRings = 64;
constexpr int64_t kTimedMark = 17;  // no multiple of a step's marks: else always the same of them would be timed
constexpr int64_t kPreemptedNs = 100'000;
constexpr int64_t kLongestEntryNs = 10'000;
// What is around a mark and cannot be timed with it. Python: the wrapper and the call; of `__next__` in live loops 0.55
// us in steps of 0.3 ms, and 2 us in steps of 2.5 ms, which leave the caches cold. C: only the call of the wrapper, 10
// ns in warm caches. With it a step's six marks come to 1.8-2.3 us where the time stamp counter finds 1.1-1.4 (0.3 ms),
// and to 5.2-7.3 where it finds 5.3-5.6 (2.5 ms). Summed: a log record without marks, whose half is timed.
enum Source { kPython, kC, kSummed, kSources };
constexpr int64_t kAroundNs[kSources] = {1000, 60, 60};
// Run delay is read (0.55 us) only when the thread was off CPU at least this long since the last reading: below, its
// share in the delay is bounded by this.
constexpr int64_t kOffCpuWorthReadingNs = 20'000;

struct Local {
  uint64_t generation;  // of the table that `info` is a slot of
  ThreadInfo* info;
  SpscRing<Event>* ring;
  ThreadId id;
  int schedstat_fd;
  int32_t muted;        // so often, one within the other
  int32_t begun_muted;  // brackets that have begun since the outermost, and not ended
  OffCpu off_cpu;
  bool marked;
  int32_t untimed[kSources];  // marks since the last one that was timed
  int64_t wall_ns;            // of the last mark
  int64_t cpu_ns;             // as the last mark had it
  int64_t cpu_at_read_ns;     // as the last mark had it that read the CPU clock, and
  int64_t read_cpu_ns;        // the clock then
  int64_t delay_read_wall_ns;
  int64_t delay_read_cpu_ns;
  bool delay_known;
  int64_t first_delay_ns;  // as it was first read
  int64_t run_delay_ns;    // since then
  int64_t gc_ns;
  int64_t gc_since_ns;  // 0: it is in no collection
  NamedTime named_at_gc;
  int64_t fetch_ns;  // of those that have ended
  int64_t fetch_since_ns;
  int32_t fetches;  // that have begun and not ended
  LogBurst burst;
};

// In the static TLS block: reached without __tls_get_addr, which may allocate, so also from the GIL hook.
__attribute__((tls_model("initial-exec"))) thread_local Local tls_local{};

std::atomic<bool> g_enabled{false};
std::atomic<bool> g_sum_records{true};
std::atomic<int> g_rings{0};                      // how many there are
std::atomic<SpscRing<Event>*> g_free[kMaxRings];  // those that no thread has
std::atomic<uint64_t> g_refused{0};
std::atomic<uint64_t> g_dropped_by_dead{0};
struct Tally {
  std::atomic<int64_t> marks{0};
  std::atomic<int64_t> timed_ns{0};  // what every kTimedMark-th took
  std::atomic<int64_t> timed{0};     // how many of them were not preempted
};
Tally g_tallies[kSources];
std::atomic<uint64_t (*)()> g_identity{nullptr};

void Attach(Local& local, uint64_t generation) {
  const auto identity = g_identity.load(std::memory_order_relaxed);
  const int32_t tid = static_cast<int32_t>(syscall(SYS_gettid));
  local = Local{};
  local.generation = generation;
  local.schedstat_fd = -1;
  if (generation % 2 != 0) return;
  local.id = ThreadTable::Get().FindOrAdd(tid, identity != nullptr ? identity() : 0);
  local.info = local.id != 0 ? &ThreadTable::Get().info(local.id) : nullptr;
}

Local& Current() {
  Local& local = tls_local;
  const uint64_t generation = ThreadTable::Get().generation();
  if (local.generation != generation) Attach(local, generation);
  return local;
}

// What the calling thread writes from before it asks whether marks are on: AwaitLast() sees it, or it finds them off.
class OpenMark {
 public:
  OpenMark() : info_(Current().info), on_(Enter()) {}
  ~OpenMark() {
    if (info_ != nullptr) info_->in_mark.store(false, std::memory_order_release);
  }
  OpenMark(const OpenMark&) = delete;
  OpenMark& operator=(const OpenMark&) = delete;

  explicit operator bool() const { return on_; }

 private:
  bool Enter() const {
    if (info_ == nullptr || !enabled()) return false;
    info_->in_mark.store(true);  // before the look that counts: both sides in one order
    return g_enabled.load();
  }

  ThreadInfo* const info_;
  const bool on_;
};

// Rings outlive their watch and are used again: a thread that sleeps in the GIL hook while a watch ends may still push.
SpscRing<Event>* TakeRing() {
  for (auto& slot : g_free) {
    if (slot.load(std::memory_order_relaxed) == nullptr) continue;
    if (SpscRing<Event>* ring = slot.exchange(nullptr, std::memory_order_acq_rel)) return ring;
  }
  if (g_rings.fetch_add(1, std::memory_order_relaxed) < kMaxRings) {
    try {
      return new SpscRing<Event>(kRingEvents);
    } catch (const std::bad_alloc&) {
    }
  }
  g_rings.fetch_sub(1, std::memory_order_relaxed);
  return nullptr;
}

void GiveBack(SpscRing<Event>* ring) {
  ring->Clear();
  for (auto& slot : g_free) {
    SpscRing<Event>* empty = nullptr;
    if (slot.compare_exchange_strong(empty, ring, std::memory_order_acq_rel)) return;
  }
}

void TakeRingFrom(ThreadInfo& info) {
  if (SpscRing<Event>* ring = info.ring.exchange(nullptr, std::memory_order_acq_rel)) GiveBack(ring);
  const int fd = info.schedstat_fd.exchange(-1, std::memory_order_acq_rel);
  if (fd >= 0) close(fd);
}

// Of the thread itself and our own, which may both want it watched at once, one makes the ring.
SpscRing<Event>* RingOf(ThreadInfo& info) {
  if (SpscRing<Event>* ring = info.ring.load(std::memory_order_acquire)) return ring;
  SpscRing<Event>* const made = TakeRing();
  if (made == nullptr) return nullptr;
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", info.native_tid.load(std::memory_order_relaxed));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  int no_fd = -1;
  if (!info.schedstat_fd.compare_exchange_strong(no_fd, fd, std::memory_order_acq_rel) && fd >= 0) close(fd);
  SpscRing<Event>* there = nullptr;
  if (info.ring.compare_exchange_strong(there, made, std::memory_order_acq_rel)) return made;
  GiveBack(made);
  return there;
}

bool MakeRing(Local& local) {
  SpscRing<Event>* ring = local.info != nullptr ? RingOf(*local.info) : nullptr;
  if (ring == nullptr) {
    g_refused.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  local.ring = ring;
  local.off_cpu = OffCpu::ForThisThread();
  local.wall_ns = NowNs();
  local.cpu_ns = local.cpu_at_read_ns = local.read_cpu_ns = ThreadCpuNs();
  local.schedstat_fd = local.info->schedstat_fd.load(std::memory_order_acquire);
  return true;
}

bool MakesThreadWatched(EventKind kind, Bracket bracket) {
  if (kind == EventKind::kStep) return true;
  switch (bracket) {
    case Bracket::kFetch:
    case Bracket::kLoaderStart:
    case Bracket::kBackward:
    case Bracket::kOptimizer:
    case Bracket::kUserPhase:
    case Bracket::kCompile:   // without a DataLoader, all that a first step has before its backward
    case Bracket::kCallback:  // what it trains before the loop is no step
      return true;
    default:
      return false;
  }
}

void SetRunDelay(Local& local, int64_t ever_ns) {
  if (!std::exchange(local.delay_known, true)) local.first_delay_ns = ever_ns;
  local.run_delay_ns = ever_ns - local.first_delay_ns;
}

// The thread was off CPU since its last mark, or it cannot be known: the system calls.
void ReadClocks(Local& local, Event* event) {
  local.off_cpu.Arm();  // before the clocks: who is preempted between them reads again at the next mark
  const int64_t read_cpu_ns = ThreadCpuNs();
  event->end_ns = NowNs();
  // Since the last reading, marks went by whose CPU time was inferred; what remains belongs to the time since the last.
  const int64_t inferred_ns = local.cpu_ns - local.cpu_at_read_ns;
  const int64_t cpu_ns = std::clamp<int64_t>(read_cpu_ns - local.read_cpu_ns - inferred_ns, 0,
                                             std::max<int64_t>(event->end_ns - local.wall_ns, 0));
  event->cpu_ns = local.cpu_ns + cpu_ns;
  local.cpu_at_read_ns = event->cpu_ns;
  local.read_cpu_ns = read_cpu_ns;

  const int64_t off_cpu_ns = (event->end_ns - local.delay_read_wall_ns) - (read_cpu_ns - local.delay_read_cpu_ns);
  if (off_cpu_ns < kOffCpuWorthReadingNs || local.schedstat_fd < 0) return;
  int64_t fields[2];
  if (ReadInts(local.schedstat_fd, fields, 2) != 2) return;
  event->run_delay_ns = fields[1];
  event->flags |= kHasRunDelay;
  SetRunDelay(local, fields[1]);
  local.delay_read_wall_ns = event->end_ns;
  local.delay_read_cpu_ns = read_cpu_ns;
}

bool IsFetch(Bracket bracket) { return bracket == Bracket::kFetch || bracket == Bracket::kLoaderStart; }

void CountFetch(Local& local, EventKind kind, int64_t now_ns) {
  if (kind == EventKind::kBegin) {
    if (local.fetches++ == 0) local.fetch_since_ns = now_ns;
  } else if (local.fetches > 0 && --local.fetches == 0) {
    local.fetch_ns += now_ns - local.fetch_since_ns;
  }
}

// Summed here and not in one shared counter, which threads would fight for. Whether this one is to be timed.
bool CountMark(Local& local, Source source) {
  int32_t& untimed = local.untimed[source];
  if (++untimed < kTimedMark) return false;
  untimed = 0;
  g_tallies[source].marks.fetch_add(kTimedMark, std::memory_order_relaxed);
  return true;
}

// One that was preempted took the machine's time, not ours; if its virtual CPU was, only its length tells.
void CountTime(const Local& local, Source source, int64_t took_ns) {
  if (took_ns > kPreemptedNs || (local.off_cpu.works() && !local.off_cpu.StillOn())) return;
  g_tallies[source].timed_ns.fetch_add(took_ns, std::memory_order_relaxed);
  g_tallies[source].timed.fetch_add(1, std::memory_order_relaxed);
}

// A mark of logging at a time up to which the thread was on its CPU since its last mark.
void PushLogging(Local& local, EventKind kind, int64_t at_ns) {
  Event event{};
  event.kind = kind;
  event.what = static_cast<uint8_t>(Bracket::kLogging);
  event.flags = kPutOff;
  event.thread = local.id;
  event.cpu_ns = local.cpu_ns + (at_ns - local.wall_ns);
  event.start_ns = event.end_ns = at_ns;
  local.wall_ns = at_ns;
  local.cpu_ns = event.cpu_ns;
  local.ring->TryPush(event);
}

void OpenRecord(Local& local) {
  local.burst.Open();
  local.info->put_off_since_ns.store(0, std::memory_order_release);  // after its mark
}

void PushSum(Local& local) {
  if (local.burst.sum_ns() == 0) return;
  const LogBurst::Sum sum = local.burst.Take();
  PushLogging(local, EventKind::kBegin, sum.start_ns);
  PushLogging(local, EventKind::kEnd, sum.end_ns);
}

// What was put off, before anything else that the thread tells.
void PushBurst(Local& local) {
  PushSum(local);
  if (!local.burst.put_off()) return;
  PushLogging(local, EventKind::kBegin, local.burst.since_ns());
  OpenRecord(local);
  local.burst.Restart();  // the next may be like it
}

// Whether a muted thread writes it all the same: the end of a bracket that began before it was muted. Else it would
// stay open.
bool WrittenMuted(Local& local, EventKind kind) {
  if (kind == EventKind::kEnd && local.begun_muted == 0) return true;
  local.begun_muted += kind == EventKind::kBegin ? 1 : kind == EventKind::kEnd ? -1 : 0;
  return false;
}

// Returns when; 0 when nothing was written.
int64_t Write(EventKind kind, Bracket bracket, uint32_t object, int64_t value, uint8_t flags, Phase phase,
              Source source, int64_t entered_ns) {
  Local& local = Current();
  if (local.muted > 0 && !WrittenMuted(local, kind)) return 0;
  if (local.ring == nullptr) {
    if (kind == EventKind::kEnd || !MakesThreadWatched(kind, bracket) || !MakeRing(local)) return 0;
  }
  PushBurst(local);
  if (bracket != Bracket::kLogging && bracket != Bracket::kGc) local.burst.Restart();
  Event event{};
  event.kind = kind;
  event.what = static_cast<uint8_t>(bracket);
  event.object = object;
  event.value = value;
  event.flags = flags;
  event.phase = static_cast<uint8_t>(phase);
  event.thread = local.id;
  event.end_ns = NowNs();
  if (entered_ns == 0) entered_ns = event.end_ns;
  if (local.marked && local.off_cpu.StillOn()) {  // the first reads all clocks, for others to go by
    event.cpu_ns = local.cpu_ns + (event.end_ns - local.wall_ns);
  } else {
    // Most were off CPU before they entered; what takes this long since then is no work of ours.
    if (event.end_ns - entered_ns > kLongestEntryNs) entered_ns = event.end_ns;
    ReadClocks(local, &event);
  }
  event.start_ns = event.end_ns;
  local.wall_ns = event.end_ns;
  local.cpu_ns = event.cpu_ns;
  local.marked = true;
  local.ring->TryPush(event);
  if (IsFetch(bracket)) CountFetch(local, kind, event.end_ns);
  if (CountMark(local, source)) CountTime(local, source, NowNs() - entered_ns);
  return event.end_ns;
}

}  // namespace

void Enable() {
  g_refused.store(0, std::memory_order_relaxed);
  g_dropped_by_dead.store(0, std::memory_order_relaxed);
  g_sum_records.store(true, std::memory_order_relaxed);
  for (Tally& tally : g_tallies) {
    for (auto* counter : {&tally.marks, &tally.timed_ns, &tally.timed}) counter->store(0, std::memory_order_relaxed);
  }
  g_enabled.store(true, std::memory_order_release);
}

void Disable() { g_enabled.store(false); }

void AwaitLast() {
  ThreadTable& threads = ThreadTable::Get();
  for (ThreadId id = 1; id <= threads.size(); ++id) {
    while (threads.info(id).in_mark.load()) usleep(20);
  }
}

bool enabled() { return g_enabled.load(std::memory_order_relaxed); }

void ReleaseRings() {
  ThreadTable& threads = ThreadTable::Get();
  for (ThreadId id = 1; id <= threads.size(); ++id) TakeRingFrom(threads.info(id));
}

void ReleaseRingOfDead(ThreadId id) {
  ThreadInfo& info = ThreadTable::Get().info(id);
  const auto* ring = info.ring.load(std::memory_order_acquire);
  if (ring == nullptr) return;
  if (!ThreadHasEnded(info.native_tid.load(std::memory_order_relaxed))) return;
  if (!ring->empty()) return;  // the last it said came after it was drained: the next time
  g_dropped_by_dead.fetch_add(ring->dropped(), std::memory_order_relaxed);
  TakeRingFrom(info);
}

bool WatchThread(ThreadId id) { return RingOf(ThreadTable::Get().info(id)) != nullptr; }

RunDelay::RunDelay() : fd_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

RunDelay::~RunDelay() {
  if (fd_ >= 0) close(fd_);
}

int64_t RunDelay::Ns() const {
  int64_t fields[2];
  return fd_ >= 0 && ReadInts(fd_, fields, 2) == 2 ? fields[1] : -1;
}

bool CanReadRunDelay() { return RunDelay().Ns() >= 0; }

Event ClocksHere(EventKind kind) {
  PushRecords();
  Event event{};
  event.kind = kind;
  event.thread = CurrentThreadId();
  if (const int64_t run_delay_ns = RunDelay().Ns(); run_delay_ns >= 0) {
    event.run_delay_ns = run_delay_ns;
    event.flags = kHasRunDelay;
  }
  event.cpu_ns = ThreadCpuNs();
  event.start_ns = event.end_ns = NowNs();
  return event;
}

void Begin(Bracket bracket, uint32_t object, int64_t value, uint8_t flags, Phase phase) {
  if (const OpenMark mark; mark) Write(EventKind::kBegin, bracket, object, value, flags, phase, kPython, 0);
}

int64_t End(Bracket bracket, int64_t value, Phase phase) {
  const OpenMark mark;
  return mark ? Write(EventKind::kEnd, bracket, 0, value, 0, phase, kPython, 0) : 0;
}

void Step() {
  if (const OpenMark mark; mark) Write(EventKind::kStep, Bracket::kUserPhase, 0, 0, 0, Phase::kOther, kPython, 0);
}

int64_t EnterC() { return tls_local.untimed[kC] + 1 == kTimedMark ? NowNs() : 0; }

void BeginFromC(Bracket bracket, uint32_t object, uint8_t flags, int64_t entered_ns) {
  if (const OpenMark mark; mark) Write(EventKind::kBegin, bracket, object, -1, flags, Phase::kOther, kC, entered_ns);
}

int64_t EndFromC(Bracket bracket, int64_t value, int64_t entered_ns) {
  const OpenMark mark;
  return mark ? Write(EventKind::kEnd, bracket, 0, value, 0, Phase::kOther, kC, entered_ns) : 0;
}

void RecordBegins(int64_t entered_ns) {
  const OpenMark mark;
  if (!mark) return;
  Local& local = Current();
  LogBurst& burst = local.burst;
  if (!burst.Enters()) return;
  if (burst.SumsNext() && g_sum_records.load(std::memory_order_relaxed) && local.muted == 0) {
    const int64_t now_ns = NowNs();  // and then whether it is on its CPU: who is preempted in between leaves a mark
    if (local.off_cpu.StillOn()) {
      burst.Begins(now_ns);
      local.info->put_off_since_ns.store(now_ns, std::memory_order_relaxed);
      return;
    }
  }
  if (Write(EventKind::kBegin, Bracket::kLogging, 0, -1, 0, Phase::kOther, kC, entered_ns) != 0) burst.Marked();
}

void RecordEnds() {
  const OpenMark mark;
  if (!mark) return;
  Local& local = Current();
  LogBurst& burst = local.burst;
  if (!burst.Leaves()) return;
  if (burst.put_off()) {
    const int64_t now_ns = NowNs();
    if (local.off_cpu.StillOn() && now_ns - burst.since_ns() < LogBurst::kLongNs) {
      burst.Add(now_ns);
      local.info->put_off_since_ns.store(0, std::memory_order_relaxed);
      if (burst.sum_ns() >= LogBurst::kTakenNs) PushSum(local);
      if (CountMark(local, kSummed)) CountTime(local, kSummed, 2 * (NowNs() - now_ns));  // it began likewise
      return;
    }
    PushBurst(local);
  }
  Write(EventKind::kEnd, Bracket::kLogging, 0, 0, 0, Phase::kOther, kC, EnterC());
}

void SumRecords(bool on) { g_sum_records.store(on, std::memory_order_relaxed); }

int64_t PutOffSinceNs() {
  int64_t oldest_ns = INT64_MAX;
  const ThreadTable& threads = ThreadTable::Get();
  for (ThreadId id = 1; id <= threads.size(); ++id) {
    const int64_t since_ns = threads.info(id).put_off_since_ns.load(std::memory_order_acquire);
    if (since_ns != 0) oldest_ns = std::min(oldest_ns, since_ns);
  }
  return oldest_ns;
}

void PushRecords() {
  const OpenMark mark;
  if (!mark) return;
  Local& local = Current();
  if (local.ring != nullptr) PushBurst(local);
}

NamedTime NamedTimeHere() {
  Local& local = Current();
  if (local.info == nullptr) return {local.gc_ns, 0, 0};
  int64_t fields[2];
  const int fd = local.info->schedstat_fd.load(std::memory_order_acquire);
  if (fd >= 0 && !local.off_cpu.StillOn() && ReadInts(fd, fields, 2) == 2) SetRunDelay(local, fields[1]);
  return {local.gc_ns,
          local.info->gil_wait_ns.load(std::memory_order_relaxed) +
              local.info->runtime_wait_ns.load(std::memory_order_relaxed),
          local.run_delay_ns - local.info->gil_delay_ns.load(std::memory_order_relaxed)};
}

int64_t FetchTimeHere() {
  const Local& local = Current();
  return local.fetch_ns + (local.fetches > 0 ? NowNs() - local.fetch_since_ns : 0);
}

void CollectionBegins(int64_t generation) {
  Begin(Bracket::kGc, 0, generation, 0);
  Local& local = Current();
  local.named_at_gc = NamedTimeHere();
  local.gc_since_ns = NowNs();
}

void CollectionEnds(int64_t collected) {
  const int64_t now_ns = NowNs();
  End(Bracket::kGc, collected);  // reads the clocks
  Local& local = Current();
  const int64_t since_ns = std::exchange(local.gc_since_ns, 0);
  if (since_ns == 0) return;
  local.gc_ns += std::max<int64_t>(0, now_ns - since_ns - NamedTimeHere().Since(local.named_at_gc));
}

void Mute(bool on) {
  Local& local = Current();
  if (on && local.muted == 0) local.begun_muted = 0;
  local.muted = std::max(0, local.muted + (on ? 1 : -1));
}

ThreadInfo* CurrentThread() { return Current().info; }

ThreadId CurrentThreadId() { return Current().id; }

void SetIdentity(uint64_t (*tstate_id_of_this_thread)()) {
  g_identity.store(tstate_id_of_this_thread, std::memory_order_relaxed);
}

Stats stats() {
  uint64_t dropped = g_dropped_by_dead.load(std::memory_order_relaxed);
  const ThreadTable& threads = ThreadTable::Get();
  for (ThreadId id = 1; id <= threads.size(); ++id) {
    if (const auto* ring = threads.info(id).ring.load(std::memory_order_acquire)) dropped += ring->dropped();
  }
  Stats stats{0, 0, g_tallies[kSummed].marks.load(std::memory_order_relaxed), dropped,
              g_refused.load(std::memory_order_relaxed)};
  for (int source = 0; source < kSources; ++source) {
    const Tally& tally = g_tallies[source];
    const int64_t count = tally.marks.load(std::memory_order_relaxed);
    const int64_t timed = tally.timed.load(std::memory_order_relaxed);
    const int64_t mean_ns = timed > 0 ? tally.timed_ns.load(std::memory_order_relaxed) / timed : 0;
    if (source != kSummed) stats.marks += count;
    stats.cost_ns += count * (mean_ns + kAroundNs[source]);
  }
  return stats;
}

}  // namespace marks
}  // namespace trainperf
