// A gzip file's members, one after the other, inflated piece by piece: by ISA-L where the build found it, else by
// zlib-ng.
//
//   Inflater inflater;
//   inflater.SetInput(bytes, size);
//   size_t made = 0;
//   Inflater::Result r = inflater.Next(to, room, &made);   // kNeedInput: SetInput again; kEnd: a member has ended
//
// Not thread-safe.

#ifndef TRAINPERF_TRACE_INFLATE_H_
#define TRAINPERF_TRACE_INFLATE_H_

#include <cstddef>
#include <memory>

namespace trainperf {

class Inflater {
 public:
  enum class Result { kOk, kNeedInput, kEnd, kDamaged };

  Inflater();
  ~Inflater();

  void SetInput(const char* bytes, size_t size);
  size_t input_left() const;
  // kOk: `room` is full. After kEnd the next call begins another member.
  Result Next(char* to, size_t room, size_t* made);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_INFLATE_H_
