// What the two halves of the scripted libcupti share: its symbols (fake_cupti.cc) and its controls (fake_controls.cc).

#ifndef TRAINPERF_TESTING_FAKE_CUPTI_STATE_H_
#define TRAINPERF_TESTING_FAKE_CUPTI_STATE_H_

#include <atomic>
#include <bitset>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainperf/probe/cuda/cupti_abi.h"

namespace fakecupti {

struct InFlight {
  uint8_t* record;
  uint32_t correlation;
  uint64_t start, end;  // its times, once `due` has come; 0: told by fakecupti_finish
  uint64_t due;
};

struct Buffer {
  uint8_t* at = nullptr;
  size_t size = 0;
  size_t used = 0;
  int64_t records = 0;
  std::vector<InFlight> in_flight;
  trainperf::cupti::BufferCompleted owner = nullptr;  // set when it is on its way
  bool to_thief = false;
};

struct State {
  std::recursive_mutex mutex;  // held over the client's callbacks, as CUPTI's own locks are
  uint32_t version = 130001;
  std::map<std::string, int> results;
  std::map<std::string, int64_t> calls;
  int all_results = 0;

  bool subscribed = false;
  bool other_subscriber = false;
  std::string other_name;
  trainperf::cupti::BufferRequested requested = nullptr;
  trainperf::cupti::BufferCompleted completed = nullptr;
  bool stolen = false;
  std::bitset<64> kinds;
  trainperf::cupti::Callback callback = nullptr;
  void* callback_user = nullptr;
  std::bitset<1024> called_back[3];                      // by domain and call: what is off costs a launch nothing
  std::map<uint32_t, bool> runtime_calls, driver_calls;  // set one by one, since the kind was
  std::map<uint32_t, int> attributes = {{trainperf::cupti::kAttributePerThreadBuffers, 1}};
  uint32_t thread_id_type = 0;

  double ticks_per_ns = 1;
  int64_t clock_offset = 0;
  uint64_t stopped_at = 0;
  uint32_t next_correlation = 1;
  bool nested_driver = false;
  bool reverse = false;
  bool cut_off = false;

  std::map<uint64_t, Buffer> current;  // by thread; 0: of all threads
  std::deque<Buffer> waiting;          // full, with a record in flight
  std::vector<Buffer> hoard;
  std::map<uint32_t, int64_t> stream_free_ns;
  size_t unread_dropped = 0;
  std::atomic<int64_t> kernel_cost_ns{0}, call_cost_ns{0}, kind_cost_ns{0}, callback_cost_ns{0};

  int64_t produced = 0, dropped = 0, null_buffers = 0, crashes = 0, dirty = 0, requests = 0, disordered = 0;
  std::atomic<int64_t> delivered{0}, to_thief{0};

  // Delivery on a thread of its own.
  bool worker_on = false, worker_stop = false, worker_busy = false;
  std::thread worker;
  std::mutex queue_mutex;
  std::condition_variable queue_changed;
  std::deque<Buffer> queue;
};

State& Get();

// Counts the call; true when the script says what it returns.
bool Scripted(const char* function, int* result);

uint64_t Now();
uint64_t TicksAt(int64_t monotonic_ns);
int64_t MonotonicNs();
int64_t SleepUntilNs(int64_t monotonic_ns);
void SpinUntilNs(int64_t monotonic_ns);
uint32_t ThreadId();

size_t RecordSize(uint32_t kind);
bool Traced(uint32_t kind, int64_t cbid);
// Room for a record of this kind, zeroed and with its kind set; null when it is not traced, or dropped.
uint8_t* Put(uint32_t kind, int64_t cbid, Buffer** buffer);
void FinishDue();
void CutOff();  // what is in flight has no record any more
void Flush(bool forced);
bool NewBuffer(Buffer* buffer);
void Deliver(const Buffer& buffer);
void StopWorker();

}  // namespace fakecupti

#endif  // TRAINPERF_TESTING_FAKE_CUPTI_STATE_H_
