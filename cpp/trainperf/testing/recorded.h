// Activity buffers as a real GPU's CUPTI filled them: recorded/*.cupti, made by tests/gpu/record_buffers.py.
//
//   const Recorded recorded = Recorded::Read(TRAINPERF_RECORDED "/h100-cupti-13.0.cupti");
//   decoder.Decode(recorded.buffers[0].bytes.data(), recorded.buffers[0].bytes.size(), &batch);

#ifndef TRAINPERF_TESTING_RECORDED_H_
#define TRAINPERF_TESTING_RECORDED_H_

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "trainperf/probe/cuda/cupti_abi.h"

namespace trainperf {

struct Recorded {
  struct Buffer {
    std::vector<uint8_t> bytes;
    int64_t records = 0;  // as CUPTI walked it
  };

  static Recorded Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    Recorded recorded;
    std::string line;
    while (std::getline(file, line) && line != "end") {
      std::istringstream words(line);
      std::string what, name;
      words >> what;
      if (what == "version") {
        words >> recorded.version;
      } else if (what == "process") {
        words >> recorded.process;
      } else if (what == "clock") {
        words >> recorded.clocks.emplace_back().first >> recorded.clocks.back().second;
      } else if (what == "name") {
        uint64_t address = 0;
        words >> address >> name;
        recorded.names[address] = name;
      } else if (what == "truth") {
        words >> name >> recorded.truth[name];
      } else if (what == "buffer") {
        size_t size = 0;
        words >> size >> recorded.buffers.emplace_back().records;
        recorded.buffers.back().bytes.resize(size);
      }
    }
    for (Buffer& buffer : recorded.buffers) {
      file.read(reinterpret_cast<char*>(buffer.bytes.data()), static_cast<std::streamsize>(buffer.bytes.size()));
    }
    if (!file || recorded.buffers.empty()) throw std::runtime_error(path + " is no whole recording");
    return recorded;
  }

  // As if this process had recorded it: the pointers to names point at `names`, and the calls are its own.
  void MoveHere(cupti::Result (*next_record)(uint8_t*, size_t, cupti::Record**)) {
    for (Buffer& buffer : buffers) {
      cupti::Record* record = nullptr;
      while (next_record(buffer.bytes.data(), buffer.bytes.size(), &record) == cupti::kSuccess) {
        if (record->kind == cupti::kKindConcurrentKernel) {
          auto* const kernel = reinterpret_cast<cupti::KernelRecord*>(record);
          kernel->name = names.at(reinterpret_cast<uint64_t>(kernel->name)).c_str();
        } else if (record->kind == cupti::kKindRuntime || record->kind == cupti::kKindDriver) {
          auto* const call = reinterpret_cast<cupti::ApiRecord*>(record);
          if (call->process == process) call->process = static_cast<uint32_t>(getpid());
        }
      }
    }
  }

  uint32_t version = 0;
  uint32_t process = 0;
  std::vector<std::pair<int64_t, uint64_t>> clocks;  // CLOCK_MONOTONIC, CUPTI's ticks
  std::map<uint64_t, std::string> names;
  std::map<std::string, int64_t> truth;  // what the recorded program did
  std::vector<Buffer> buffers;
};

}  // namespace trainperf

#endif  // TRAINPERF_TESTING_RECORDED_H_
