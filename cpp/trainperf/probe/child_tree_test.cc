#include "trainperf/probe/child_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace trainperf {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string Command(std::initializer_list<const char*> words) {
  std::string arguments;
  for (const char* word : words) arguments.append(word).push_back('\0');
  return CommandOf(arguments);
}

// Forked on another thread; it starts one of its own, and says that one's pid.
TEST(ChildTree, HasThoseThatChildrenAndOtherThreadsStarted) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  pid_t child = 0;
  std::thread starter([&] {
    child = fork();
    if (child != 0) return;
    const pid_t grandchild = fork();
    if (grandchild != 0 && write(pipe_ends[1], &grandchild, sizeof(grandchild)) != sizeof(grandchild)) _exit(1);
    pause();
    _exit(0);
  });
  pid_t grandchild = 0;
  ASSERT_EQ(read(pipe_ends[0], &grandchild, sizeof(grandchild)), static_cast<ssize_t>(sizeof(grandchild)));
  // The thread lives: when it ends, another one is its children's parent.
  EXPECT_THAT(Descendants(256), Contains(grandchild));
  starter.join();
  EXPECT_THAT(Descendants(256), ElementsAre(child, grandchild));
  EXPECT_THAT(Descendants(1), SizeIs(1));
  kill(grandchild, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_THAT(Descendants(256), Not(Contains(child)));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(ChildTree, NamesAProgramWithoutItsArguments) {
  EXPECT_EQ(Command({"/usr/bin/ffmpeg", "-i", "https://user:secret@host/video"}), "ffmpeg");
  EXPECT_EQ(Command({"ray::Actor.step() --token=secret"}), "ray::Actor.step()");
  EXPECT_EQ(Command({""}), "");
  EXPECT_EQ(CommandOf(""), "");
  EXPECT_EQ(ReadProcessCommand(0), "");
}

TEST(ChildTree, NamesTheScriptOrModuleThatPythonRuns) {
  EXPECT_EQ(Command({"/usr/bin/python3", "-u", "/home/me/train.py", "--key", "secret"}), "python3 train.py");
  EXPECT_EQ(Command({"python", "-X", "dev", "-m", "pkg.serve", "secret"}), "python -m pkg.serve");
  EXPECT_EQ(Command({"python", "-c", "print('secret')"}), "python -c");
  EXPECT_EQ(Command({"python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"}),
            "python3 multiprocessing.spawn");
  EXPECT_EQ(Command({"python"}), "python");
}

}  // namespace
}  // namespace trainperf
