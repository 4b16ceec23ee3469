// Feeds the decoder and what follows it with broken activity buffers for so many seconds: `make fuzz`.
//
// Records are of the layouts of a version, with bytes changed, cut off and repeated. What a sanitizer finds, or an
// assertion below, ends it with the seed to repeat it by: trainperf_decoder_fuzz 0 SEED.

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "trainperf/base/thread_table.h"
#include "trainperf/probe/cuda/decoder.h"

namespace trainperf {
namespace {

constexpr uint32_t kKinds[] = {1, 2, 4, 5, 10, 17, 22, 38, 52, 12, 51, 60, 0};
constexpr uint32_t kVersions[] = {22, 24, 26, 28, 130001, 130101, 130301, 130500};

void Check(bool holds, const char* what, uint64_t seed) {
  if (holds) return;
  fprintf(stderr, "%s (seed %llu)\n", what, static_cast<unsigned long long>(seed));
  abort();
}

// A name is a pointer that only CUPTI can vouch for; every other byte may be anything.
void MendNames(uint8_t* buffer, size_t valid, const CuptiApi& api) {
  static const char* const kNames[] = {"kernel", "_Z6kernelPf", "", "_Z", nullptr};
  cupti::Record* record = nullptr;
  for (int i = 0; api.ActivityGetNextRecord(buffer, valid, &record) == cupti::kSuccess && record != nullptr; ++i) {
    if (record->kind != cupti::kKindConcurrentKernel) continue;
    if (reinterpret_cast<uint8_t*>(record) + sizeof(cupti::KernelRecord) > buffer + valid) return;
    reinterpret_cast<cupti::KernelRecord*>(record)->name = kNames[i % 5];
  }
}

void Round(uint64_t seed, const CuptiApi& api) {
  std::mt19937_64 random(seed);
  // A record that is cut off by the end of the buffer is CUPTI's to notice; ours never lie closer to it than this.
  constexpr size_t kSlack = 256;
  std::vector<uint8_t> buffer(4096 + kSlack);
  size_t at = 0;
  while (at + 256 < 4096) {
    auto* words = reinterpret_cast<uint64_t*>(&buffer[at]);
    for (int i = 0; i < 32; ++i) words[i] = random() % 4 == 0 ? random() : 1'000'000'000 + random() % 1'000'000;
    auto* record = reinterpret_cast<cupti::Record*>(&buffer[at]);
    record->kind = kKinds[random() % (random() % 50 == 0 ? 13 : 9)];
    cupti::Record* next = record;
    if (api.ActivityGetNextRecord(buffer.data(), 4096, &next) != cupti::kSuccess) {
      // Where the next would begin, though nothing is there yet.
      record->kind = record->kind != 0 ? record->kind : 5;
      for (size_t size = 40; size <= 248; size += 8) {
        reinterpret_cast<cupti::Record*>(&buffer[at + size])->kind = 0;
      }
    }
    uint32_t* fields = reinterpret_cast<uint32_t*>(record);
    if (record->kind == 5 || record->kind == 4) {
      fields[6] = random() % 20 == 0 ? fields[6] : static_cast<uint32_t>(getpid());
      fields[1] = random() % 2 != 0 ? 211 : static_cast<uint32_t>(random() % 1200);
      fields[7] = static_cast<uint32_t>(random() % 5);
    }
    static const size_t kSizes[] = {40, 56, 72, 88, 96, 208, 216, 248};
    at += kSizes[random() % 8];
  }
  const size_t valid = random() % 4096;
  MendNames(buffer.data(), valid, api);
  CuptiClock clock;
  clock.Sample(1'000'000'000, random() % 2 != 0 ? 1'000'000'000 : random());
  clock.Sample(1'002'000'000, random() % 2 != 0 ? 1'002'000'000 : random());
  NameTable names(8);
  Decoder decoder(api, &clock, &names);
  DecodedBatch batch;
  decoder.Decode(buffer.data(), valid, &batch);
  const DecoderStats& stats = decoder.stats();
  Check(stats.kernels + stats.copies + stats.calls + stats.other + stats.zero_time + stats.bad == stats.records,
        "a record was lost without being counted", seed);
  for (const DeviceOp& op : batch.ops) Check(op.start_ns <= op.end_ns, "an operation ends before it starts", seed);

  CallFolder folder;
  std::vector<Event> events;
  for (const CudaCallRecord& call : batch.calls) folder.Add(call);
  folder.TakeUpTo(static_cast<int64_t>(random() >> 2), &events);
  folder.TakeUpTo(INT64_MAX, &events);
  Check(folder.pending() == 0, "a call was kept for ever", seed);
  for (const Event& event : events) Check(event.start_ns <= event.end_ns, "a call ends before it starts", seed);
}

int Run(int argc, char** argv) {
  const double seconds = argc > 1 ? atof(argv[1]) : 10;
  uint64_t seed = argc > 2 ? strtoull(argv[2], nullptr, 10) : std::random_device{}();
  const absl::StatusOr<CuptiApi> api = CuptiApi::Load({}, TRAINPERF_FAKE_CUPTI);
  if (!api.ok()) {
    fprintf(stderr, "%s\n", std::string(api.status().message()).c_str());
    return 1;
  }
  void* const handle = dlopen(TRAINPERF_FAKE_CUPTI, RTLD_NOW);
  auto* set_version = reinterpret_cast<void (*)(uint32_t)>(dlsym(handle, "fakecupti_set_version"));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int64_t rounds = 0;
  do {
    ThreadTable::Get().Reset();
    set_version(kVersions[seed % 8]);
    Round(seed++, *api);
    ++rounds;
  } while (std::chrono::steady_clock::now() < end);
  printf("decoder: %lld broken buffers, nothing found\n", static_cast<long long>(rounds));
  return 0;
}

}  // namespace
}  // namespace trainperf

int main(int argc, char** argv) { return trainperf::Run(argc, argv); }
