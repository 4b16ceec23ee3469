#include "trainperf/run/run_writer.h"

#include <unistd.h>

#include <array>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/run/children.h"
#include "trainperf/run/database.h"
#include "trainperf/run/device_rows.h"
#include "trainperf/run/distributions.h"
#include "trainperf/run/facts.h"
#include "trainperf/run/kept_steps.h"
#include "trainperf/run/loaders.h"
#include "trainperf/run/run_path.h"
#include "trainperf/run/sections.h"
#include "trainperf/run/spans.h"
#include "trainperf/run/step_rows.h"

namespace trainperf {

extern const char kSchemaSql[];  // schema.sql, embedded by the build

namespace {

// Exclusive: the log's index is in our memory, not in a file that another process could cut short under us; it also
// makes the log work on network disks. Off: what a process wrote survives its death; only a power cut could hurt.
constexpr char kSettings[] =
    "PRAGMA page_size = 4096; PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF; PRAGMA journal_size_limit = "
    "4194304;"
    "PRAGMA temp_store = MEMORY; PRAGMA busy_timeout = 50;";

// All that steps, and what was around them, have put there.
constexpr char kEmptySql[] =
    "DELETE FROM step; DELETE FROM kept_step; DELETE FROM segment; DELETE FROM section; DELETE FROM phase_mechanism;"
    "DELETE FROM detail; DELETE FROM span; DELETE FROM span_total; DELETE FROM fetch; DELETE FROM fetch_ready;"
    "DELETE FROM fetch_awaited; DELETE FROM wall_histogram; DELETE FROM cause_share; DELETE FROM device;"
    "DELETE FROM device_step; DELETE FROM device_kernel; DELETE FROM device_copy; DELETE FROM device_segment;"
    "DELETE FROM call;";

absl::StatusOr<Database> OpenEmptyRun(const std::string& path) {
  TRAINPERF_ASSIGN_OR_RETURN(Database db, Database::Open(path));
  TRAINPERF_RETURN_IF_ERROR(db.Execute(kSettings));
  // The schema goes in before the log is on, so that the file itself says from its first moment what it is.
  TRAINPERF_RETURN_IF_ERROR(db.Execute("BEGIN IMMEDIATE"));
  TRAINPERF_RETURN_IF_ERROR(db.Execute(kSchemaSql));
  TRAINPERF_RETURN_IF_ERROR(db.Execute("COMMIT"));
  return db;
}

class Writer : public RunWriter {
 public:
  Writer(std::string path, Database db, const RunWriterOptions& options)
      : options_(options),
        pid_(getpid()),
        path_(std::move(path)),
        out_of_memory_(absl::ResourceExhaustedError("there was no memory left")),
        db_(std::move(db)),
        step_rows_(options.max_step_rows),
        kept_steps_(options.worst_steps, options.max_flagged),
        sections_(options.sections, options.details_per_section),
        spans_(options.max_spans),
        file_(path_) {
    if (options.feeds_device) FeedsDevice();
  }

  ~Writer() override {
    if (!InThisProcess()) db_.Abandon();
  }

  absl::Status Start() {
    if (options_.disposable) return absl::OkStatus();  // the schema's own journal, which goes when the file is closed
    TRAINPERF_ASSIGN_OR_RETURN(const std::string mode, db_.Text("PRAGMA journal_mode = WAL"));
    if (mode != "wal") return absl::InternalError(absl::StrCat("SQLite cannot keep a log here (", mode, ")"));
    TRAINPERF_RETURN_IF_ERROR(Commit());
    log_ = FileIdentity(path_ + "-wal");
    return absl::OkStatus();
  }

  void OnStep(const StepRecord& step) override {
    int64_t unexplained = step.end_ns - step.start_ns;
    ForEachPart(step, [&](Phase, Mechanism, int64_t ns) { unexplained -= ns; });
    if (unexplained == 0) {
      AddStep(step);
      return;
    }
    // Readers rely on sums that are exact, and refuse a file without; so a bug upstream may not reach it.
    ++unbalanced_steps_;
    StepRecord balanced = step;
    balanced.ns[static_cast<int>(Phase::kOther)][static_cast<int>(Mechanism::kUnknown)] += unexplained;
    AddStep(balanced);
  }
  void OnDetail(const Detail& detail) override { sections_.Add(detail); }
  void OnSpan(const Span& span) override { spans_.Add(span); }
  void OnFetch(const FetchRecord& fetch) override { loaders_.Add(fetch); }
  void OnTakenBack() override {
    step_rows_ = StepRows(options_.max_step_rows);
    kept_steps_ = KeptSteps(options_.worst_steps, options_.max_flagged);
    kept_steps_.SetNames(device_rows_.names());
    device_rows_.ClearSteps();
    sections_ = Sections(options_.sections, options_.details_per_section);
    spans_ = Spans(options_.max_spans);
    loaders_.ClearFetches();
    distributions_ = Distributions();
    taken_back_ = true;
  }

  const std::string& path() const override { return path_; }
  void SetMeta(const std::string& key, const std::string& value) override {
    if (key != "feeds_device") {
      facts_.SetMeta(key, value);
    } else if (value == "1") {
      FeedsDevice();
    } else if (!feeds_device_) {
      facts_.SetMeta(key, value);
    }
  }
  void AddNote(const std::string& text) override { facts_.AddNote(text); }
  void SetTier(const std::string& probe, const std::string& tier, const std::string& why) override {
    facts_.SetTier(probe, tier, why);
  }
  void SetThread(ThreadId id, int32_t native_tid, const std::string& name, const std::string& role) override {
    facts_.SetThread(id, native_tid, name, role);
  }
  void SetThreadGilWait(ThreadId id, int64_t wait_ns, int64_t waits) override {
    facts_.SetThreadGilWait(id, wait_ns, waits);
  }
  void SetObject(uint32_t id, const std::string& kind, const std::string& description) override {
    facts_.SetObject(id, kind, description);
  }
  void SetDevice(uint32_t id, const std::string& name, const std::string& description_json) override {
    device_rows_.SetDevice(id, name, description_json);
  }
  void SetNames(const NameTable* names) override {
    device_rows_.SetNames(names);
    kept_steps_.SetNames(names);
  }
  void AddWorkerReading(const WorkerReading& reading) override { loaders_.Add(reading); }
  void AddWorkerLook(const WorkerLook& look) override { loaders_.Add(look); }
  void AddWorkerSample(const WorkerSample& sample) override {
    if (sample.of.child != 0) {
      children_.Add(sample);
    } else {
      loaders_.Add(sample);
    }
  }
  void SetChild(const ChildReading& child) override { children_.Set(child); }
  void AddHostReading(const HostReading& reading, const std::vector<Counter>& machine) override {
    facts_.AddHostReading(reading, machine);
  }
  void SetOverhead(const std::string& where, int64_t ns) override { facts_.SetOverhead(where, ns); }
  void SetDropped(const std::string& what, int64_t count) override { facts_.SetDropped(what, count); }
  void SetStacks(const StackTable* table) override { facts_.SetStacks(table); }

  absl::Status Commit() override {
    if (!InThisProcess()) return absl::FailedPreconditionError("a forked child does not write its parent's run");
    if (finished_) return absl::FailedPreconditionError("the run is finished");
    return WriteParts(db_);
  }

  absl::Status Finish(const std::string& ended) override {
    if (!InThisProcess()) return absl::FailedPreconditionError("a forked child does not finish its parent's run");
    if (finished_) return result_;
    try {
      result_ = WriteEnd(ended);
    } catch (const std::bad_alloc&) {
      db_ = Database();  // what is committed is in the log
      result_ = out_of_memory_;
    }
    finished_ = true;
    return result_;
  }

 private:
  bool InThisProcess() const { return getpid() == pid_; }

  absl::Status WriteEnd(const std::string& ended) {
    facts_.SetMeta("ended", ended);
    absl::Status written = WriteParts(db_);
    if (written.ok() && !(file_.IsStillAt(path_) && (options_.disposable || log_.IsStillAt(path_ + "-wal")))) {
      written = absl::NotFoundError("it was removed or replaced while it was being written");
    }
    if (written.ok()) SealIfPossible();
    const absl::Status closed = db_.Close();
    if (!closed.ok()) db_ = Database();  // what is committed is in the log; nothing is left to wait for
    return written.ok() ? absl::OkStatus() : Rescue(written);
  }

  void AddStep(const StepRecord& step) {
    half_a_step_ = true;  // stays so when there is no memory for some of what follows
    if (step.feeds_device) FeedsDevice();
    const StepRow row = StepRow::Of(step, feeds_device_);
    step_rows_.Add(row);
    device_rows_.Add(step, step_rows_.last_row(), step_rows_.steps_per_row());
    kept_steps_.Add(row, step);
    distributions_.Add(row);
    sections_.Add(step);
    half_a_step_ = false;
  }

  // One name for one thing in all of the run: steps from before the first device was seen are named anew.
  void FeedsDevice() {
    if (feeds_device_) return;
    feeds_device_ = true;
    facts_.SetMeta("feeds_device", "1");
    step_rows_.NativeIsLaunch();
    kept_steps_.NativeIsLaunch();
    distributions_.NativeIsLaunch();
  }

  absl::Status WriteParts(Database& db) {
    if (unbalanced_steps_ > 0) facts_.SetDropped("unbalanced_steps", unbalanced_steps_);
    if (facts_.refused() > 0) facts_.SetDropped("facts", facts_.refused());
    if (loaders_.refused_readings() > 0) facts_.SetDropped("worker_readings", loaders_.refused_readings());
    absl::Status status = db.Execute("BEGIN IMMEDIATE");
    if (!status.ok()) return status;
    try {
      if (taken_back_) status = db.Execute(kEmptySql);
      for (RunPart* part : parts()) {
        if (status.ok() && IsWhole(part)) status = part->Write(db);
      }
    } catch (const std::bad_alloc&) {
      status = out_of_memory_;
    }
    if (status.ok()) status = db.Execute("COMMIT");
    if (!status.ok()) {
      // After a full disk SQLite may have rolled back by itself, and says so with an error of no interest.
      db.Execute("ROLLBACK").IgnoreError();
      return status;
    }
    taken_back_ = false;
    for (RunPart* part : parts()) {
      if (IsWhole(part)) part->Written();
    }
    return status;
  }

  // A step that is in some parts only would make their sums differ: what was committed before it stays as it is.
  bool IsWhole(const RunPart* part) const { return !half_a_step_ || part == &facts_; }

  // One file, without its log. Where there is no space for that, file and log together are as good.
  void SealIfPossible() {
    if (options_.disposable) return;
    db_.Execute("PRAGMA synchronous = NORMAL").IgnoreError();
    db_.Execute("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
    db_.Execute("PRAGMA journal_mode = DELETE").IgnoreError();
  }

  // To a new file in `folder`; its path.
  absl::StatusOr<std::string> SaveIn(const std::string& folder) {
    TRAINPERF_ASSIGN_OR_RETURN(const std::string path, MakeTemporaryRunFileIn(folder));
    absl::Status status;
    {
      absl::StatusOr<Database> db = OpenEmptyRun(path);
      status = db.status();
      for (RunPart* part : parts()) part->MarkAllUnwritten();
      if (status.ok()) status = WriteParts(*db);
    }
    if (status.ok()) return path;
    RemoveRunFile(path);
    return status;
  }

  // Memory holds the whole run: writes it to a temporary file, and says where.
  absl::Status Rescue(const absl::Status& cause) {
    if (half_a_step_) return cause;  // not the whole run any more
    absl::StatusOr<std::string> saved;
    std::string refusals;
    for (const std::string& folder : TemporaryFolders()) {
      saved = SaveIn(folder);
      if (saved.ok()) break;
      absl::StrAppend(&refusals, refusals.empty() ? "" : ", ", folder, ": ", saved.status().message());
    }
    const std::string what = absl::StrCat("the run file ", path_, " could not be completed: ", cause.message());
    if (!saved.ok()) {
      return absl::Status(cause.code(), absl::StrCat(what, "; nor could the run be saved elsewhere (", refusals, ")"));
    }
    // What is left of it would be taken for the run; but whatever has come in its place is not ours.
    if (file_.IsStillAt(path_)) RemoveRunFile(path_);
    path_ = *saved;
    return absl::Status(cause.code(), absl::StrCat(what, "; the whole run was saved to ", path_));
  }

  std::array<RunPart*, 9> parts() {
    return {&step_rows_, &kept_steps_, &device_rows_,   &sections_, &spans_,
            &loaders_,   &children_,   &distributions_, &facts_};
  }

  const RunWriterOptions options_;
  const pid_t pid_;
  std::string path_;
  const absl::Status out_of_memory_;  // made while there is some
  Database db_;
  StepRows step_rows_;
  KeptSteps kept_steps_;
  DeviceRows device_rows_;
  Sections sections_;
  Spans spans_;
  Loaders loaders_;
  Children children_;
  Distributions distributions_;
  Facts facts_;
  FileIdentity file_;
  FileIdentity log_;
  bool feeds_device_ = false;
  bool half_a_step_ = false;
  bool taken_back_ = false;  // the file still has what was
  int64_t unbalanced_steps_ = 0;
  bool finished_ = false;
  absl::Status result_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RunWriter>> RunWriter::Create(const std::string& path, const RunWriterOptions& options) {
  std::string made = path;
  if (path.empty()) {
    TRAINPERF_ASSIGN_OR_RETURN(made, MakeTemporaryRunFile());
  } else {
    TRAINPERF_RETURN_IF_ERROR(MakeRunFile(path, options.overwrite));
  }
  absl::StatusOr<Database> db = OpenEmptyRun(made);
  absl::Status status = db.status();
  if (status.ok()) {
    auto writer = std::make_unique<Writer>(made, *std::move(db), options);
    status = writer->Start();
    if (status.ok()) return writer;
  }
  db = absl::CancelledError();  // closes it
  RemoveRunFile(made);
  return absl::Status(status.code(), absl::StrCat("the run file ", made, " cannot be written: ", status.message()));
}

}  // namespace trainperf
