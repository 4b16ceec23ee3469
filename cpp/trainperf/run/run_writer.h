// Writes a run file: SQLite, in the schema of schema.sql, bounded in size and memory whatever the run's length.
//
//   TRAINPERF_ASSIGN_OR_RETURN(auto writer, RunWriter::Create(path, {}));
//   writer->SetMeta("python", "3.11.7");
//   Timeline timeline(options, writer.get());   // a RunWriter is the timeline's sink
//   ... writer->Commit();                       // every few seconds: one transaction
//   writer->Finish("normally");
//
// Used by one thread at a time (the collector's). Between commits everything is held in bounded memory, so a failed
// commit (a full disk) loses nothing: it is tried again at the next.

#ifndef TRAINPERF_RUN_RUN_WRITER_H_
#define TRAINPERF_RUN_RUN_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainperf/base/name_table.h"
#include "trainperf/base/stack_table.h"
#include "trainperf/event/counter.h"
#include "trainperf/event/worker_sample.h"
#include "trainperf/timeline/records.h"

namespace trainperf {

struct RunWriterOptions {
  bool overwrite = false;
  bool feeds_device = false;  // from the first step on; else once a step says so
  // What is written can be made again from its source: it is written at the end, without a log, and not synced. A kill
  // in that moment leaves a damaged file, and a power cut soon after may.
  bool disposable = false;
  int max_step_rows = 16384;  // beyond, old neighbours merge: a row then stands for several steps
  int worst_steps = 64;       // keep their segments
  int max_flagged = 256;      // flagged steps that keep their segments too, besides the worst
  int sections = 64;          // details are summed per section of the run
  int details_per_section = 512;
  int max_spans = 2048;  // per kind; the longest are kept
};

struct WorkerReading {
  uint32_t loader;
  int32_t pid;
  int64_t at_ns;
  int64_t cpu_ns;  // user + system so far
  char state;      // R S D Z ... of /proc/PID/stat; '?' when it is gone
  bool at_work;    // the loader's workers have started: as many batches have come as it has workers
};

struct WorkerLook {
  uint32_t loader;
  int32_t pid;
  int64_t syscall;  // that its main thread is in; -1: in none
  bool shared;      // a futex that other processes may wait in too
};

// Another process that this one started, or one of those; as far as it is known now.
struct ChildReading {
  uint32_t id;  // from 1 on
  int32_t pid;
  int64_t first_ns, last_ns;  // seen from, to
  int64_t cpu_ns;             // user + system, between these
  std::string name;           // as multiprocessing calls it; "": not known
  std::string command;        // "ffmpeg", "python serve.py"
};

struct HostReading {  // once a second
  int64_t at_ns;
  int64_t process_cpu_ns;   // this process, so far
  int64_t machine_busy_ns;  // all CPUs, so far
  int64_t machine_idle_ns;
  int64_t throttled_ns;  // cgroup, so far; -1: not known
  int64_t rss_bytes;
  int32_t threads;   // of this process
  int32_t runnable;  // of the machine
  // Of the step thread, so far; -1: not known.
  int64_t faults = -1;     // minor page faults
  int64_t system_ns = -1;  // CPU time in the kernel
  // The most that the process' private writable memory shrank by in the second before, looked at several times; -1: not
  // known.
  int64_t returned_bytes = -1;
};

class RunWriter : public TimelineSink {
 public:
  // AlreadyExists: the path exists and overwrite is false. InvalidArgument: it is a directory or another thing that is
  // no file. NotFound: its folder is missing. PermissionDenied: the folder may not be written to. Other codes: no
  // space, ... An empty path makes a private file in TMPDIR, whose path() tells where; whoever reads the run last
  // removes it.
  static absl::StatusOr<std::unique_ptr<RunWriter>> Create(const std::string& path, const RunWriterOptions& options);
  ~RunWriter() override = default;

  virtual const std::string& path() const = 0;
  // The last one wins; but feeds_device, once it is 1, stays so, and says that native time is named launch in all
  // steps.
  virtual void SetMeta(const std::string& key, const std::string& value) = 0;
  virtual void AddNote(const std::string& text) = 0;  // for people; equal texts are counted once
  virtual void SetTier(const std::string& probe, const std::string& tier, const std::string& why) = 0;
  // No name, or no role: what is known of it stays.
  virtual void SetThread(ThreadId id, int32_t native_tid, const std::string& name, const std::string& role) = 0;
  virtual void SetThreadGilWait(ThreadId id, int64_t wait_ns, int64_t waits) = 0;
  // An object of the user's: kind is "loader", "optimizer", "module"; description is JSON.
  virtual void SetObject(uint32_t id, const std::string& kind, const std::string& description) = 0;
  // A device that runs work of this process: description is JSON. Written once it did something.
  virtual void SetDevice(uint32_t id, const std::string& name, const std::string& description_json) = 0;
  // Where the names of kernels are; must outlive Finish().
  virtual void SetNames(const NameTable* names) = 0;
  virtual void AddWorkerReading(const WorkerReading& reading) = 0;
  // Of a worker that was read before.
  virtual void AddWorkerLook(const WorkerLook& look) = 0;
  virtual void AddWorkerSample(const WorkerSample& sample) = 0;  // of a child process, too
  virtual void SetChild(const ChildReading& child) = 0;
  // `machine`: what it did so far; names that are new beyond 256 are left out.
  virtual void AddHostReading(const HostReading& reading, const std::vector<Counter>& machine = {}) = 0;
  // Our own cost so far: `where` is "collector", "sampler", "marks", "gil_hook".
  virtual void SetOverhead(const std::string& where, int64_t ns) = 0;
  virtual void SetDropped(const std::string& what, int64_t count) = 0;
  // Writes the stacks and sites that are new since the last commit.
  virtual void SetStacks(const StackTable* table) = 0;

  virtual absl::Status Commit() = 0;
  // `ended`: "normally", "exception". A file without it was killed. Throws nothing; ResourceExhausted: the disk is
  // full, or there was no memory left.
  virtual absl::Status Finish(const std::string& ended) = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_RUN_WRITER_H_
