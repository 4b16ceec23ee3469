// Dense ids, given out in order from 1 by their tables; 0 is "none" or "not known".

#ifndef TRAINPERF_BASE_IDS_H_
#define TRAINPERF_BASE_IDS_H_

#include <cstdint>

namespace trainperf {

using ThreadId = uint32_t;
using StackId = uint32_t;

}  // namespace trainperf

#endif  // TRAINPERF_BASE_IDS_H_
