// A part of the run that is held whole in bounded memory, and knows what of it is not in the file yet.
//
//   for (RunPart* part : parts) part->Write(db);     // inside one transaction
//   for (RunPart* part : parts) part->Written();     // it was committed; after a rollback: nothing, and Write again
//   later
//
// Since memory holds everything, a run can be written anew into another file: MarkAllUnwritten(), then Write.

#ifndef TRAINPERF_RUN_RUN_PART_H_
#define TRAINPERF_RUN_RUN_PART_H_

#include "absl/status/status.h"
#include "trainperf/run/database.h"

namespace trainperf {

class RunPart {
 public:
  virtual ~RunPart() = default;
  virtual absl::Status Write(Database& db) = 0;
  virtual void Written() = 0;
  virtual void MarkAllUnwritten() = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_RUN_RUN_PART_H_
