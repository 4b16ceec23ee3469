// Interns names (of kernels) as small numbers, from one thread. Bounded: beyond `max` names, kOther stands for the
// rest.
//
//   NameTable names(16'384);
//   uint32_t id = names.Intern("ampere_sgemm_128x64_nn");   // 1, 2, ...; 0 for an empty name
//   names.name(id);

#ifndef TRAINPERF_BASE_NAME_TABLE_H_
#define TRAINPERF_BASE_NAME_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace trainperf {

// Not thread-safe.
class NameTable {
 public:
  static constexpr size_t kMaxLength = 512;  // templates' names are longer; their heads tell them apart

  explicit NameTable(size_t max) : max_(max) { names_.emplace_back(); }

  uint32_t Intern(absl::string_view name) {
    name = name.substr(0, kMaxLength);
    if (name.empty()) return 0;
    const auto known = ids_.find(name);
    if (known != ids_.end()) return known->second;
    if (names_.size() > max_) {
      ++refused_;
      return other_ != 0 ? other_ : (other_ = Append("(other)"));
    }
    return Append(name);
  }

  const std::string& name(uint32_t id) const { return names_[id < names_.size() ? id : 0]; }
  size_t size() const { return names_.size(); }  // ids are below it
  int64_t refused() const { return refused_; }

 private:
  uint32_t Append(absl::string_view name) {
    names_.emplace_back(name.data(), name.size());
    const uint32_t id = static_cast<uint32_t>(names_.size() - 1);
    ids_.emplace(absl::string_view(names_.back()), id);  // a deque never moves its elements
    return id;
  }

  const size_t max_;
  uint32_t other_ = 0;
  int64_t refused_ = 0;
  std::deque<std::string> names_;
  absl::flat_hash_map<absl::string_view, uint32_t> ids_;
};

}  // namespace trainperf

#endif  // TRAINPERF_BASE_NAME_TABLE_H_
