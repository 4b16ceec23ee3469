#include "trainperf/probe/cuda/call_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "trainperf/base/clock.h"
#include "trainperf/probe/cuda/call_table.h"

namespace trainperf {
namespace {

struct Local {
  uint32_t tid;
  uint64_t within;  // the generation in which it entered a call of the runtime's that has not ended; 0: none
};
thread_local Local tls_local{};

}  // namespace

CallLog& CallLog::Get() {
  static CallLog* const log = new CallLog();
  return *log;
}

// A call that ends while nothing calls back leaves its thread within it: another generation forgets that.
void CallLog::Begin() { generation_.fetch_add(1, std::memory_order_relaxed); }

void CallLog::OnCall(int domain, uint32_t cbid, const cupti::CallbackData& data) {
  if (data.correlation_data == nullptr || dead_.load(std::memory_order_relaxed)) return;
  Local& local = tls_local;
  const bool driver = domain == cupti::kDriverDomain;
  const uint64_t generation = generation_.load(std::memory_order_relaxed);
  if (driver && local.within == generation &&
      HostCallOf(CudaApi::kDriver, cbid) != static_cast<uint8_t>(HostCall::kModuleLoad)) {
    return;
  }
  if (data.site == cupti::kEnter) {
    if (!driver) local.within = generation;
    *data.correlation_data = static_cast<uint64_t>(NowNs());
    return;
  }
  if (!driver) local.within = 0;
  const auto start_ns = static_cast<int64_t>(*data.correlation_data);
  if (start_ns == 0) return;  // it began before anyone looked
  if (local.tid == 0) local.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  const auto* const returned = static_cast<const int*>(data.returned);
  ring_.TryPush({start_ns, NowNs(), data.correlation, local.tid, static_cast<uint16_t>(cbid), driver,
                 returned != nullptr && *returned != 0});
}

}  // namespace trainperf
