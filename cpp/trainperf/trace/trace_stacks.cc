#include "trainperf/trace/trace_stacks.h"

#include <algorithm>
#include <charconv>

namespace trainperf {

Site SiteOfName(std::string_view name) {
  const size_t colon = name.rfind("): ");
  const size_t open = colon == std::string_view::npos ? colon : name.rfind('(', colon);
  int32_t line = 0;
  if (open != std::string_view::npos && open > 0) {
    const char* const from = name.data() + open + 1;
    const char* const to = name.data() + colon;
    const auto parsed = std::from_chars(from, to, line);
    if (parsed.ec == std::errc() && parsed.ptr == to && line >= 0) {
      return {name.substr(0, open), name.substr(colon + 3), line};
    }
  }
  return {"", name, 0};
}

StackId TraceStacks::Intern(const std::vector<uint32_t>& innermost_first) {
  if (table_ == nullptr || innermost_first.empty()) return 0;
  scratch_.clear();
  for (const uint32_t id : innermost_first) {
    if (scratch_.size() >= kMaxFrames) break;
    auto [site, added] = sites_.try_emplace(id, 0);
    if (added) {
      const Site named = SiteOfName(names_->name(id));
      site->second = table_->InternSite(named.file, named.function, named.line);
    }
    if (site->second != 0) scratch_.push_back(site->second);
  }
  return table_->Intern(scratch_.data(), scratch_.size());
}

}  // namespace trainperf
