#include "trainperf/trace/inflate.h"

#include <algorithm>
#include <cstdint>

#if TRAINPERF_ISAL

#include <isa-l/igzip_lib.h>

namespace trainperf {

struct Inflater::State {
  inflate_state inflate;
  bool ended = false;
};

Inflater::Inflater() : state_(std::make_unique<State>()) {
  isal_inflate_init(&state_->inflate);
  state_->inflate.crc_flag = ISAL_GZIP;
}

void Inflater::SetInput(const char* bytes, size_t size) {
  state_->inflate.next_in = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(bytes));
  state_->inflate.avail_in = static_cast<uint32_t>(size);
}

size_t Inflater::input_left() const { return state_->inflate.avail_in; }

Inflater::Result Inflater::Next(char* to, size_t room, size_t* made) {
  inflate_state& s = state_->inflate;
  if (state_->ended) {
    state_->ended = false;
    uint8_t* const in = s.next_in;
    const uint32_t left = s.avail_in;
    isal_inflate_reset(&s);
    s.next_in = in;
    s.avail_in = left;
    s.crc_flag = ISAL_GZIP;
  }
  s.next_out = reinterpret_cast<uint8_t*>(to);
  s.avail_out = static_cast<uint32_t>(std::min<size_t>(room, UINT32_MAX / 2));
  const uint32_t asked = s.avail_out;
  const int result = isal_inflate(&s);
  *made = asked - s.avail_out;
  if (result < ISAL_DECOMP_OK || result == ISAL_NEED_DICT) return Result::kDamaged;
  if (s.block_state == ISAL_BLOCK_FINISH) {
    // It reads ahead by whole words; what it did not use is the next member's.
    state_->ended = true;
    return Result::kEnd;
  }
  if (s.avail_out == 0) return Result::kOk;
  return s.avail_in == 0 ? Result::kNeedInput : Result::kOk;
}

Inflater::~Inflater() = default;

}  // namespace trainperf

#else

#include <zlib-ng.h>

namespace trainperf {

struct Inflater::State {
  zng_stream stream{};
  bool ended = false;
};

Inflater::Inflater() : state_(std::make_unique<State>()) {
  zng_inflateInit2(&state_->stream, 15 + 16);  // the gzip format only
}

void Inflater::SetInput(const char* bytes, size_t size) {
  state_->stream.next_in = reinterpret_cast<const uint8_t*>(bytes);
  state_->stream.avail_in = static_cast<uint32_t>(size);
}

size_t Inflater::input_left() const { return state_->stream.avail_in; }

Inflater::Result Inflater::Next(char* to, size_t room, size_t* made) {
  zng_stream& s = state_->stream;
  if (state_->ended) {
    state_->ended = false;
    zng_inflateReset(&s);
  }
  s.next_out = reinterpret_cast<uint8_t*>(to);
  s.avail_out = static_cast<uint32_t>(std::min<size_t>(room, UINT32_MAX / 2));
  const uint32_t asked = s.avail_out;
  const int result = zng_inflate(&s, Z_NO_FLUSH);
  *made = asked - s.avail_out;
  if (result == Z_STREAM_END) {
    state_->ended = true;
    return Result::kEnd;
  }
  if (result != Z_OK && result != Z_BUF_ERROR) return Result::kDamaged;
  if (s.avail_out == 0) return Result::kOk;
  return s.avail_in == 0 ? Result::kNeedInput : Result::kOk;
}

Inflater::~Inflater() { zng_inflateEnd(&state_->stream); }

}  // namespace trainperf

#endif
