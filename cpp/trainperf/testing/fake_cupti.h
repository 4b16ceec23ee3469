// The controls of the scripted libcupti: a shared library with CUPTI's symbols, told what to do by a test.
//
//   TRAINPERF_CUPTI_PATH=.../libfakecupti.so python ...
//   fake = ctypes.CDLL(".../libfakecupti.so")
//   fake.fakecupti_set_version(24)
//   fake.fakecupti_launch(b"gemm", 7, 2_000_000)    # 2 ms of a GPU that does not exist
//   fake.fakecupti_synchronize()                    # sleeps until it would be done
//
// It does what the real one does to its clients, as far as it is known: records of the layout of the version that it
// pretends to be, buffers requested on the calling thread and withheld from a flush while a record is in flight, forced
// flushes that cut off records, one subscriber, whom calls call back, callbacks for buffers that the last one to
// register owns. Its buffers pass the real cuptiActivityGetNextRecord (golden_test.cc). Every produced record is
// delivered, dropped, or still held: it counts.
//
// All functions are thread-safe. Times are in ticks of the fake's clock unless they say _ns (CLOCK_MONOTONIC).

#ifndef TRAINPERF_TESTING_FAKE_CUPTI_H_
#define TRAINPERF_TESTING_FAKE_CUPTI_H_

#include <cstdint>

extern "C" {

// Everything as at the start.
void fakecupti_reset();

// What cuptiGetVersion says, and whose layouts the records have: 22 (12.4) ... 130500. At first 130001.
void fakecupti_set_version(uint32_t version);
// What a function returns instead of doing anything; 0 takes that back. "*": all of them but GetVersion;
// "cuptiEnableCallback 1": for the driver's calls, 2: the runtime's.
void fakecupti_set_result(const char* function, int result);
// Another tool has the subscription: cuptiSubscribe returns 39, and cuptiSubscribe_v2 tells this name ("" for none).
void fakecupti_set_other_subscriber(const char* name);

// The clock is CLOCK_REALTIME times ticks_per_ns plus an offset, or, after set_now, stands at what it was told.
void fakecupti_set_clock(double ticks_per_ns, int64_t offset);
void fakecupti_step_clock(int64_t ticks);
void fakecupti_set_now(uint64_t ticks);  // 0: runs again
uint64_t fakecupti_ticks_at(int64_t monotonic_ns);

void fakecupti_set_next_correlation(uint32_t id);
void fakecupti_set_worker(int on);            // buffers are delivered on a thread of the library's own
void fakecupti_set_reverse_delivery(int on);  // the newest buffer first
// Requests this many buffers and keeps them until 0 is asked for: the client runs out.
void fakecupti_hoard(int buffers);
// Kineto comes: registers its own callbacks, takes the clock if it is asked to, and (on == 0) disables everything.
void fakecupti_steal_callbacks(int on);
// A launch also makes a driver's record within the runtime's, when that call is traced.
void fakecupti_set_nested_driver_calls(int on);
// What runs when its kind is switched off leaves no record.
void fakecupti_set_cut_off(int on);

// What tracing takes of the thread that is traced, in nanoseconds: each kernel's record, each call that calls back (at
// both ends together), and each switching of one kind, or of one call's callback. At first nothing.
void fakecupti_set_costs(int64_t kernel_ns, int64_t call_ns, int64_t kind_ns, int64_t callback_ns);
// So many launches, for each of which the calling thread computes first: for so much of its own CPU time, whoever else
// is on the machine. In one call, as an interpreter between them takes another time by the second.
void fakecupti_feed(const char* name, uint32_t stream, int launches, int64_t gpu_ns, int64_t compute_ns);

// Records. `in_flight`: the record's times come with fakecupti_finish. Each returns 1 when its kind is traced.
int fakecupti_put_kernel(uint32_t device, uint32_t stream, uint32_t correlation, const char* name, uint64_t start,
                         uint64_t end, uint64_t graph_node, int in_flight);
int fakecupti_put_copy(uint32_t device, uint32_t stream, uint32_t correlation, int kind, int from, int to,
                       uint64_t bytes, uint64_t start, uint64_t end, int peer);
int fakecupti_put_memset(uint32_t device, uint32_t stream, uint32_t correlation, uint64_t bytes, uint64_t start,
                         uint64_t end);
int fakecupti_put_call(int driver, uint32_t cbid, uint32_t tid, uint32_t correlation, uint64_t start, uint64_t end,
                       uint32_t returned, uint32_t process);
int fakecupti_put_sync(int type, uint32_t correlation, uint64_t start, uint64_t end);
int fakecupti_put_overhead(uint32_t overhead, uint32_t tid, uint32_t correlation, uint64_t start, uint64_t end);
int fakecupti_put_jit(uint32_t operation, uint32_t correlation, uint64_t start, uint64_t end);
int fakecupti_put_unknown(uint32_t kind);  // needs no kind to be enabled
// Gives a kernel in flight its times; 0 and 0 are what a lost device buffer leaves.
void fakecupti_finish(uint32_t correlation, uint64_t start, uint64_t end);

// A GPU in small: calls of the calling thread, and work that its streams do one after the other, in real time. Only
// these call back.
uint32_t fakecupti_launch(const char* name, uint32_t stream, int64_t gpu_ns);
uint32_t fakecupti_copy(uint64_t bytes, int to_device, int pageable, uint32_t stream, int64_t gpu_ns);
void fakecupti_synchronize();  // cudaStreamSynchronize: sleeps until all is done
void fakecupti_call(int driver, uint32_t cbid, int64_t ns, uint32_t returned);  // any other call, which takes ns
void fakecupti_overhead_call(uint32_t overhead, int64_t ns);  // a launch that spends ns on an overhead first

// What happened.
int64_t fakecupti_calls(const char* function);
int fakecupti_kind_enabled(uint32_t kind);
int fakecupti_call_enabled(int driver, uint32_t cbid);  // as records, or calling back
int fakecupti_attribute(uint32_t attribute);
uint32_t fakecupti_thread_id_type();
int fakecupti_subscribed();
int64_t fakecupti_produced();
int64_t fakecupti_delivered();  // to whoever is not the thief
int64_t fakecupti_delivered_to_thief();
int64_t fakecupti_dropped();        // for want of a buffer
int64_t fakecupti_held();           // in buffers that were not returned yet
int64_t fakecupti_null_buffers();   // requests that were answered with NULL
int64_t fakecupti_crashes();        // what would have crashed a real one: NULL below API 27
int64_t fakecupti_dirty_buffers();  // said to be zeroed, and were not
int64_t fakecupti_requests();
// In which steps a watch would trace kernels (probe/cuda/trace_windows.h), by simulated time: `traced[i]` is 1 when all
// of step i is traced. A traced step costs `cost_ns` more.
void fakecupti_plan_windows(double share, uint64_t seed, int64_t steps, const int64_t* wall_ns, int64_t cost_ns,
                            int64_t switch_ns, uint8_t* traced);

int64_t fakecupti_disordered();  // calls that break CUPTI's rules: callbacks after kinds, and the like

}  // extern "C"

#endif  // TRAINPERF_TESTING_FAKE_CUPTI_H_
