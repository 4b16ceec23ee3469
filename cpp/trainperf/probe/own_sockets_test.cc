#include "trainperf/probe/own_sockets.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>

#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

constexpr int64_t kPace = 20;  // so that a test waits less

// A server of its own, and connections to it.
class OwnSocketsTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = socket(AF_INET, SOCK_STREAM, 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(bind(server_, reinterpret_cast<sockaddr*>(&address_), sizeof(address_)), 0);
    ASSERT_EQ(listen(server_, 8), 0);
    socklen_t size = sizeof(address_);
    ASSERT_EQ(getsockname(server_, reinterpret_cast<sockaddr*>(&address_), &size), 0);
  }
  void TearDown() override { close(server_); }

  int Connect() const {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)), 0);
    return fd;
  }
  // Sends to one end, and waits until the other has it.
  static void Move(int from, int to, size_t bytes) {
    const std::string data(bytes, 'x');
    ASSERT_EQ(send(from, data.data(), bytes, 0), static_cast<ssize_t>(bytes));
    std::string got(bytes, '\0');
    ASSERT_EQ(recv(to, got.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
  }
  static std::map<std::string, int64_t> Read(OwnSockets* sockets, const std::vector<int32_t>& workers = {}) {
    std::vector<Counter> counters;
    sockets->Read(workers, &counters);
    std::map<std::string, int64_t> read;
    for (const Counter& counter : counters) read[counter.name] = counter.so_far;
    return read;
  }
  static int64_t Received(OwnSockets* sockets, const std::vector<int32_t>& workers = {}) {
    return Read(sockets, workers)["own_net_received_bytes"];
  }

  int server_ = -1;
  sockaddr_in address_{};
};

// Else the first count would be taken for what had come before the run.
TEST_F(OwnSocketsTest, CountsFromNothingOn) {
  OwnSockets sockets(kPace);
  EXPECT_THAT(Read(&sockets), UnorderedElementsAre(Pair("own_net_received_bytes", 0), Pair("own_net_sent_bytes", 0)));
}

TEST_F(OwnSocketsTest, WhatCameAlsoOverConnectionsThatAreClosed) {
  OwnSockets sockets(kPace);
  const int client = Connect(), peer = accept(server_, nullptr, nullptr);
  Move(peer, client, 50'000);
  EXPECT_EQ(Received(&sockets), 50'000);
  EXPECT_EQ(Received(&sockets), 50'000);  // of both ends, each once
  Move(client, peer, 700);
  EXPECT_EQ(Received(&sockets), 50'700);
  close(client);
  close(peer);
  EXPECT_EQ(Received(&sockets), 50'700);
  const int again = Connect(), other = accept(server_, nullptr, nullptr);
  Move(other, again, 1'000);
  const int64_t latest_ns = NowNs() + 20'000'000'000;  // a look takes its time from the next
  while (Received(&sockets) != 51'700 && NowNs() < latest_ns) usleep(1000);
  EXPECT_EQ(Received(&sockets), 51'700);
  close(again);
  close(other);
}

TEST_F(OwnSocketsTest, WorkersCountAndOthersDoNot) {
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t worker = fork();
  if (worker == 0) {
    close(done[1]);
    const int client = Connect(), peer = accept(server_, nullptr, nullptr);
    Move(peer, client, 30'000);
    char byte = 0;
    _exit(write(ready[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 0 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  OwnSockets own, with_worker;
  EXPECT_EQ(Received(&own), 0);
  EXPECT_EQ(Received(&with_worker, {worker}), 30'000);
  close(done[1]);
  int status = 0;
  ASSERT_EQ(waitpid(worker, &status, 0), worker);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Received(&with_worker, {worker}), 30'000);  // that it is gone
  for (const int fd : {ready[0], ready[1], done[0]}) close(fd);
}

// Also where a first look came before it was connected.
TEST_F(OwnSocketsTest, NewConnectionsAreSeenAtTheNextLook) {
  OwnSockets sockets(kPace);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(Received(&sockets), 0);
  ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)), 0);
  const int peer = accept(server_, nullptr, nullptr);
  Move(peer, client, 100);
  const int64_t latest_ns = NowNs() + 20'000'000'000;
  while (Received(&sockets) != 100 && NowNs() < latest_ns) usleep(1000);
  EXPECT_EQ(Received(&sockets), 100);
  close(client);
  close(peer);
}

}  // namespace
}  // namespace trainperf
