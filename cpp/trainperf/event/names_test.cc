#include "trainperf/event/names.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace trainperf {
namespace {

TEST(Names, EveryWordIsThereOnce) {
  const auto distinct = [](const auto& names) {
    std::set<std::string> words;
    for (const char* name : names) {
      ASSERT_NE(name, nullptr);
      EXPECT_TRUE(words.insert(name).second) << name;
    }
  };
  distinct(kPhaseNames);
  distinct(kMechanismNames);
  distinct(kCauseNames);
  distinct(kSampleStateNames);
}

TEST(CauseOf, MechanismsThatKeepTheirNameInEveryPhase) {
  for (int p = 0; p < kPhaseCount; ++p) {
    const Phase phase = static_cast<Phase>(p);
    EXPECT_EQ(CauseOf(phase, Mechanism::kGilWait, false), Cause::kGilWait);
    EXPECT_EQ(CauseOf(phase, Mechanism::kGc, false), Cause::kGc);
    EXPECT_EQ(CauseOf(phase, Mechanism::kDescheduled, true), Cause::kDescheduled);
    EXPECT_EQ(CauseOf(phase, Mechanism::kThrottled, true), Cause::kThrottled);
  }
}

TEST(CauseOf, PhasesThatNameTheRest) {
  EXPECT_EQ(CauseOf(Phase::kFetch, Mechanism::kBlocked, false), Cause::kDataWait);
  EXPECT_EQ(CauseOf(Phase::kFetch, Mechanism::kPython, false), Cause::kDataWait);
  EXPECT_EQ(CauseOf(Phase::kTransfer, Mechanism::kNative, true), Cause::kH2dCopy);
  EXPECT_EQ(CauseOf(Phase::kCheckpoint, Mechanism::kBlocked, false), Cause::kCheckpoint);
  EXPECT_EQ(CauseOf(Phase::kValidation, Mechanism::kNative, false), Cause::kValidation);
  EXPECT_EQ(CauseOf(Phase::kLogging, Mechanism::kUnknown, false), Cause::kLogging);
}

TEST(CauseOf, MechanismsOfTheTrainingItself) {
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kOptimizer, Phase::kOther}) {
    EXPECT_EQ(CauseOf(phase, Mechanism::kBlocked, false), Cause::kBlockedIo);
    EXPECT_EQ(CauseOf(phase, Mechanism::kPython, false), Cause::kPython);
    EXPECT_EQ(CauseOf(phase, Mechanism::kNative, false), Cause::kCompute);
    EXPECT_EQ(CauseOf(phase, Mechanism::kNative, true), Cause::kLaunch);
    EXPECT_EQ(CauseOf(phase, Mechanism::kGpuWait, true), Cause::kGpuWait);
    EXPECT_EQ(CauseOf(phase, Mechanism::kUnknown, false), Cause::kUnknown);
  }
}

}  // namespace
}  // namespace trainperf
