// What a trace is turned into: the events that live probes would have written, in order of end_ns.

#ifndef TRAINPERF_TRACE_EVENT_FEED_H_
#define TRAINPERF_TRACE_EVENT_FEED_H_

#include <cstdint>

#include "trainperf/event/device_op.h"
#include "trainperf/event/event.h"

namespace trainperf {

class EventFeed {
 public:
  virtual ~EventFeed() = default;
  virtual void OnEvent(const Event& event) = 0;
  virtual void OnOp(const DeviceOp& op) = 0;
  virtual void AdvanceTo(int64_t watermark_ns) = 0;  // nothing older comes
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_EVENT_FEED_H_
