#include "trainperf/probe/own_sockets.h"

#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainperf/base/clock.h"

namespace trainperf {
namespace {

constexpr size_t kAckedAt = 120, kReceivedAt = 128;  // of tcp_info: tcpi_bytes_acked, tcpi_bytes_received (Linux 4.2)
constexpr size_t kMostFiles = 8192;                  // of one process

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 diag;
};

}  // namespace

void OwnSockets::Close() {
  if (netlink_ >= 0) close(netlink_);
  netlink_ = -1;
}

void OwnSockets::FindInodes(const std::string& process) {
  const std::string folder = absl::StrCat("/proc/", process, "/fd");
  DIR* const files = opendir(folder.c_str());
  if (files == nullptr) return;
  char target[64];
  size_t seen = 0;
  for (const dirent* entry = readdir(files); entry != nullptr && seen < kMostFiles; entry = readdir(files), ++seen) {
    const ssize_t size = readlinkat(dirfd(files), entry->d_name, target, sizeof(target) - 1);
    if (size <= 0) continue;
    target[size] = '\0';
    uint32_t inode = 0;
    if (sscanf(target, "socket:[%u]", &inode) == 1) inodes_.insert(inode);
  }
  closedir(files);
}

bool OwnSockets::Ask(const inet_diag_sockid* id, unsigned char family) {
  Request request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | (id == nullptr ? NLM_F_DUMP : 0);
  request.diag.sdiag_family = family;
  request.diag.sdiag_protocol = IPPROTO_TCP;
  request.diag.idiag_ext = 1 << (INET_DIAG_INFO - 1);
  request.diag.idiag_states = ~0U;
  if (id != nullptr) request.diag.id = *id;
  if (send(netlink_, &request, sizeof(request), 0) != sizeof(request)) return false;
  alignas(nlmsghdr) char answer[16384];
  for (;;) {
    const ssize_t size = recv(netlink_, answer, sizeof(answer), 0);
    if (size <= 0) return false;
    auto left = static_cast<unsigned>(size);
    for (auto* header = reinterpret_cast<nlmsghdr*>(answer); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return true;
      if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return id != nullptr;  // the connection is gone; or an error
      Told(header);
    }
    if (id != nullptr) return true;
  }
}

void OwnSockets::Told(const nlmsghdr* header) {
  inet_diag_msg message;
  std::memcpy(&message, NLMSG_DATA(header), sizeof(message));
  if (inodes_.count(message.idiag_inode) == 0) return;
  const char* const data = static_cast<const char*>(NLMSG_DATA(header));
  const size_t end = header->nlmsg_len - NLMSG_HDRLEN;
  for (size_t at = NLMSG_ALIGN(sizeof(message)); at + sizeof(nlattr) <= end;) {
    nlattr attribute;
    std::memcpy(&attribute, data + at, sizeof(attribute));
    if (attribute.nla_len < sizeof(attribute) || at + attribute.nla_len > end) break;
    if (attribute.nla_type == INET_DIAG_INFO && attribute.nla_len >= NLA_HDRLEN + kReceivedAt + 8) {
      uint64_t sent = 0, received = 0;
      std::memcpy(&sent, data + at + NLA_HDRLEN + kAckedAt, 8);
      std::memcpy(&received, data + at + NLA_HDRLEN + kReceivedAt, 8);
      Connection& known = known_[message.idiag_inode];
      received_ += received > known.received ? received - known.received : 0;
      sent_ += sent > known.sent ? sent - known.sent : 0;
      known = {message.id, message.idiag_family, received, sent};
    }
    at += NLA_ALIGN(attribute.nla_len);
  }
}

// Walks all connections of the machine: milliseconds, where its table of them is large. So seldom.
bool OwnSockets::LookForNew() {
  const int64_t begin_ns = ThreadCpuNs();
  if (!Ask(nullptr, AF_INET) || !Ask(nullptr, AF_INET6)) return false;
  for (const uint32_t inode : inodes_) {
    if (known_.count(inode) == 0) ++no_connection_[inode];
  }
  next_look_ns_ = NowNs() + pace_ * (ThreadCpuNs() - begin_ns);
  return true;
}

void OwnSockets::Read(const std::vector<int32_t>& workers, std::vector<Counter>* counters) {
  if (off_) return;
  if (netlink_ < 0) {
    netlink_ = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    const timeval longest{0, 50'000};
    if (netlink_ < 0 || setsockopt(netlink_, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest)) != 0) {
      off_ = true;
      return;
    }
  }
  inodes_.clear();
  FindInodes("self");
  for (const int32_t pid : workers) FindInodes(absl::StrCat(pid));
  bool any_new = false;
  for (const uint32_t inode : inodes_) {
    const auto known = known_.find(inode);
    if (known != known_.end()) {
      off_ |= !Ask(&known->second.id, known->second.family);
    } else {
      const auto looked = no_connection_.find(inode);  // a socket of another kind, or one not connected yet
      any_new |= looked == no_connection_.end() || looked->second < kLooks;
    }
  }
  if (any_new && NowNs() >= next_look_ns_) off_ |= !LookForNew();
  Forget(&known_);
  Forget(&no_connection_);
  if (off_) return;  // else nothing is a count too: what comes first comes from then on
  counters->push_back({"own_net_received_bytes", static_cast<int64_t>(received_)});
  counters->push_back({"own_net_sent_bytes", static_cast<int64_t>(sent_)});
}

}  // namespace trainperf
