// What is validation and what only looks like it.

#include "gtest/gtest.h"
#include "trainperf/timeline/script.h"

namespace trainperf {
namespace {

constexpr uint32_t kModel = 21, kTeacher = 22;  // modules

TEST(Validation, ValidationWithALoaderInsideAnEpoch) {
  Script loop;
  loop.LoaderStart(kTrain, 1_ms);
  for (int i = 0; i < 40; ++i) {
    loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    if (i % 10 == 9) {
      loop.Begin(Bracket::kEval, kModel).LoaderStart(kVal, 1_ms);
      for (int j = 0; j < 3; ++j) loop.Fetch(kVal, 5_ms, kGradDisabled).Forward(2_ms);
      loop.Exhausted(kVal, kGradDisabled).Cpu(1_ms).End(Bracket::kEval);
    }
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 40u);
  for (size_t i = 0; i < 40; ++i) {
    const Step& step = loop.steps()[i];
    EXPECT_EQ(step.has(kHasValidation), i % 10 == 9) << i;
    EXPECT_EQ(step.phase(Phase::kValidation), i % 10 == 9 ? 23_ms + 100_us : 0) << i;
    EXPECT_EQ(step.fetches, 1) << i;
    EXPECT_EQ(step.has(kHasLoaderStart), i == 0) << i;
  }
  ASSERT_EQ(loop.Spans(SpanKind::kValidation).size(), 4u);
  EXPECT_EQ(loop.Spans(SpanKind::kValidation)[1].step, 19);
  EXPECT_EQ(loop.Spans(SpanKind::kValidation)[1].object, kModel);
  int validation = 0;
  for (const FetchRecord& fetch : loop.sink().fetches) validation += fetch.validation && !fetch.exhausted;
  EXPECT_EQ(validation, 12);
}

TEST(Validation, ValidationWithoutALoader) {
  Script loop;
  for (int i = 0; i < 20; ++i) {
    loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms).Cpu(1_ms);
    if (i == 5) loop.Begin(Bracket::kEval, kModel, -1, kGradDisabled).Cpu(9_ms).End(Bracket::kEval);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  EXPECT_EQ(loop.steps()[5].phase(Phase::kValidation), 9_ms);
  EXPECT_EQ(loop.steps()[5].phase(Phase::kOther), 1_ms);
  EXPECT_EQ(loop.Phases(Phase::kValidation), 9_ms);
}

TEST(Validation, ValidationBetweenEpochsThatForgetsTrainMode) {
  Script loop;
  for (int epoch = 0; epoch < 3; ++epoch) {
    loop.LoaderStart(kTrain, 1_ms);
    for (int i = 0; i < 5; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.Exhausted(kTrain);
    if (epoch == 0) loop.Begin(Bracket::kEval, kModel);  // never back: there is no second switch
    loop.LoaderStart(kVal, 1_ms);
    for (int j = 0; j < 3; ++j) loop.Fetch(kVal, 4_ms, kGradDisabled).Forward(2_ms);
    loop.Exhausted(kVal, kGradDisabled);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 15u);
  EXPECT_EQ(loop.steps()[4].phase(Phase::kValidation), 19_ms + 100_us);
  EXPECT_EQ(loop.steps()[9].phase(Phase::kValidation), 19_ms + 100_us);  // opened by the fetch, from its iter()
  EXPECT_EQ(loop.steps()[14].phase(Phase::kValidation), 19_ms + 100_us);
  EXPECT_EQ(loop.steps()[5].phase(Phase::kFetch), 2_ms);
  EXPECT_TRUE(loop.steps()[5].has(kHasLoaderStart));
}

TEST(Validation, ValidationThenALoaderThatTrainingHasNotUsedYet) {
  Script loop;  // a new DataLoader each epoch, train mode forgotten: the gradients tell
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    loop.LoaderStart(100 + epoch, 1_ms);
    for (int i = 0; i < 5; ++i) loop.Fetch(100 + epoch, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.Exhausted(100 + epoch).LoaderStart(kVal, 1_ms);
    for (int j = 0; j < 3; ++j) loop.Fetch(kVal, 4_ms, kGradDisabled).Forward(2_ms);
    loop.Exhausted(kVal, kGradDisabled);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 15u);
  EXPECT_EQ(loop.steps()[4].phase(Phase::kValidation), 19_ms + 100_us);
  EXPECT_EQ(loop.steps()[9].phase(Phase::kValidation), 19_ms + 100_us);
  EXPECT_EQ(loop.steps()[5].phase(Phase::kFetch), 2_ms);
  EXPECT_EQ(loop.steps()[5].phase(Phase::kForward), 2_ms);
  EXPECT_EQ(loop.steps()[5].fetches, 1);
}

TEST(Validation, ValidationBeforeTraining) {  // a sanity check, or a baseline
  Script loop;
  loop.Begin(Bracket::kEval, kModel).LoaderStart(kVal, 1_ms);
  for (int j = 0; j < 2; ++j) loop.Fetch(kVal, 4_ms, kGradDisabled).Forward(2_ms);
  loop.End(Bracket::kEval).LoaderStart(kTrain, 1_ms);
  for (int i = 0; i < 10; ++i) loop.Fetch(kTrain, 1_ms).Forward(2_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.Phases(Phase::kValidation), 0);
  EXPECT_EQ(loop.timeline().lead_ns(), 13_ms);
  EXPECT_EQ(loop.steps()[0].wall(), 7_ms);
  ASSERT_EQ(loop.Spans(SpanKind::kValidation).size(), 1u);
  EXPECT_EQ(loop.Spans(SpanKind::kValidation)[0].step, -1);
  EXPECT_EQ(loop.timeline().incomplete_steps(), 0);
}

TEST(Validation, TeacherModelIsNoValidation) {
  Script loop;
  loop.Begin(Bracket::kEval, kTeacher).Cpu(5_ms).LoaderStart(kTrain, 1_ms);
  for (int i = 0; i < 20; ++i) loop.Fetch(kTrain, 1_ms).Forward(4_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  EXPECT_EQ(loop.Phases(Phase::kValidation), 0);
  EXPECT_EQ(loop.steps()[0].phase(Phase::kFetch), 2_ms);
  EXPECT_EQ(loop.steps()[0].phase(Phase::kForward), 4_ms);
  EXPECT_EQ(loop.steps()[0].fetches, 1);
  EXPECT_TRUE(loop.Spans(SpanKind::kValidation).empty());
}

TEST(Validation, TeacherSwitchedInTheMiddleOfTraining) {
  Script loop;
  for (int i = 0; i < 20; ++i) {
    loop.Fetch(kTrain, 1_ms);
    if (i == 7) loop.Begin(Bracket::kEval, kTeacher);
    loop.Forward(4_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  EXPECT_EQ(loop.Phases(Phase::kValidation), 0);
  EXPECT_EQ(loop.steps()[7].phase(Phase::kForward), 4_ms);
}

TEST(Validation, TrainingFetchesUnderNoGrad) {
  Script loop;
  for (int i = 0; i < 20; ++i) {
    loop.Fetch(kTrain, 1_ms, kGradDisabled).Forward(4_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
  }
  loop.Exhausted(kTrain, kGradDisabled).Finish();
  ASSERT_EQ(loop.steps().size(), 20u);
  EXPECT_EQ(loop.steps()[3].phase(Phase::kFetch), 1_ms);
  EXPECT_EQ(loop.steps()[3].phase(Phase::kForward), 4_ms);
  EXPECT_EQ(loop.steps()[3].fetches, 1);
}

TEST(Validation, EvaluationOnTheTrainingLoader) {
  Script loop;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i < 5; ++i) loop.Fetch(kTrain, 1_ms).Forward(4_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    loop.Exhausted(kTrain);
    for (int i = 0; i < 5; ++i) loop.Fetch(kTrain, 1_ms, kGradDisabled).Forward(4_ms);
    loop.Exhausted(kTrain, kGradDisabled);
  }
  loop.Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[4].phase(Phase::kValidation), 25_ms + 100_us);
  EXPECT_EQ(loop.steps()[5].fetches, 1);
}

TEST(Validation, ValidationAsAPhaseOfTheUsers) {
  Script loop;
  for (int i = 0; i < 10; ++i) {
    loop.Fetch(kTrain, 1_ms).Forward(4_ms).Backward(2_ms).Optimizer(kAdam, 1_ms);
    if (i == 4) {
      loop.Begin(Bracket::kUserPhase, 0, -1, 0, Phase::kValidation).Fetch(kVal, 3_ms).Forward(2_ms);
      loop.Fetch(kVal, 3_ms).Forward(2_ms).End(Bracket::kUserPhase, 0, Phase::kValidation);
    }
  }
  loop.Exhausted(kTrain).Finish();
  ASSERT_EQ(loop.steps().size(), 10u);
  EXPECT_EQ(loop.steps()[4].phase(Phase::kValidation), 10_ms);
  EXPECT_TRUE(loop.steps()[4].has(kHasValidation));
  EXPECT_EQ(loop.steps()[4].fetches, 1);
  EXPECT_EQ(loop.Spans(SpanKind::kValidation).size(), 1u);
}

}  // namespace
}  // namespace trainperf
