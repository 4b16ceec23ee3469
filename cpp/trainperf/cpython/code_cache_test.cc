// Code objects made by hand, of a layout of our own: what no interpreter here has, as a thread's own copies of the
// bytecode.

#include "trainperf/cpython/code_cache.h"

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "trainperf/cpython/offsets.h"

namespace {

const char g_code_type = 0;

struct Text {
  char text[32];
};

struct Bytes {
  const void* type;
  int64_t size;
  uint8_t data[24];
};

struct Code {
  const void* type;
  int64_t units;  // of two bytes each
  int32_t first_line;
  const Text* file;
  const Text* name;
  const Bytes* lines;
  const void* copies;
  uint8_t bytecode[16];
};

}  // namespace

// In the place of CPython's.
extern "C" {
TpPythonOffsets tp_python_offsets = {};
const void* TpCodeTypeAddress(void) { return &g_code_type; }
int TpObjectIsInUse(const void*) { return 1; }
int TpUnicodeLayout(const void* header, int64_t* length, int* kind, int* data_offset) {
  *length = static_cast<int64_t>(strnlen(static_cast<const char*>(header), sizeof(Text)));
  *kind = 1;
  *data_offset = 0;
  return 1;
}
}

namespace trainperf {
namespace {

class CodeCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    TpPythonOffsets& to = tp_python_offsets;
    to = TpPythonOffsets{};
    to.object_type = offsetof(Code, type);
    to.bytes_size = offsetof(Code, units);
    to.code_identity = offsetof(Code, first_line);
    to.code_identity_end = offsetof(Code, copies);
    to.code_first_line = offsetof(Code, first_line);
    to.code_filename = offsetof(Code, file);
    to.code_name = offsetof(Code, name);
    to.code_linetable = offsetof(Code, lines);
    to.code_tlbc = offsetof(Code, copies);
    to.code_instructions = offsetof(Code, bytecode);
    to.code_read_size = offsetof(Code, bytecode);
    to.bytes_data = offsetof(Bytes, data);
    to.unicode_read_size = sizeof(Text);
    StackTable::Get().Init();
    copies_[0] = 2;
    copies_[1] = reinterpret_cast<uint64_t>(code_.bytecode);
    copies_[2] = reinterpret_cast<uint64_t>(own_);
  }

  // The line of the instruction at an address; -1: it was refused.
  int Line(const uint8_t* instruction, int32_t bytecode) {
    const CodePosition position = {0, reinterpret_cast<uint64_t>(&code_), reinterpret_cast<uint64_t>(instruction),
                                   bytecode};
    SiteId site = 0;
    return cache_.Resolve(memory_, &position, 1, &site) ? StackTable::Get().site(site).line : -1;
  }

  const ProcessMemory memory_ = ProcessMemory::Open();
  CodeCache cache_;
  const Text file_ = {"train.py"};
  const Text name_ = {"step"};
  uint64_t copies_[3] = {};
  uint8_t own_[16] = {};
  const Bytes lines_ = {nullptr, 4, {0x80 | (11 << 3) | 3, 0, 0x80 | (11 << 3) | 3, 0}};  // 4 units a line: 11, 12
  Code code_ = {&g_code_type, 8, 10, &file_, &name_, &lines_, copies_, {}};
};

TEST_F(CodeCacheTest, FindsTheLineInEachCopyOfTheBytecode) {
  EXPECT_EQ(Line(code_.bytecode, 0), Line(own_, 1));
  EXPECT_EQ(Line(code_.bytecode + 10, 0), Line(own_ + 10, 1));
  EXPECT_NE(Line(own_, 1), Line(own_ + 10, 1));
  EXPECT_GE(Line(own_, 1), 10);
}

TEST_F(CodeCacheTest, RefusesWhatIsInNoCopy) {
  EXPECT_EQ(Line(own_, 2), -1);  // there are two
  EXPECT_EQ(Line(own_, -1), -1);
  EXPECT_EQ(Line(own_ + 16, 1), -1);       // behind its end
  EXPECT_EQ(Line(code_.bytecode, 1), -1);  // another copy's
}

}  // namespace
}  // namespace trainperf
