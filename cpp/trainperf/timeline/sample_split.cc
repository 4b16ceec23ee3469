#include "trainperf/timeline/sample_split.h"

#include <algorithm>
#include <cmath>

namespace trainperf {
namespace {

constexpr int kAllPhases = kPhaseCount;

// Elsewhere blocked time is the phase's own whatever it waits for.
bool TrainsIn(Phase phase) {
  return phase == Phase::kForward || phase == Phase::kBackward || phase == Phase::kOptimizer ||
         phase == Phase::kOther || phase == Phase::kValidation;
}

int64_t Part(int64_t whole, double share) {
  return std::clamp<int64_t>(static_cast<int64_t>(std::llround(static_cast<double>(whole) * share)), 0, whole);
}

}  // namespace

void SampleSplit::Add(SampleState state, double ns, Weights* weights) {
  switch (state) {
    case SampleState::kPython:
      weights->python += ns;
      break;
    case SampleState::kNative:
      weights->native += ns;
      break;
    case SampleState::kParallel:
      weights->parallel += ns;
      break;
    case SampleState::kBlocked:
      weights->blocked += ns;
      break;
    default:
      break;
  }
}

void SampleSplit::SeeAhead(SampleState state, int64_t ns) { Add(state, static_cast<double>(ns), &ahead_); }

void SampleSplit::AddSamples(const Piece& step) {
  std::array<int64_t, kPhaseCount + 1> counts{};
  for (const DetailTable::Entry& entry : step.details.entries()) {
    if (entry.key.kind != DetailKind::kSample) continue;
    counts[static_cast<size_t>(PhaseOf(entry.key.row))] += entry.count;
    counts[kAllPhases] += entry.count;
  }
  if (counts[kAllPhases] == 0) return;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const double fade = std::exp2(-static_cast<double>(counts[i]) / kHalfLife);
    weights_[i].python *= fade;
    weights_[i].native *= fade;
    weights_[i].parallel *= fade;
    weights_[i].blocked *= fade;
  }
  for (const DetailTable::Entry& entry : step.details.entries()) {
    if (entry.key.kind != DetailKind::kSample) continue;
    const double ns = static_cast<double>(entry.ns);
    for (Weights* weights : {&weights_[static_cast<size_t>(PhaseOf(entry.key.row))], &weights_[kAllPhases]}) {
      Add(entry.key.state, ns, weights);
    }
  }
}

void SampleSplit::Split(Phase phase, const Measures& m, int64_t (&ns)[kMechanismCount]) const {
  const auto add = [&ns](Mechanism mechanism, int64_t value) { ns[static_cast<size_t>(mechanism)] += value; };
  const Weights& own = weights_[static_cast<size_t>(phase)];
  const Weights& every = weights_[kAllPhases];
  add(Mechanism::kGilWait, m.gil);
  add(Mechanism::kWorldStop, m.world_stop);
  add(Mechanism::kObjectLock, m.object_lock);
  add(Mechanism::kGc, m.gc);
  add(Mechanism::kDescheduled, m.descheduled + m.delay);
  add(Mechanism::kThrottled, m.throttled);
  add(Mechanism::kUnknown, m.unknown);
  if (m.has_told) {
    for (size_t i = 0; i < m.told.size(); ++i) ns[i] += m.told[i];
  }
  if (m.cpu > 0) {
    const Weights& all = every.python + every.native > 0 ? every : ahead_;
    const Weights& w = own.python + own.native > 0 ? own : all;
    if (w.python + w.native > 0) {
      const int64_t python = Part(m.cpu, w.python / (w.python + w.native));
      add(Mechanism::kPython, python);
      add(Mechanism::kNative, m.cpu - python);
    } else {
      add(Mechanism::kUnknown, m.cpu);
    }
  }
  int64_t parallel = 0;
  if (m.blocked > 0 && TrainsIn(phase)) {
    const Weights& all = every.parallel + every.blocked > 0 ? every : ahead_;
    const Weights& w = own.parallel + own.blocked > 0 ? own : all;
    if (w.parallel > 0) parallel = Part(m.blocked, w.parallel / (w.parallel + w.blocked));
  }
  add(Mechanism::kNative, parallel);
  add(Mechanism::kBlocked, m.blocked - parallel + m.brief);
}

}  // namespace trainperf
