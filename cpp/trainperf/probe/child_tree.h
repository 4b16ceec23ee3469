// Which processes this one has started, and those that they started; and what each of them runs.
//
//   for (int32_t pid : Descendants(256)) ...     // 5 us for each thread of each process
//   std::string command = ReadProcessCommand(pid);
//
// By /proc, without privileges. Those whose parents have ended have left the family.

#ifndef TRAINPERF_PROBE_CHILD_TREE_H_
#define TRAINPERF_PROBE_CHILD_TREE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trainperf {

// Parents before their children, `most` at most. None where the kernel does not tell (no CONFIG_PROC_CHILDREN).
std::vector<int32_t> Descendants(size_t most);

// "ffmpeg", "python train.py", "python -m pkg.serve", "python multiprocessing.spawn": never an argument, which may be a
// secret. "" where it has ended.
std::string ReadProcessCommand(int32_t pid);
// Likewise, of its arguments; each ends with a '\0'.
std::string CommandOf(const std::string& arguments);

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_CHILD_TREE_H_
