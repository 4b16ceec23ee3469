#include "trainperf/trace/json_value.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace trainperf {
namespace {

constexpr int64_t kMaxMicros = kMaxTraceNs / 1000;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Eight digits at once; false when not all of them are. (Little-endian: so are x86-64 and aarch64.)
bool ParseEightDigits(const char* text, int64_t* value) {
  uint64_t v = 0;
  std::memcpy(&v, text, sizeof(v));
  v -= 0x3030303030303030;
  if (((v | (v + 0x7676767676767676)) & 0x8080808080808080) != 0) return false;
  v = v * 10 + (v >> 8);  // pairs, in every second byte; then fours, then all eight
  v = ((v & 0x000000ff000000ff) * 0x000f424000000064 + ((v >> 16) & 0x000000ff000000ff) * 0x0000271000000001) >> 32;
  *value = static_cast<int64_t>(v & 0xffffffff);
  return true;
}

void AppendUtf8(uint32_t code, std::string* to) {
  if (code < 0x80) {
    to->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    to->push_back(static_cast<char>(0xc0 | (code >> 6)));
    to->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code >= 0xd800 && code < 0xe000) {
    to->push_back('?');  // half of a pair
  } else {
    to->push_back(static_cast<char>(0xe0 | (code >> 12)));
    to->push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    to->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

// Nobody writes stamps so; durations of a float that is nearly nothing come like this.
bool ParseMicrosWithExponent(std::string_view token, int64_t* ns) {
  const std::string copy(token);
  char* stop = nullptr;
  const double value = std::strtod(copy.c_str(), &stop) * 1000;
  if (*stop != '\0' || !(value >= 0 && value < static_cast<double>(kMaxTraceNs))) return false;
  *ns = static_cast<int64_t>(std::llround(value));
  return true;
}

}  // namespace

std::string_view Unquoted(std::string_view token) {
  return token.size() >= 2 && token.front() == '"' ? token.substr(1, token.size() - 2) : token;
}

bool ParseUnsigned(std::string_view token, uint64_t* value) {
  token = Unquoted(token);
  const auto result = std::from_chars(token.data(), token.data() + token.size(), *value);
  return result.ec == std::errc() && result.ptr == token.data() + token.size();
}

bool ParseMicros(std::string_view token, int64_t* ns) {
  const char* p = token.data();
  const char* const end = p + token.size();
  if (p == end || !IsDigit(*p)) return false;
  int64_t micros = 0;
  int64_t eight = 0;
  for (int i = 0; i < 2 && end - p >= 8 && ParseEightDigits(p, &eight); ++i, p += 8) {
    micros = micros * 100'000'000 + eight;
  }
  for (; p != end && IsDigit(*p); ++p) {
    if (micros > kMaxMicros) return false;
    micros = micros * 10 + (*p - '0');
  }
  if (micros > kMaxMicros) return false;
  int64_t nanos = 0;
  if (p != end && *p == '.') {
    int64_t unit = 100;
    const char* const fraction = ++p;
    for (; p != end && IsDigit(*p); ++p, unit /= 10) nanos += unit * (*p - '0');
    if (p - fraction > 3 && fraction[3] >= '5') ++nanos;
  }
  if (p != end && (*p == 'e' || *p == 'E')) return ParseMicrosWithExponent(token, ns);
  *ns = micros * 1000 + nanos;
  return p == end && *ns <= kMaxTraceNs;
}

void Unescape(std::string_view text, std::string* to) {
  to->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      to->push_back(text[i]);
      continue;
    }
    const char c = text[++i];
    if (c == 'u' && i + 4 < text.size()) {
      uint32_t code = 0;
      const char* const from = text.data() + i + 1;
      if (std::from_chars(from, from + 4, code, 16).ptr == from + 4) {
        AppendUtf8(code, to);
        i += 4;
        continue;
      }
    }
    to->push_back(c == 'n' || c == 't' || c == 'r' || c == 'b' || c == 'f' ? ' ' : c);
  }
}

}  // namespace trainperf
