// Ground truth for the GIL probes: hogs that hold the GIL for a known time, acquires that are timed natively, and the
// probes themselves, driven one by one from scenarios/.

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "trainperf/base/clock.h"
#include "trainperf/base/own_heap.h"
#include "trainperf/base/stack_table.h"
#include "trainperf/base/thread_table.h"
#include "trainperf/cpython/child_stack.h"
#include "trainperf/cpython/code_cache.h"
#include "trainperf/cpython/frame_copies.h"
#include "trainperf/cpython/frame_reader.h"
#include "trainperf/cpython/gil_view.h"
#include "trainperf/cpython/line_table.h"
#include "trainperf/cpython/offsets.h"
#include "trainperf/cpython/process_memory.h"
#include "trainperf/cpython/thread_state.h"
#include "trainperf/probe/gil_sampler.h"
#include "trainperf/probe/gil_waits.h"
#include "trainperf/probe/marks.h"
#include "trainperf/probe/runtime_waits.h"

namespace py = pybind11;

namespace trainperf {
namespace {

std::unique_ptr<GilWaits> g_waits;
std::unique_ptr<GilSampler> g_sampler;
std::unique_ptr<RuntimeWaits> g_runtime_waits;

void SpinUntil(int64_t until_ns) {
  while (NowNs() < until_ns) {
  }
}

// Holds the GIL: the caller's eval loop gets no chance to give it up.
void Spin(int64_t ns) { SpinUntil(NowNs() + ns); }

// Away without the GIL, on CPU.
void SpinWithoutGil(int64_t ns) {
  // Not gil_scoped_release: at exit CPython ends daemon threads with pthread_exit from within the acquire, which must
  // not unwind through a destructor.
  PyThreadState* state = PyEval_SaveThread();
  Spin(ns);
  PyEval_RestoreThread(state);
}

void SleepNs(int64_t ns) {
  const timespec duration = {ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&duration, nullptr);
}

// For how long a thread's state says that it has asked for the GIL and has not got it: the interpreter's own word, read
// from beside every 0.1 ms or so. -1 where states do not say it (before 3.15).
class Requests {
 public:
  static constexpr bool kKnown = PY_VERSION_HEX >= 0x030F0000;

  explicit Requests(PyThreadState* state) : state_(state) {
    if (kKnown) thread_ = std::thread([this] { Look(); });
  }

  int64_t End() {
    if (!kKnown) return -1;
    ends_.store(true);
    thread_.join();
    return requested_ns_;
  }

 private:
  static constexpr int64_t kEveryNs = 50'000;

  int Requested() const {
#if PY_VERSION_HEX >= 0x030F0000
    return __atomic_load_n(&state_->gil_requested, __ATOMIC_RELAXED);
#else
    return 0;
#endif
  }

  void Look() {
    int64_t before_ns = NowNs();
    int before = Requested();
    while (!ends_.load()) {
      SleepNs(kEveryNs);
      const int64_t now_ns = NowNs();
      const int now = Requested();
      requested_ns_ += (now_ns - before_ns) * (before + now) / 2;
      before_ns = now_ns;
      before = now;
    }
  }

  PyThreadState* const state_;
  std::atomic<bool> ends_{false};
  int64_t requested_ns_ = 0;
  std::thread thread_;
};

struct Acquires {
  int64_t begin_ns;
  int64_t end_ns;
  int64_t take_ns;                                 // in PyEval_RestoreThread
  int64_t release_ns;                              // in PyEval_SaveThread
  int64_t requested_ns;                            // of take_ns, as the interpreter itself tells
  std::vector<std::pair<int64_t, int64_t>> takes;  // from, to
};

Acquires TimedAcquires(int count, int64_t away_ns) {
  const absl::StatusOr<GilView> view = GilView::Locate();
  if (!view.ok()) throw std::runtime_error(std::string(view.status().message()));
  Acquires sum{NowNs(), 0, 0, 0, 0, {}};
  sum.takes.reserve(count);
  Requests requests(PyThreadState_Get());
  for (int i = 0; i < count; ++i) {
    const int64_t before = NowNs();
    PyThreadState* state = PyEval_SaveThread();
    const int64_t released = NowNs();
    SleepNs(away_ns);
    // Ask when another has it: on a busy machine the hog might not run just then. Not for ever: it may be gone.
    while (view->holder() == nullptr && NowNs() < released + 100'000'000) sched_yield();
    const int64_t asked = NowNs();
    PyEval_RestoreThread(state);
    const int64_t taken = NowNs();
    sum.release_ns += released - before;
    sum.take_ns += taken - asked;
    sum.takes.emplace_back(asked, taken);
  }
  sum.end_ns = NowNs();
  sum.requested_ns = requests.End();
  return sum;
}

double UncontendedNs(int count) {
  const int64_t begin = NowNs();
  for (int i = 0; i < count; ++i) PyEval_RestoreThread(PyEval_SaveThread());
  return static_cast<double>(NowNs() - begin) / count;
}

uint64_t TstateId() {
  PyThreadState* state = PyGILState_GetThisThreadState();
  return state != nullptr ? PyThreadState_GetID(state) : 0;
}

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

void Begin() {
  ThreadTable::Get().Reset();
  StackTable::Get().Init();
  StackTable::Get().Reset();
  marks::SetIdentity(&TstateId);
  marks::Enable();
}

void End() {
  marks::Disable();
  marks::ReleaseRings();
}

void Install() {
  auto waits = GilWaits::Install();
  ThrowIfError(waits.status());
  g_waits = *std::move(waits);
}

void InstallRuntimeWaits() {
  auto waits = RuntimeWaits::Install();
  ThrowIfError(waits.status());
  g_runtime_waits = *std::move(waits);
}

// Asks for the time until then without a pause: the breaks of at least `shortest_ns`, from and to.
std::vector<std::pair<int64_t, int64_t>> Breaks(int64_t until_ns, int64_t shortest_ns, const py::function& act) {
  std::vector<std::pair<int64_t, int64_t>> breaks;
  for (int64_t before = NowNs(); before < until_ns;) {
    act();
    const int64_t now = NowNs();
    if (now - before >= shortest_ns) breaks.emplace_back(before, now);
    before = now;
  }
  return breaks;
}

void StartSampler(int64_t period_ns, bool estimate_waits, bool look_at_gil) {
  GilSamplerOptions options;
  options.period_ns = period_ns;
  options.estimate_waits = estimate_waits;
  options.look_at_gil = look_at_gil && GilView::IsEnabled();
  auto sampler = GilSampler::Start(options);
  ThrowIfError(sampler.status());
  g_sampler = *std::move(sampler);
}

py::dict DictOf(const Event& e) {
  py::dict d;
  d["kind"] = static_cast<int>(e.kind);
  d["what"] = static_cast<int>(e.what);
  d["start_ns"] = e.start_ns;
  d["end_ns"] = e.end_ns;
  d["run_delay_ns"] = e.run_delay_ns;
  d["value"] = e.value;
  d["object"] = e.object;
  d["thread"] = e.thread;
  d["stack"] = e.stack;
  d["flags"] = static_cast<int>(e.flags);
  return d;
}

py::list DrainRings() {
  py::list events;
  ThreadTable& threads = ThreadTable::Get();
  for (ThreadId id = 1; id <= threads.size(); ++id) {
    if (auto* ring = threads.info(id).ring.load()) ring->Drain([&](const Event& e) { events.append(DictOf(e)); });
  }
  return events;
}

py::list DrainSampler() {
  py::list events;
  g_sampler->Drain([&](const Event& e) { events.append(DictOf(e)); });
  return events;
}

// Innermost first.
std::vector<std::tuple<std::string, std::string, int>> Stack(StackId id) {
  std::vector<std::tuple<std::string, std::string, int>> frames;
  const StackTable& table = StackTable::Get();
  for (; id != 0; id = table.node(id).parent) {
    const Site site = table.site(table.node(id).site);
    frames.emplace_back(std::string(site.file), std::string(site.function), site.line);
  }
  return frames;
}

py::dict Threads() {
  py::dict all;
  ThreadTable& threads = ThreadTable::Get();
  for (ThreadId id = 1; id <= threads.size(); ++id) {
    const ThreadInfo& info = threads.info(id);
    all[py::int_(id)] = py::make_tuple(info.native_tid.load(), info.tstate_id.load(), info.gil_wait_ns.load(),
                                       info.gil_waits.load(), info.waiting_since_ns.load());
  }
  return all;
}

ProcessMemory::Way WayOf(const std::string& name) {
  if (name == "vm_read") return ProcessMemory::Way::kVmRead;
  if (name == "proc_mem") return ProcessMemory::Way::kProcMem;
  return ProcessMemory::Way::kNone;
}

// Reads the stack of the thread with that ident `count` times while it runs: stack -> times, 0 for a rejected read; and
// the time that a read took.
std::pair<std::map<StackId, int>, double> ReadStacks(unsigned long ident, int count, const std::string& way) {
  auto reader = FrameReader::Create(WayOf(way));
  ThrowIfError(reader.status());
  uint64_t address = 0;
  PyInterpreterState* interpreter = PyThreadState_Get()->interp;
  for (PyThreadState* t = PyInterpreterState_ThreadHead(interpreter); t != nullptr; t = PyThreadState_Next(t)) {
    if (t->thread_id == ident) address = reinterpret_cast<uint64_t>(t);
  }
  if (address == 0) throw std::runtime_error("no such thread");
  py::gil_scoped_release release;
  std::map<StackId, int> times;
  const int64_t begin = NowNs();
  for (int i = 0; i < count; ++i) {
    ThreadState state;
    const StackId id = ReadThreadState((*reader)->memory(), address, &state) ? (*reader)->Read(state) : 0;
    ++times[id];
  }
  return {times, static_cast<double>(NowNs() - begin) / count};
}

// The stack of that process' main thread, `count` times while it runs: stack -> times, 0 for a rejected read; how often
// it held its GIL; and the time that a read took. After `before_reading`, which is told nothing.
std::tuple<std::map<StackId, int>, int, double> ReadChild(int pid, int count, const std::string& way,
                                                          const py::function& before_reading) {
  ThrowIfError(FrameReader::Create().status());
  const absl::StatusOr<GilView> gil = GilView::Locate();
  auto child = ChildStack::Open(pid, gil.ok() ? &*gil : nullptr, WayOf(way));
  ThrowIfError(child.status());
  const auto codes = std::make_unique<CodeCache>();
  before_reading();
  py::gil_scoped_release release;
  std::map<StackId, int> times;
  int held = 0;
  const int64_t begin = NowNs();
  for (int i = 0; i < count; ++i) {
    std::optional<bool> holds_gil;
    ++times[(*child)->Read(codes.get(), &holds_gil)];
    held += holds_gil.value_or(false);
  }
  return {times, held, static_cast<double>(NowNs() - begin) / count};
}

int LineOf(const py::bytes& table, int first_line, int64_t offset) {
  const std::string bytes = table;
  const auto format =
      tp_python_offsets.linetable_is_pep626_pairs ? LineTableFormat::kPairs : LineTableFormat::kLocations;
  return LineAt(format, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), first_line, offset);
}

// Addresses at which no frame was copied, that lead somewhere all the same: what is no frame has a caller anywhere.
std::vector<uint64_t> LedAstray() {
  const ProcessMemory memory = ProcessMemory::Open();
  const Pages<char> page(4096);
  const auto begin = reinterpret_cast<uint64_t>(page.get());
  const auto size = static_cast<uint64_t>(tp_python_offsets.frame_read_size);
  const auto copies = std::make_unique<FrameCopies>();
  if (copies->Find(memory, begin + 2560) == nullptr) throw std::runtime_error("the page was not copied");
  std::vector<uint64_t> led;
  for (const uint64_t wild : {uint64_t{0}, uint64_t{8}, UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - size + 1,
                              UINT64_MAX - size, begin + 4096 - size + 8, begin + 4096, begin + (uint64_t{1} << 40)}) {
    if (copies->First(wild) != nullptr) led.push_back(wild);
  }
  if (copies->Find(memory, UINT64_MAX - 7) != nullptr) led.push_back(UINT64_MAX - 7);
  return led;
}

// What the probes say of themselves where a field lies elsewhere than we know; "" of one that takes it to be right.
std::map<std::string, std::pair<std::string, std::string>> SaidOfOtherLayouts(int by) {
  TpAskInterpreter();
  const TpPythonOffsets right = tp_python_offsets;
  const std::map<std::string, int32_t TpPythonOffsets::*> fields = {
      {"", nullptr},
      {"gil_interval", &TpPythonOffsets::gil_interval},
      {"gil_last_holder", &TpPythonOffsets::gil_last_holder},
      {"gil_locked", &TpPythonOffsets::gil_locked},
      {"gil_cond", &TpPythonOffsets::gil_cond},
      {"gil_switch_cond", &TpPythonOffsets::gil_switch_cond},
      {"tstate_id", &TpPythonOffsets::tstate_id},
      {"tstate_frame", &TpPythonOffsets::tstate_frame},
      {"frame_code", &TpPythonOffsets::frame_code},
      {"frame_previous", &TpPythonOffsets::frame_previous},
      {"frame_instr", &TpPythonOffsets::frame_instr},
      {"code_first_line", &TpPythonOffsets::code_first_line},
      {"code_linetable", &TpPythonOffsets::code_linetable},
  };
  std::map<std::string, std::pair<std::string, std::string>> said;
  for (const auto& [name, field] : fields) {
    if (field != nullptr) tp_python_offsets.*field += by;
    said[name] = {std::string(GilView::Locate().status().message()),
                  std::string(FrameReader::Create().status().message())};
    tp_python_offsets = right;
  }
  return said;
}

}  // namespace
}  // namespace trainperf

PYBIND11_MODULE(gil_truth, m, py::mod_gil_not_used()) {
  using namespace trainperf;
  py::class_<Acquires>(m, "Acquires")
      .def_readonly("begin_ns", &Acquires::begin_ns)
      .def_readonly("end_ns", &Acquires::end_ns)
      .def_readonly("take_ns", &Acquires::take_ns)
      .def_readonly("release_ns", &Acquires::release_ns)
      .def_readonly("requested_ns", &Acquires::requested_ns)
      .def_readonly("takes", &Acquires::takes);
  m.def("now_ns", &NowNs);
  m.def("spin", &Spin);
  m.def("spin_without_gil", &SpinWithoutGil);
  m.def("timed_acquires", &TimedAcquires);
  m.def("uncontended_ns", &UncontendedNs);
  m.def("begin", &Begin);
  m.def("end", &End);
  m.def("watch_this_thread", &marks::Step);
  m.def("this_thread", &marks::CurrentThreadId);
  m.def("install", &Install);
  m.def("uninstall", [] { g_waits.reset(); });
  m.def("install_runtime_waits", &InstallRuntimeWaits);
  m.def("uninstall_runtime_waits", [] { g_runtime_waits.reset(); });
  m.def("runtime_waits_stats", [] {
    const RuntimeWaits::Stats s = g_runtime_waits->stats();
    return std::map<std::string, int64_t>{{"world_stops", s.world_stops},
                                          {"locks", s.locks},
                                          {"captures", s.captures},
                                          {"captures_refused", s.captures_refused},
                                          {"cost_ns", s.cost_ns}};
  });
  m.def("breaks", &Breaks);
  m.def("waits_stats", [] {
    const GilWaits::Stats s = g_waits->stats();
    return std::map<std::string, int64_t>{
        {"hook_calls", s.hook_calls}, {"captures", s.captures},   {"captures_refused", s.captures_refused},
        {"cost_ns", s.cost_ns},       {"hand_offs", s.hand_offs}, {"hand_off_ns", s.hand_off_ns}};
  });
  m.def("start_sampler", &StartSampler, py::arg("period_ns"), py::arg("estimate_waits") = false,
        py::arg("look_at_gil") = true);
  m.def("watch", [](ThreadId id) { g_sampler->Watch(id); });
  m.def("stop_sampler", [] { g_sampler.reset(); });
  m.def("sampler_next_ns", [] { return g_sampler->next_ns(); });
  m.def("sampler_stats", [] {
    const GilSampler::Stats s = g_sampler->stats();
    py::dict d;
    d["samples"] = s.samples;
    d["late"] = s.late;
    d["rejected"] = s.rejected;
    d["cpu_ns"] = s.cpu_ns;
    d["stacks"] = s.stacks;
    d["waits"] = s.waits;
    d["why"] = s.why;
    return d;
  });
  m.def("drain_rings", &DrainRings);
  m.def("drain_sampler", &DrainSampler);
  m.def("stack", &Stack);
  m.def("threads", &Threads);
  m.def("read_stacks", &ReadStacks);
  m.def("read_child", &ReadChild, py::arg("pid"), py::arg("count"), py::arg("way"), py::arg("before_reading"));
  m.def("line_of", &LineOf);
  m.def("led_astray", &LedAstray);
  m.def("said_of_other_layouts", &SaidOfOtherLayouts);
}
