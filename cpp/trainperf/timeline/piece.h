// A piece of the step thread's time between two places where a step may end. Steps are made of whole pieces, so that a
// cut can be decided long after the fact.

#ifndef TRAINPERF_TIMELINE_PIECE_H_
#define TRAINPERF_TIMELINE_PIECE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "trainperf/timeline/detail_table.h"
#include "trainperf/timeline/records.h"
#include "trainperf/timeline/rows.h"
#include "trainperf/timeline/segment_list.h"

namespace trainperf {

// Why a step may end where a piece starts.
enum class Cut : uint8_t {
  kNone,                // the lead; or: to be known at the end of the fetch that starts here
  kStart,               // the first step starts here; certain
  kFetch,               // rule 2
  kMaybeFetch,          // rule 2, unless this is validation
  kDrained,             // the loader is exhausted, but a batch that was prefetched may still be trained on
  kOptimizerCandidate,  // rule 3, if no other optimizer steps before one steps again
  kOptimizerReplaced,   // rule 3, if it steps again before those of the iteration before do
  kOptimizer,           // rule 3
  kBackward,            // rule 4
  kExplicit,            // rule 1
  kCompile,             // in the lead: the first step may start with these compilations
};

// Nanoseconds of one row.
struct Measures {
  int64_t gil = 0;
  int64_t world_stop = 0;
  int64_t object_lock = 0;
  int64_t gc = 0;
  int64_t cpu = 0;
  int64_t delay = 0;        // on a run queue; not yet known whether throttled
  int64_t descheduled = 0;  // known not to be
  int64_t throttled = 0;
  int64_t blocked = 0;
  int64_t brief = 0;  // blocked too briefly for samples to say in what
  int64_t unknown = 0;
  bool has_told = false;
  std::array<int64_t, kMechanismCount> told{};  // calls, by their mechanism: taken out of all of the above

  Measures& operator+=(const Measures& m) {
    gil += m.gil;
    world_stop += m.world_stop;
    object_lock += m.object_lock;
    gc += m.gc;
    cpu += m.cpu;
    delay += m.delay;
    descheduled += m.descheduled;
    throttled += m.throttled;
    blocked += m.blocked;
    brief += m.brief;
    unknown += m.unknown;
    if (m.has_told) {
      has_told = true;
      for (size_t i = 0; i < told.size(); ++i) told[i] += m.told[i];
    }
    return *this;
  }
  int64_t total() const {
    return gil + world_stop + object_lock + gc + cpu + delay + descheduled + throttled + blocked + brief + unknown +
           told_total();
  }
  int64_t told_total() const {
    int64_t sum = 0;
    if (has_told) {
      for (const int64_t ns : told) sum += ns;
    }
    return sum;
  }
};

struct PendingFetch {
  FetchRecord record;
  bool tentative;
};

class Piece {
 public:
  static constexpr size_t kMaxPending = 1024;  // spans, and fetches; beyond, they go straight to the sink

  void Reset(int64_t start);
  // `later` follows immediately on this one.
  void Append(const Piece& later, size_t max_segments);
  void Add(Row row, const Measures& measures) {
    used |= 1u << row;
    rows[row] += measures;
  }
  void AddDetail(const DetailKey& key, int64_t ns, int64_t count) {
    (IsGap(key.row) ? gap_details : details).Add(key, ns, count);
  }
  void SettleGap(Row row);
  // All of it may be validation; is validation; is not.
  void MakeTentative();
  void Confirm();
  void Refute();
  int64_t unsettled_delay() const;
  bool has_cpu() const;
  int64_t end_ns() const { return end; }

  int64_t start_ns = 0;
  int64_t end = 0;
  Cut cut = Cut::kNone;
  int64_t start_cpu_ns = 0;  // of the step thread
  bool soft = false;         // validation may have ended here
  bool tentative = false;    // holds rows, or fetches, that may be validation's
  bool loader_start = false;
  bool tentative_loader_start = false;
  bool compiled = false;
  uint32_t flags = 0;
  int32_t fetches = 0;
  int32_t tentative_fetches = 0;
  int32_t backwards = 0;
  int32_t optimizer_steps = 0;
  int64_t compile_ns = 0;
  uint32_t used = 0;  // bit r: rows[r] is not all zero
  std::array<Measures, kRowCount> rows;
  DetailTable details;
  DetailTable gap_details;
  SegmentList segments;
  SegmentList host_log;  // the same, but in detail, and with the measures of what is unknown: while a device is fed
  std::vector<Span> spans;
  std::vector<PendingFetch> pending_fetches;

 private:
  template <typename RowFunction>
  void MoveRows(RowFunction&& new_row);
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_PIECE_H_
