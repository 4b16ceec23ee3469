// What the machine did so far, of one sort: probe/machine.h has their names.

#ifndef TRAINPERF_EVENT_COUNTER_H_
#define TRAINPERF_EVENT_COUNTER_H_

#include <cstdint>
#include <string>

namespace trainperf {

struct Counter {
  std::string name;  // "disk_read_bytes:sda"
  int64_t so_far;
};

}  // namespace trainperf

#endif  // TRAINPERF_EVENT_COUNTER_H_
