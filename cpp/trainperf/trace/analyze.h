// A trace to a run file: the same timeline and the same writer as those of a watch.
//
//   TRAINPERF_ASSIGN_OR_RETURN(TraceSummary summary, AnalyzeTrace("t.json.gz", options));
//   summary.path

#ifndef TRAINPERF_TRACE_ANALYZE_H_
#define TRAINPERF_TRACE_ANALYZE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace trainperf {

struct AnalyzeOptions {
  std::string output;  // "": a private temporary file
  bool overwrite = false;
  int threads = 0;
  std::map<std::string, std::string> meta;  // besides what the trace tells
  std::function<bool(double)> progress;     // as TraceReadOptions::progress
};

struct TraceSummary {
  std::string path;  // of the run file
  int64_t events = 0;
  int64_t devices = 0;  // that did something
  int64_t rank = -1;    // -1: the trace does not tell
};

// The status of ReadTrace() or of RunWriter::Create(); no run file is left behind then.
absl::StatusOr<TraceSummary> AnalyzeTrace(const std::string& trace_path, const AnalyzeOptions& options);

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_ANALYZE_H_
