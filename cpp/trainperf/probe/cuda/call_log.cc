#include "trainperf/probe/cuda/call_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "trainperf/base/clock.h"
#include "trainperf/probe/cuda/call_table.h"

namespace trainperf {
namespace {

struct Local {
  uint32_t tid;
  uint64_t within;  // the look in which it entered a call of the runtime's that has not ended; 0: it is in none
};

// In the static TLS block: reached without __tls_get_addr, which may allocate.
__attribute__((tls_model("initial-exec"))) thread_local Local tls_local{};

}  // namespace

CallLog& CallLog::Get() {
  static CallLog* const log = new CallLog();
  return *log;
}

void CallLog::Open() {
  ring_.Drain([](const LoggedCall&) {});  // that ended while an earlier watch let go
  opened_ns_.store(NowNs(), std::memory_order_relaxed);
}

// A call that ends while nothing calls back leaves its thread within it: another look forgets that.
void CallLog::LookAgain() { look_.fetch_add(1, std::memory_order_relaxed); }

void CallLog::OnCall(int domain, uint32_t cbid, const cupti::CallbackData& data) {
  if (data.correlation_data == nullptr || dead_.load(std::memory_order_relaxed)) return;
  Local& local = tls_local;
  const bool driver = domain == cupti::kDriverDomain;
  const uint64_t look = look_.load(std::memory_order_relaxed);
  if (driver && local.within == look &&
      HostCallOf(CudaApi::kDriver, cbid) != static_cast<uint8_t>(HostCall::kModuleLoad)) {
    return;
  }
  if (data.site == cupti::kEnter) {
    if (!driver) local.within = look;
    *data.correlation_data = static_cast<uint64_t>(NowNs());
    return;
  }
  if (!driver) local.within = 0;
  const auto start_ns = static_cast<int64_t>(*data.correlation_data);
  *data.correlation_data = 0;
  const int64_t end_ns = NowNs();
  // It began before anyone looked, and what stands there is whatever was left.
  if (start_ns < opened_ns_.load(std::memory_order_relaxed) || start_ns > end_ns) return;
  if (local.tid == 0) local.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  const auto* const returned = static_cast<const int*>(data.returned);
  ring_.TryPush({start_ns, end_ns, data.correlation, local.tid, static_cast<uint16_t>(cbid), driver,
                 returned != nullptr && *returned != 0});
}

}  // namespace trainperf
