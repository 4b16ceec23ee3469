#include "trainperf/cpython/got_patch.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace trainperf {
namespace {

using Getenv = char* (*)(const char*);

Getenv g_next = nullptr;
char g_hooked[] = "hooked";
char g_other[] = "other";

char* HookedGetenv(const char* name) {
  if (std::string(name) == "TRAINPERF_TEST") return g_hooked;
  return g_next(name);
}
char* OtherGetenv(const char*) { return g_other; }

// Another tool's, which passes on.
Getenv g_others_next = nullptr;
char* PassingGetenv(const char* name) {
  return std::string(name) == "TRAINPERF_PASSED" ? g_other : g_others_next(name);
}

// In this executable's own import table: an address within it, and a call that the compiler cannot fold.
int g_anchor = 0;
__attribute__((noinline)) std::string Call(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

absl::StatusOr<std::unique_ptr<GotPatch>> Patch(void* with) {
  auto patch = GotPatch::Install(&g_anchor, "getenv", with, dlsym(RTLD_DEFAULT, "getenv"));
  if (patch.ok()) g_next = reinterpret_cast<Getenv>((*patch)->original());
  return patch;
}

class GotPatchBelowAnother : public testing::Test {
 protected:
  // Ours, and theirs above it: where theirs passes on, it is to ours.
  void Put(Getenv theirs) {
    auto ours = Patch(reinterpret_cast<void*>(&HookedGetenv));
    ASSERT_TRUE(ours.ok()) << ours.status();
    const Getenv next = g_next;
    auto above = Patch(reinterpret_cast<void*>(theirs));
    ASSERT_TRUE(above.ok()) << above.status();
    g_others_next = &HookedGetenv;  // of what lies in this executable Patch() says that it is not bound yet
    g_next = next;
    ours_ = *std::move(ours);
    theirs_ = *std::move(above);
  }

  std::unique_ptr<GotPatch> ours_;
  std::unique_ptr<GotPatch> theirs_;
};

// Of this executable's mappings, with their addresses.
std::vector<std::string> Protections() {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  const std::string path(self, length > 0 ? static_cast<size_t>(length) : 0);
  std::ifstream maps("/proc/self/maps");
  std::vector<std::string> found;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(path) != std::string::npos) found.push_back(line.substr(0, line.find("p ")));
  }
  return found;
}

TEST(GotPatch, RedirectsPassesOnAndRestores) {
  setenv("TRAINPERF_ELSE", "real", 1);
  EXPECT_EQ(Call("TRAINPERF_TEST"), "");
  {
    auto patch = Patch(reinterpret_cast<void*>(&HookedGetenv));
    ASSERT_TRUE(patch.ok()) << patch.status();
    EXPECT_GE((*patch)->slots(), 1u);
    EXPECT_TRUE((*patch)->in_place());
    EXPECT_EQ(Call("TRAINPERF_TEST"), "hooked");
    EXPECT_EQ(Call("TRAINPERF_ELSE"), "real");
  }
  EXPECT_EQ(Call("TRAINPERF_TEST"), "");
  EXPECT_EQ(Call("TRAINPERF_ELSE"), "real");
}

TEST_F(GotPatchBelowAnother, LeavesItAlone) {
  ASSERT_NO_FATAL_FAILURE(Put(&OtherGetenv));
  EXPECT_FALSE(ours_->in_place());
  ours_.reset();
  EXPECT_EQ(Call("TRAINPERF_TEST"), "other");
  theirs_.reset();  // gives back what it found: ours, which still passes on
  EXPECT_EQ(Call("TRAINPERF_TEST"), "hooked");

  auto again = Patch(reinterpret_cast<void*>(&HookedGetenv));  // takes over what was left behind
  ASSERT_TRUE(again.ok());
  EXPECT_NE((*again)->original(), reinterpret_cast<void*>(&HookedGetenv));
  again->reset();
  EXPECT_EQ(Call("TRAINPERF_TEST"), "");
}

// Ours above the other's, which is above ours: each call would go round for ever.
TEST_F(GotPatchBelowAnother, IsNotPutAboveOneThatPassesOnToIt) {
  setenv("TRAINPERF_ELSE", "real", 1);
  void* const hook = reinterpret_cast<void*>(&HookedGetenv);
  ASSERT_NO_FATAL_FAILURE(Put(&PassingGetenv));
  ours_.reset();
  for (int i = 0; i < 2; ++i) {  // a refusal does not make the next one forget
    EXPECT_EQ(Patch(hook).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(Call("TRAINPERF_ELSE"), "real");
    EXPECT_EQ(Call("TRAINPERF_PASSED"), "other");
    EXPECT_EQ(Call("TRAINPERF_TEST"), "hooked");
  }
  theirs_.reset();
  for (int i = 0; i < 2; ++i) {
    auto again = Patch(hook);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(Call("TRAINPERF_ELSE"), "real");
    EXPECT_EQ(Call("TRAINPERF_TEST"), "hooked");
    again->reset();
    EXPECT_EQ(Call("TRAINPERF_TEST"), "");
  }

  // One that came when ours was out, and passes on to what was there then, is no trouble.
  auto theirs = Patch(reinterpret_cast<void*>(&PassingGetenv));
  ASSERT_TRUE(theirs.ok());
  g_others_next = g_next;
  auto ours = Patch(hook);
  ASSERT_TRUE(ours.ok()) << ours.status();
  g_next = &PassingGetenv;
  EXPECT_EQ(Call("TRAINPERF_ELSE"), "real");
  EXPECT_EQ(Call("TRAINPERF_PASSED"), "other");
  ours->reset();
  theirs->reset();
  EXPECT_EQ(Call("TRAINPERF_TEST"), "");
}

// It gave back not what it had found, ours, but the function itself.
TEST_F(GotPatchBelowAnother, IsPutBackWhereItIsGone) {
  void* const hook = reinterpret_cast<void*>(&HookedGetenv);
  ASSERT_NO_FATAL_FAILURE(Put(&PassingGetenv));
  ours_.reset();
  ASSERT_FALSE(Patch(hook).ok());
  auto real = Patch(dlsym(RTLD_DEFAULT, "getenv"));
  ASSERT_TRUE(real.ok());
  auto again = Patch(hook);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Call("TRAINPERF_TEST"), "hooked");
  again->reset();
  EXPECT_EQ(Call("TRAINPERF_TEST"), "");
  real->reset();                  // the other's,
  theirs_.reset();                // and ours, from which
  ASSERT_TRUE(Patch(hook).ok());  // it is taken over
  EXPECT_EQ(Call("TRAINPERF_TEST"), "");
}

TEST(GotPatch, ProtectionIsAsBefore) {
  const std::vector<std::string> before = Protections();
  ASSERT_FALSE(before.empty());
  auto patch = Patch(reinterpret_cast<void*>(&HookedGetenv));
  ASSERT_TRUE(patch.ok());
  EXPECT_EQ(Protections(), before);
  patch->reset();
  EXPECT_EQ(Protections(), before);
}

TEST(GotPatch, SaysWhenThereIsNothingToPatch) {
  EXPECT_EQ(GotPatch::Install(&g_anchor, "no_such_function", nullptr, nullptr).status().code(),
            absl::StatusCode::kNotFound);
  const int on_the_stack = 0;
  EXPECT_EQ(GotPatch::Install(&on_the_stack, "getenv", nullptr, nullptr).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace trainperf
