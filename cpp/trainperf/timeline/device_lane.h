// The devices' side of the timeline: takes their operations and the host's calls, waits until both are whole up to some
// time, and says of each step what every device did in it, and why it idled.
//
//   lane.OpenCell(start);                    // a step may end here; MergeCell(start): it does not after all
//   lane.OnCall(call); lane.OnOp(op);        // in order of their ends
//   lane.Settle(progress, limit);            // nothing that ends before `progress` will come
//   lane.CloseStep(piece, split, &record, &details);   // once settled_ns() has reached its end
//
// Memory is bounded: when more operations are pending than kMaxPending, the older ones are taken as they are, and the
// step that a late one would have belonged to is marked as incomplete.

#ifndef TRAINPERF_TIMELINE_DEVICE_LANE_H_
#define TRAINPERF_TIMELINE_DEVICE_LANE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "trainperf/base/name_table.h"
#include "trainperf/timeline/device_track.h"
#include "trainperf/timeline/idle_blame.h"
#include "trainperf/timeline/launcher_logs.h"

namespace trainperf {

class DeviceLane {
 public:
  static constexpr size_t kMaxPending = 262'144;
  static constexpr int64_t kMaxHoldNs = 2'000'000'000;  // for what may still be running, or come

  explicit DeviceLane(int max_segments) : max_segments_(static_cast<size_t>(max_segments < 1 ? 1 : max_segments)) {}

  void SetNames(const NameTable* names) { names_ = names; }
  // Whether a device is in use: steps then wait for it.
  bool active() const { return active_; }
  // Whether work was given to one.
  bool feeds() const { return feeds_; }

  // Any thread's. Returns up to when the call waited for the device's earlier work, if that can only be told by the
  // operation: 0 when it did not.
  int64_t OnCall(const Event& call);
  // For the step that is open now.
  void CountCall(const Event& call);
  void OnOp(const DeviceOp& op);
  void MarkIncomplete(uint32_t device);
  // From here on no device's work is traced: told at once, while what comes is of some time ago.
  void BeginUntraced(int64_t at_ns);
  // It was traced again since `on_ns`; of this device, whatever runs from `at_ns` on was launched since. A step that
  // has a part in between is untraced.
  void EndUntraced(uint32_t device, int64_t on_ns, int64_t at_ns);
  // What this thread does is in the host's log of pieces.
  void SetStepThread(ThreadId thread) { step_thread_ = thread; }
  // What the others do that give it work.
  LauncherLogs& launchers() { return launcher_logs_; }

  void OpenCell(int64_t start_ns);
  void MergeCell(int64_t start_ns);
  size_t cells() const { return cells_.size(); }

  // `limit_ns`: the host's own part goes no further.
  void Settle(int64_t progress_ns, int64_t limit_ns);
  void SettleAll(int64_t until_ns);
  int64_t settled_ns() const { return settled_ns_; }
  // Operations of devices beyond kMaxDevices: they are not told.
  int64_t refused_ops() const { return refused_ops_; }

  void CloseStep(const Piece& step, const SampleSplit& split, StepRecord* record, DetailTable* details);
  // What was before is of no step.
  void Drop(int64_t until_ns);

 private:
  static constexpr int64_t kNone = -1;
  static constexpr size_t kMaxUnjoined = 65'536;
  static constexpr size_t kMaxClosed = 64;
  static constexpr size_t kMaxSpare = 64;
  static constexpr size_t kMaxSpareBytes = 256 * 1024;

  struct Untraced {
    int64_t from_ns;
    int64_t to_ns;  // kNotYet: it goes on
  };
  static constexpr int64_t kNotYet = INT64_MAX;
  static constexpr size_t kMostUntraced = 64;  // more do not fit into the time that events wait

  DeviceTrack* TrackOf(uint32_t device);
  bool IsUntraced(size_t track, const Piece& step) const;
  // The loop may have ended with its last mark: what runs on behind it is then of no step. There is at most one such
  // cell: it goes with the next mark.
  void OpenCellBehind(int64_t mark_ns);
  // The cell of the step that is open now; nullptr: there is none.
  DeviceCell* OpenStep();
  void SettleTo(int64_t time_ns, int64_t idle_until_ns);
  int64_t hold_ns() const;
  void Store(std::unique_ptr<DeviceCell> cell);
  void Pour(DeviceCell& from, DeviceCell* into) const;
  void MakeStep(const DeviceTrack& track, DeviceSums& sums, const Piece& step, IdleBlame* blame, DeviceStep* out,
                DetailTable* details) const;

  const size_t max_segments_;
  const NameTable* names_ = nullptr;
  bool active_ = false;
  bool feeds_ = false;
  LaunchTable launches_;
  absl::flat_hash_map<ThreadId, int64_t> sync_ends_;
  ThreadId step_thread_ = 0;
  LauncherLogs launcher_logs_;
  std::vector<std::unique_ptr<DeviceTrack>> tracks_;
  std::vector<std::deque<Untraced>> untraced_;  // by track; what goes on comes last
  int64_t untraced_since_ns_ = kNotYet;         // of devices that come to be known
  absl::flat_hash_map<uint64_t, std::pair<size_t, DeviceOp>>
      unjoined_;  // operations whose call has not come: the track

  DeviceCells cells_;
  std::vector<std::unique_ptr<DeviceCell>> spare_;
  std::deque<int64_t> opened_;  // places where cells were opened once more
  std::deque<int64_t> closed_;
  int64_t behind_ns_ = kNone;  // where the cell behind the last mark starts
  uint64_t next_serial_ = 1;
  int64_t settled_ns_ = 0;
  int64_t last_settle_ns_ = 0;
  int64_t longest_ns_ = 0;
  int64_t ops_ = 0;
  int64_t refused_ops_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_TIMELINE_DEVICE_LANE_H_
