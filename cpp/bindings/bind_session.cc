// Session: one running watch, as Python holds it.

#include <Python.h>
#include <pthread.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bindings/bind.h"
#include "bindings/release_gil.h"
#include "trainperf/collect/collector.h"
#include "trainperf/probe/marks.h"

namespace py = pybind11;

namespace trainperf {
namespace {

class Session;
std::mutex g_running_mutex;    // held for a few loads and stores only
Session* g_running = nullptr;  // guarded by it

absl::StatusOr<GilTier> ParseTier(const std::string& name) {
  if (name == "auto") return GilTier::kAuto;
  if (name == "exact") return GilTier::kExact;
  if (name == "procfs") return GilTier::kProcfs;
  if (name == "busy-only") return GilTier::kBusyOnly;
  if (name == "off") return GilTier::kOff;
  return absl::InvalidArgumentError(
      absl::StrCat("gil='", name, "' is not a tier: use 'auto', 'exact', 'procfs', 'busy-only' or 'off'"));
}

absl::Status ParseCuda(const std::string& mode, CollectorOptions* options) {
  if (mode != "auto" && mode != "full" && mode != "off") {
    return absl::InvalidArgumentError(absl::StrCat("cuda='", mode, "' is not a mode: use 'auto', 'full' or 'off'"));
  }
  options->cuda = mode != "off";
  options->cuda_steps = mode == "full" ? CudaSteps::kAll : CudaSteps::kSome;
  return absl::OkStatus();
}

absl::Status CheckOptions(double sampler_hz, double budget) {
  if (!(sampler_hz >= 0 && sampler_hz <= 2000)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampler_hz=", sampler_hz, " is not in 0..2000: use 60, or 0 for none"));
  }
  if (!(budget > 0 && budget <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("budget=", budget, " is not in 0..1: 0.01 is one percent"));
  }
  return absl::OkStatus();
}

template <size_t kSize>
py::tuple AsTuple(const std::array<int64_t, kSize>& values) {
  py::tuple tuple(kSize);
  for (size_t i = 0; i < kSize; ++i) tuple[i] = py::int_(values[i]);
  return tuple;
}

py::list AsList(const std::vector<ClosedStep>& steps) {
  py::list list(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    list[i] = py::make_tuple(steps[i].index, steps[i].wall_ns, steps[i].flags, AsTuple(steps[i].causes_ns));
  }
  return list;
}

class Session {
 public:
  Session(const std::string& path, bool overwrite, const std::string& gil, double sampler_hz, double budget,
          const std::map<std::string, double>& flag_shares, const std::string& cuda)
      : pid_(getpid()) {
    if (IsAnotherRunning()) {
      ThrowIfError(absl::FailedPreconditionError(
          "this process is being watched already: leave the first watch() before starting another"));
    }
    CollectorOptions options;
    options.overwrite = overwrite;
    const absl::StatusOr<GilTier> tier = ParseTier(gil);
    ThrowIfError(tier.status());
    options.gil = *tier;
    ThrowIfError(CheckOptions(sampler_hz, budget));
    options.sampler_hz = sampler_hz;
    options.budget = budget;
    ThrowIfError(ParseCuda(cuda, &options));
    for (const auto& [flag, share] : flag_shares) ThrowIfError(SetShare(flag, share, &options.timeline));
    absl::StatusOr<std::unique_ptr<Collector>> collector = Collector::Start(path, options);
    ThrowIfError(collector.status());
    collector_ = *std::move(collector);
    std::lock_guard<std::mutex> lock(g_running_mutex);
    path_ = collector_->path();
    g_running = this;
  }

  ~Session() {
    RunsNoMore();
    if (getpid() != pid_) {
      collector_.release();  // in a forked child: its threads and its file are the parent's
    } else if (!stopped_) {
      collector_->RemoveProbes();
      ReleaseGil release;
      collector_->Finish("exception").IgnoreError();
    }
  }

  void Stop(const std::string& ended) {
    if (getpid() != pid_ || stopped_.exchange(true)) return;
    RunsNoMore();
    collector_->RemoveProbes();
    absl::Status status;
    {
      ReleaseGil release;
      status = collector_->Finish(ended);
    }
    {
      std::lock_guard<std::mutex> lock(g_running_mutex);
      path_ = collector_->path();
    }
    ThrowIfError(status);
  }

  void Begins() {
    if (Running()) collector_->Begins();
  }
  void Ends() {
    if (Running()) collector_->Ends();
  }

  void Flush() {
    if (!Running()) return;
    absl::Status status;
    {
      ReleaseGil release;
      status = collector_->Flush();
    }
    ThrowIfError(status);
  }

  std::string path() const {
    std::lock_guard<std::mutex> lock(g_running_mutex);
    return path_;
  }
  int64_t steps_closed() const { return Here() ? collector_->steps_closed() : 0; }

  bool flags_waiting() const {
    // Marks are off in a forked child: asking for the process' id would be a system call.
    return !stopped_ && marks::enabled() && collector_->closed_steps().waiting() &&
           marks::CurrentThreadId() == collector_->step_thread();
  }
  bool OnStepThread() const { return Here() && marks::CurrentThreadId() == collector_->step_thread(); }
  py::list TakeFlagged() const { return AsList(Here() ? collector_->closed_steps().TakeFlagged() : kNoSteps); }
  py::list RecentFlagged() const { return AsList(Here() ? collector_->closed_steps().RecentFlagged() : kNoSteps); }
  py::list RecentSteps(int64_t after) const {
    return AsList(Here() ? collector_->closed_steps().Recent(after) : kNoSteps);
  }
  py::tuple GetTotals() const {
    const StepTotals totals = Here() ? collector_->closed_steps().totals() : StepTotals();
    return py::make_tuple(totals.steps, totals.wall_ns, AsTuple(totals.causes_ns), AsTuple(totals.flagged));
  }

  void SetMeta(const std::string& key, const std::string& value) {
    if (!Running()) return;
    if (key == "feeds_device" && value == "1") collector_->closed_steps().FeedsDevice();
    collector_->Post([=](RunWriter& writer) { writer.SetMeta(key, value); });
  }
  void Note(const std::string& text) {
    if (Running()) collector_->Post([=](RunWriter& writer) { writer.AddNote(text); });
  }
  void SetOverhead(const std::string& place, int64_t ns) {
    if (Running()) collector_->Post([=](RunWriter& writer) { writer.SetOverhead(place, ns); });
  }
  void SetTier(const std::string& probe, const std::string& tier, const std::string& why) {
    if (Running()) collector_->Post([=](RunWriter& writer) { writer.SetTier(probe, tier, why); });
  }
  void SetObject(uint32_t id, const std::string& kind, const std::string& description) {
    if (Running()) collector_->Post([=](RunWriter& writer) { writer.SetObject(id, kind, description); });
  }
  void WatchWorker(uint32_t loader, int32_t pid) {
    if (Running()) collector_->WatchWorker(loader, pid);
  }
  void WorkersAtWork(uint32_t loader) {
    if (Running()) collector_->WorkersAtWork(loader);
  }
  std::vector<int32_t> UnnamedThreads() { return Running() ? collector_->UnnamedThreads() : std::vector<int32_t>(); }
  void NameThread(int32_t native_tid, const std::string& name) {
    if (Running()) collector_->NameThread(native_tid, name);
  }
  std::vector<int32_t> UnnamedChildren() { return Running() ? collector_->UnnamedChildren() : std::vector<int32_t>(); }
  void NameChild(int32_t pid, const std::string& name) {
    if (Running()) collector_->NameChild(pid, name);
  }
  bool TraceCuda(const std::vector<std::string>& folders, const std::string& path) {
    ReleaseGil release;
    return Running() && collector_->TraceCuda({folders, path});
  }
  void PauseCuda() {
    ReleaseGil release;
    if (Running()) collector_->PauseCuda();
  }
  void ResumeCuda() {
    ReleaseGil release;
    if (Running()) collector_->ResumeCuda();
  }
  void ChangeCudaTier() {
    ReleaseGil release;
    if (Running()) collector_->ChangeCudaTier();
  }

 private:
  static absl::Status SetShare(const std::string& flag, double share, TimelineOptions* options) {
    if (!(share > 0 && share <= 1)) {
      return absl::InvalidArgumentError(absl::StrCat("the share of ", flag, " is ", share, ": it must be in 0..1"));
    }
    if (flag == "data_starved") {
      options->data_starved_share = share;
    } else if (flag == "gil_contended") {
      options->gil_contended_share = share;
    } else if (flag == "host_stalled") {
      options->host_stalled_share = share;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("'", flag, "' is no flag: use data_starved, gil_contended or host_stalled"));
    }
    return absl::OkStatus();
  }

  // In a forked child the parent's is none.
  bool IsAnotherRunning() const {
    std::lock_guard<std::mutex> lock(g_running_mutex);
    return g_running != nullptr && g_running->pid_ == pid_;
  }
  void RunsNoMore() {
    std::lock_guard<std::mutex> lock(g_running_mutex);
    if (g_running == this) g_running = nullptr;
  }

  static inline const std::vector<ClosedStep> kNoSteps;
  bool Here() const { return getpid() == pid_; }  // what has closed can be read after the end, too
  bool Running() const { return !stopped_ && getpid() == pid_; }

  const pid_t pid_;
  std::unique_ptr<Collector> collector_;
  std::string path_;  // guarded by g_running_mutex: written anew where a run had to be rescued
  std::atomic<bool> stopped_{false};
};

// Plain CPython, and no method, since it is asked at every step: 0.03 us.
PyObject* PyFlagsWaiting(PyObject*, PyObject*) {
  std::lock_guard<std::mutex> lock(g_running_mutex);
  return PyBool_FromLong(g_running != nullptr && g_running->flags_waiting());
}

PyMethodDef kSessionFunctions[] = {
    {"flags_waiting", PyFlagsWaiting, METH_NOARGS, "flags_waiting()"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void BindSession(py::module_& module) {
  // A thread that is no more may have held it. Where there is a GIL, a fork holds that.
  pthread_atfork(nullptr, nullptr, [] { new (&g_running_mutex) std::mutex(); });
  if (PyModule_AddFunctions(module.ptr(), kSessionFunctions) != 0) throw py::error_already_set();
  py::class_<Session>(
      module, "Session",
      "A running watch: probes, collector thread, run file. One per process.\n\n"
      "Raises FileExistsError, PermissionError, FileNotFoundError or OSError for the path, ValueError for\n"
      "an option, and AlreadyWatchingError when another session runs.")
      .def(py::init<const std::string&, bool, const std::string&, double, double, const std::map<std::string, double>&,
                    const std::string&>(),
           py::arg("path"), py::kw_only(), py::arg("overwrite") = false, py::arg("gil") = "auto",
           py::arg("sampler_hz") = 60.0, py::arg("budget") = 0.01,
           py::arg("flag_shares") = std::map<std::string, double>(), py::arg("cuda") = "auto")
      .def_property_readonly("path", &Session::path)
      .def_property_readonly("steps_closed", &Session::steps_closed)
      .def("stop", &Session::Stop, py::arg("ended"),
           "Takes all probes out, writes the rest of the run, joins our threads. Idempotent.")
      .def("begins", &Session::Begins,
           "What the calling thread does from now on may be its first step: the watch is set up, or ends() was before.")
      .def("ends", &Session::Ends,
           "The loop is over, for now: what the calling thread does from now on is no part of its last step.")
      .def("flush", &Session::Flush, "Everything seen so far is in the run file when it returns.")
      .def("set_meta", &Session::SetMeta, py::arg("key"), py::arg("value"))
      .def("note", &Session::Note, py::arg("text"))
      .def("set_overhead", &Session::SetOverhead, py::arg("place"), py::arg("ns"))
      .def("set_tier", &Session::SetTier, py::arg("probe"), py::arg("tier"), py::arg("why") = "")
      .def("set_object", &Session::SetObject, py::arg("id"), py::arg("kind"), py::arg("description_json"))
      .def("watch_worker", &Session::WatchWorker, py::arg("loader"), py::arg("pid"),
           "A DataLoader worker process, to be read from /proc once a second until it is gone.")
      .def("workers_at_work", &Session::WorkersAtWork, py::arg("loader"),
           "Those of this loader that are watched have started: as many batches have come as there are.")
      .def("unnamed_threads", &Session::UnnamedThreads,
           "Native ids of threads that were seen and have no name yet. Cheap when there are none.")
      .def("name_thread", &Session::NameThread, py::arg("native_tid"), py::arg("name"))
      .def("unnamed_children", &Session::UnnamedChildren,
           "Ids of processes that this one started and that have no name yet. Cheap when there are none.")
      .def("name_child", &Session::NameChild, py::arg("pid"), py::arg("name"))
      .def("trace_cuda", &Session::TraceCuda, py::arg("folders"), py::arg("path") = "",
           "Begins to trace the GPU by CUPTI, if there is a driver; the tier `cuda` says how, or why not.\n\n"
           "True: it is traced.")
      .def("pause_cuda", &Session::PauseCuda, "Lets go of CUPTI for another user of it, until resume_cuda().")
      .def("resume_cuda", &Session::ResumeCuda)
      .def("change_cuda_tier", &Session::ChangeCudaTier,
           "Changes what is traced of the GPU where that is due. On the training thread, between two operations.")
      .def("on_step_thread", &Session::OnStepThread, "Whether the calling thread is the one that trains, or trained.")
      .def("take_flagged", &Session::TakeFlagged, "Steps that were flagged since the last call.")
      .def("recent_flagged", &Session::RecentFlagged, "The last 1024 flagged steps.")
      .def("recent_steps", &Session::RecentSteps, py::arg("after") = -1,
           "The last 1024 steps that closed, of a higher index than `after`.")
      .def("step_totals", &Session::GetTotals, "(steps, wall_ns, causes_ns, flagged), summed since the start.");
}

}  // namespace trainperf
