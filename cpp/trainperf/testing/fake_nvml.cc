// A scripted libnvidia-ml.so.1: a GPU at 0000:07:00.0 and one at 0000:08:00.0. Loaded first, it is the one that
// dlopen("libnvidia-ml.so.1") finds, by its SONAME.

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {
struct Answer {
  int code = 0;
  uint64_t value = 0;
};
std::map<std::string, Answer>& Answers() {
  static std::map<std::string, Answer> answers;
  return answers;
}
int g_begun = 0;
int g_slow_us = 0;

template <typename T>
int Told(const char* what, T* value) {
  const Answer answer = Answers()[what];
  if (answer.code == 0) *value = static_cast<T>(answer.value);
  return answer.code;
}
}  // namespace

// The controls: what a function returns, and the value that it tells.
FAKE_EXPORT void fakenvml_set(const char* what, int code, uint64_t value) { Answers()[what] = {code, value}; }
FAKE_EXPORT void fakenvml_slow(int us) { g_slow_us = us; }  // of each reading
FAKE_EXPORT int fakenvml_begun() { return g_begun; }        // without those that were shut down

FAKE_EXPORT const char* nvmlErrorString(int code) {
  switch (code) {
    case 3:
      return "Not Supported";
    case 4:
      return "Insufficient Permissions";
    case 9:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}
FAKE_EXPORT int nvmlInit_v2() {
  const int code = Answers()["init"].code;
  g_begun += code == 0;
  return code;
}
FAKE_EXPORT int nvmlShutdown() {
  --g_begun;
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  static int devices[2];
  const bool known = std::strcmp(id, "0000:07:00.0") == 0 || std::strcmp(id, "0000:08:00.0") == 0;
  *device = &devices[id[6] == '8'];
  return known ? Answers()["handle"].code : 6;
}
FAKE_EXPORT int nvmlDeviceGetUtilizationRates(void*, unsigned* both) {
  usleep(static_cast<useconds_t>(g_slow_us));
  return Told("busy", both);
}
FAKE_EXPORT int nvmlDeviceGetClockInfo(void*, int sort, unsigned* mhz) {
  return Told(sort == 1 ? "sm" : "memory", mhz);
}
FAKE_EXPORT int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* mhz) { return Told("sm_max", mhz); }
FAKE_EXPORT int nvmlDeviceGetPowerUsage(void*, unsigned* mw) { return Told("power", mw); }
FAKE_EXPORT int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* mw) { return Told("power_limit", mw); }
FAKE_EXPORT int nvmlDeviceGetMemoryInfo(void*, unsigned long long* total_free_used) {
  return Told("used", total_free_used + 2);
}
FAKE_EXPORT int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) { return Told("celsius", celsius); }
FAKE_EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  return Told("reasons", reasons);
}
