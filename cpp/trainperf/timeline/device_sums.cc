#include "trainperf/timeline/device_sums.h"

#include <algorithm>

namespace trainperf {
namespace {

constexpr size_t kManyKernels = 4096;  // entries, after which names are merged in between

}  // namespace

void DeviceSums::Reset() {
  used = incomplete = false;
  busy_ns = kernel_ns = compute_ns = collective_ns = compute_or_collective_ns = copy_ns = kernel_or_copy_ns = 0;
  between_ns = latency_ns = waiting_ns = 0;
  kernels = launches = copies = tiny_kernels = starved_gaps = 0;
  first_kernel_ns = -1;
  queued_at_end = queued_before = 0;
  gaps.clear();
  kernel_sums.clear();
  copy_sums.clear();
  segments.clear();
}

void DeviceSums::Append(const DeviceSums& later, size_t max_segments) {
  used |= later.used;
  incomplete |= later.incomplete;
  busy_ns += later.busy_ns;
  kernel_ns += later.kernel_ns;
  compute_ns += later.compute_ns;
  collective_ns += later.collective_ns;
  compute_or_collective_ns += later.compute_or_collective_ns;
  copy_ns += later.copy_ns;
  kernel_or_copy_ns += later.kernel_or_copy_ns;
  between_ns += later.between_ns;
  latency_ns += later.latency_ns;
  waiting_ns += later.waiting_ns;
  kernels += later.kernels;
  launches += later.launches;
  copies += later.copies;
  tiny_kernels += later.tiny_kernels;
  starved_gaps += later.starved_gaps;
  if (first_kernel_ns < 0) first_kernel_ns = later.first_kernel_ns;
  queued_at_end = later.queued_at_end;
  queued_before += later.queued_before;
  for (const IdleGap& gap : later.gaps) AddGap(gap);
  kernel_sums.insert(kernel_sums.end(), later.kernel_sums.begin(), later.kernel_sums.end());
  if (kernel_sums.size() > kManyKernels) MergeKernels();
  for (const CopySum& copy : later.copy_sums) AddCopy(copy);
  for (const DeviceSegment& segment : later.segments) AddSegment(segment, max_segments);
}

void DeviceSums::AddGap(const IdleGap& gap) {
  if (gaps.size() >= kMaxGaps) {  // the longer of two neighbours stands for both
    size_t kept = 0;
    for (size_t i = 0; i + 1 < gaps.size(); i += 2) {
      const IdleGap& a = gaps[i];
      const IdleGap& b = gaps[i + 1];
      IdleGap longer = a.end_ns - a.start_ns >= b.end_ns - b.start_ns ? a : b;
      longer.ns = a.ns + b.ns;
      gaps[kept++] = longer;
    }
    gaps.resize(kept);
  }
  gaps.push_back(gap);
}

void DeviceSums::AddCopy(const CopySum& copy) {
  for (CopySum& known : copy_sums) {
    if (known.direction != copy.direction || known.from != copy.from || known.to != copy.to) continue;
    known.count += copy.count;
    known.bytes += copy.bytes;
    known.ns += copy.ns;
    known.exposed_ns += copy.exposed_ns;
    known.small += copy.small;
    return;
  }
  copy_sums.push_back(copy);
}

void DeviceSums::MergeKernels() {
  if (kernel_sums.empty()) return;
  std::sort(kernel_sums.begin(), kernel_sums.end(),
            [](const KernelSum& a, const KernelSum& b) { return a.name < b.name; });
  size_t last = 0;
  for (size_t i = 1; i < kernel_sums.size(); ++i) {
    if (kernel_sums[i].name != kernel_sums[last].name) {
      kernel_sums[++last] = kernel_sums[i];
      continue;
    }
    kernel_sums[last].count += kernel_sums[i].count;
    kernel_sums[last].ns += kernel_sums[i].ns;
    kernel_sums[last].max_ns = std::max(kernel_sums[last].max_ns, kernel_sums[i].max_ns);
    kernel_sums[last].tiny += kernel_sums[i].tiny;
  }
  kernel_sums.resize(last + 1);
}

void DeviceSums::AddSegment(const DeviceSegment& segment, size_t max_segments) {
  if (segment.end_ns <= segment.start_ns) return;
  segments.push_back(segment);
  if (segments.size() >= 2 * max_segments) CompactSegments(max_segments);
}

void DeviceSums::CompactSegments(size_t max) {
  if (segments.size() <= max) return;
  lengths_.clear();
  for (const DeviceSegment& s : segments) lengths_.push_back(s.end_ns - s.start_ns);
  size_t surplus = segments.size() - max;
  std::nth_element(lengths_.begin(), lengths_.begin() + static_cast<ptrdiff_t>(surplus - 1), lengths_.end());
  const int64_t shortest = lengths_[surplus - 1];
  size_t kept = 1;
  for (size_t i = 1; i < segments.size(); ++i) {
    const DeviceSegment segment = segments[i];
    DeviceSegment& into = segments[kept - 1];
    if (segment.what == into.what && segment.cause == into.cause && segment.name == into.name) {
      into.end_ns = segment.end_ns;
      if (surplus > 0) --surplus;
      continue;
    }
    if (surplus == 0 || segment.end_ns - segment.start_ns > shortest) {
      segments[kept++] = segment;
      continue;
    }
    const int64_t start_ns = into.start_ns;
    if (segment.end_ns - segment.start_ns > into.end_ns - into.start_ns) into = segment;
    into.start_ns = start_ns;
    into.end_ns = segment.end_ns;
    --surplus;
  }
  while (kept > max && kept > 1) {  // the first was among the shortest
    segments[kept - 2].end_ns = segments[kept - 1].end_ns;
    --kept;
  }
  segments.resize(kept);
}

}  // namespace trainperf
