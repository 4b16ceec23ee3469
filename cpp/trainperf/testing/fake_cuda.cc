// A scripted libcuda.so.1: what makes a machine look as if it had a driver. Loaded first, it is the one that
// dlopen("libcuda.so.1") finds, by its SONAME.

#include <cstddef>
#include <cstdint>
#include <cstdio>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {
int g_initialised = 0;
int g_context = 0;
int g_inits = 0;
constexpr int kNotInitialized = 3;
}  // namespace

// The controls: what the program, not the tracer, has done so far.
FAKE_EXPORT void fakecuda_set(int initialised, int context) {
  g_initialised = initialised;
  g_context = context;
}
FAKE_EXPORT int fakecuda_inits() { return g_inits; }

FAKE_EXPORT int cuInit(unsigned) {
  ++g_inits;
  g_initialised = 1;
  return 0;
}
FAKE_EXPORT int cuDeviceGetCount(int* count) {
  *count = 2;
  return g_initialised ? 0 : kNotInitialized;
}
FAKE_EXPORT int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return g_initialised ? 0 : kNotInitialized;
}
FAKE_EXPORT int cuDeviceGetName(char* name, int size, int device) {
  snprintf(name, static_cast<size_t>(size), "Scripted \"GPU\" %d", device);
  return g_initialised ? 0 : kNotInitialized;
}
FAKE_EXPORT int cuDeviceGetPCIBusId(char* id, int size, int device) {
  snprintf(id, static_cast<size_t>(size), "0000:%02x:00.0", 7 + device);
  return g_initialised ? 0 : kNotInitialized;
}
FAKE_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 132;
  return g_initialised ? 0 : kNotInitialized;
}
FAKE_EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = size_t{80} << 30;
  return g_initialised ? 0 : kNotInitialized;
}
FAKE_EXPORT int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = g_context;
  return g_initialised ? 0 : kNotInitialized;
}
FAKE_EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
