#include "trainperf/probe/child_tree.h"

#include <dirent.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "trainperf/base/proc_text.h"

namespace trainperf {
namespace {

constexpr size_t kLongest = 100;

// A process is the child of the thread that started it.
void AppendChildren(const std::string& process, size_t most, std::vector<int32_t>* pids) {
  const std::string tasks = absl::StrCat("/proc/", process, "/task");
  DIR* const folder = opendir(tasks.c_str());
  if (folder == nullptr) return;
  while (const dirent* task = readdir(folder)) {
    if (task->d_name[0] == '.') continue;
    const std::string children = Slurp(absl::StrCat(tasks, "/", task->d_name, "/children").c_str());
    for (const absl::string_view text : absl::StrSplit(children, ' ', absl::SkipEmpty())) {
      int32_t pid = 0;
      if (pids->size() < most && absl::SimpleAtoi(text, &pid)) pids->push_back(pid);
    }
  }
  closedir(folder);
}

absl::string_view Basename(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::vector<int32_t> Descendants(size_t most) {
  std::vector<int32_t> pids;
  AppendChildren("self", most, &pids);
  for (size_t i = 0; i < pids.size(); ++i) AppendChildren(absl::StrCat(pids[i]), most, &pids);
  return pids;
}

std::string ReadProcessCommand(int32_t pid) {
  return CommandOf(Slurp(absl::StrCat("/proc/", pid, "/cmdline").c_str()));
}

std::string CommandOf(const std::string& arguments) {
  const std::vector<absl::string_view> words = absl::StrSplit(arguments, '\0');
  // A process that has named itself, "ray::Actor.step", leaves one word, with whatever it says behind a space.
  const absl::string_view program = Basename(words[0].substr(0, words[0].find(' ')));
  std::string command(program.substr(0, kLongest));
  if (!absl::StartsWith(program, "python")) return command;
  for (size_t i = 1; i < words.size(); ++i) {
    const absl::string_view next = i + 1 < words.size() ? words[i + 1] : "";
    if (words[i] == "-X" || words[i] == "-W") {
      ++i;
    } else if (words[i] == "-m") {
      return absl::StrCat(command, " -m ", next.substr(0, kLongest));
    } else if (words[i] == "-c") {
      // "from multiprocessing.spawn import spawn_main; ..."
      constexpr absl::string_view kFrom = "from multiprocessing.";
      if (!absl::StartsWith(next, kFrom)) return command + " -c";
      const absl::string_view module = next.substr(5, next.find(' ', kFrom.size()) - 5);
      return absl::StrCat(command, " ", module.substr(0, kLongest));
    } else if (!absl::StartsWith(words[i], "-")) {
      return words[i].empty() ? command : absl::StrCat(command, " ", Basename(words[i]).substr(0, kLongest));
    }
  }
  return command;
}

}  // namespace trainperf
