// Test support: the scripted libcupti and libcuda, loaded, with their controls.

#ifndef TRAINPERF_PROBE_CUDA_FAKE_FOR_TEST_H_
#define TRAINPERF_PROBE_CUDA_FAKE_FOR_TEST_H_

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "trainperf/base/clock.h"
#include "trainperf/probe/cuda/cupti_api.h"
#include "trainperf/testing/fake_cupti.h"

namespace trainperf {

// FAKE(fake, put_kernel)(...): the control fakecupti_put_kernel.
#define FAKE(fake, name) (fake).Control<decltype(fakecupti_##name)>("fakecupti_" #name)

class Fake {
 public:
  Fake() : handle_(dlopen(TRAINPERF_FAKE_CUPTI, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) ADD_FAILURE() << dlerror();
  }

  template <typename Function>
  Function* Control(const char* name) const {
    auto* control = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (control == nullptr) ADD_FAILURE() << name;
    return control;
  }

  CuptiApi Load() const {
    auto api = CuptiApi::Load({}, TRAINPERF_FAKE_CUPTI);
    EXPECT_TRUE(api.ok()) << api.status();
    return *api;
  }

  // Makes the machine look as if it had a driver, for the rest of the process.
  static void LoadDriver() {
    static void* const driver = dlopen(TRAINPERF_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(driver, nullptr) << dlerror();
  }

  uint64_t Ticks(int64_t ns) const { return FAKE(*this, ticks_at)(ns); }

  // A kernel of [from, until] that was launched by this thread just before.
  void Kernel(uint32_t correlation, int64_t from_ns, int64_t until_ns, const char* name = "kernel") const {
    FAKE(*this, put_kernel)(0, 7, correlation, name, Ticks(from_ns), Ticks(until_ns), 0, 0);
  }
  void Call(uint32_t cbid, uint32_t correlation, int64_t from_ns, int64_t until_ns, int driver = 0) const {
    FAKE(*this, put_call)
    (driver, cbid, static_cast<uint32_t>(syscall(SYS_gettid)), correlation, Ticks(from_ns), Ticks(until_ns), 0,
     static_cast<uint32_t>(getpid()));
  }

 private:
  void* handle_;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CUDA_FAKE_FOR_TEST_H_
