// Log records of one thread that come one after another, with no mark of another kind between them.
//
//   if (!burst.Enters()) return;                              // it lies within another
//   if (burst.SumsNext() && on_cpu) burst.Begins(NowNs());    // else it leaves marks, and Marked() counts it
//   ...
//   if (burst.Leaves() && burst.put_off()) burst.Add(NowNs());
//   const LogBurst::Sum sum = burst.Take();                   // becomes one bracket, before the thread's next mark
//
// Why: two marks, and what the collector makes of them, take a microsecond. A loop that logs each parameter in each
// step writes hundreds of records, of ten microseconds each. So only the first few of a burst leave marks: of the
// others the clock is read, as long as they are short and stay on their CPU. Their time stays exact; where within half
// a millisecond it lies does not. What is put off is told before the thread waits for the GIL, leaves another mark, or
// ends the watch. It is lost of a process that is killed in between, and of a thread that another ends the watch of.

#ifndef TRAINPERF_PROBE_LOG_BURST_H_
#define TRAINPERF_PROBE_LOG_BURST_H_

#include <cstdint>
#include <utility>

namespace trainperf {

class LogBurst {
 public:
  static constexpr int kMarked = 8;             // records of a burst that leave marks
  static constexpr int64_t kLongNs = 100'000;   // a record of this length is worth its marks
  static constexpr int64_t kTakenNs = 500'000;  // a sum is taken from here on: it must not look like one long record

  struct Sum {
    int64_t start_ns;  // as if all of them had come last
    int64_t end_ns;
  };

  bool SumsNext() const { return marked_ >= kMarked; }
  void Marked() { ++marked_; }
  void Restart() { marked_ = 0; }

  // Whether it is the outermost: what is within it is a part of it.
  bool Enters() { return ++depth_ == 1; }
  // False also where none was entered: it began before the watch.
  bool Leaves() { return depth_ > 0 && --depth_ == 0; }

  // The outermost has left no mark so far.
  bool put_off() const { return put_off_; }
  void Begins(int64_t now_ns) {
    since_ns_ = now_ns;
    put_off_ = true;
  }
  int64_t since_ns() const { return since_ns_; }
  void Add(int64_t end_ns) {
    sum_ns_ += end_ns - since_ns_;
    end_ns_ = end_ns;
    put_off_ = false;
  }
  // It leaves marks after all: others come in it, it is long, or it left its CPU.
  void Open() { put_off_ = false; }

  int64_t sum_ns() const { return sum_ns_; }
  Sum Take() {
    const int64_t ns = std::exchange(sum_ns_, 0);
    return {end_ns_ - ns, end_ns_};
  }

 private:
  int64_t since_ns_ = 0;
  int64_t sum_ns_ = 0;
  int64_t end_ns_ = 0;  // of the last that was added
  int marked_ = 0;
  int depth_ = 0;
  bool put_off_ = false;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_LOG_BURST_H_
