// What this process and its workers received and sent by TCP so far, as the kernel counts it for each connection.
//
//   OwnSockets sockets;
//   sockets.Read(workers, &counters);       // once a second
//
// Adds own_net_received_bytes and own_net_sent_bytes, loopback included: at least so much, as a connection that came
// and went between two looks is not seen, nor what came last on one that went. By netlink (sock_diag), which needs no
// privileges: each known connection is asked for by its id, and new ones are looked for as often as that takes 0.1 % of
// a CPU. Nothing is added where the kernel does not tell. Used by one thread.

#ifndef TRAINPERF_PROBE_OWN_SOCKETS_H_
#define TRAINPERF_PROBE_OWN_SOCKETS_H_

#include <linux/inet_diag.h>
#include <linux/netlink.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trainperf/event/counter.h"

namespace trainperf {

class OwnSockets {
 public:
  static constexpr int64_t kPace = 1000;  // times the CPU time of a look for new connections, until the next
  static constexpr int kLooks = 3;        // that do not find a socket among the connections: it is none

  explicit OwnSockets(int64_t pace = kPace) : pace_(pace) {}
  ~OwnSockets() { Close(); }
  OwnSockets(const OwnSockets&) = delete;
  OwnSockets& operator=(const OwnSockets&) = delete;

  // `workers`: pids of the DataLoader workers that live.
  void Read(const std::vector<int32_t>& workers, std::vector<Counter>* counters);
  void Close();  // after the last reading

 private:
  struct Connection {
    inet_diag_sockid id;
    unsigned char family;
    uint64_t received, sent;
  };

  void FindInodes(const std::string& process);
  bool Ask(const inet_diag_sockid* id, unsigned char family);  // null: for all
  void Told(const nlmsghdr* header);
  bool LookForNew();
  template <typename Map>
  void Forget(Map* map) const {
    for (auto it = map->begin(); it != map->end();) it = inodes_.count(it->first) == 0 ? map->erase(it) : std::next(it);
  }

  const int64_t pace_;
  int netlink_ = -1;
  bool off_ = false;
  int64_t next_look_ns_ = 0;
  std::unordered_set<uint32_t> inodes_;  // of sockets that are open now
  std::unordered_map<uint32_t, Connection> known_;
  std::unordered_map<uint32_t, int> no_connection_;  // how many looks did not find it
  uint64_t received_ = 0, sent_ = 0;
};

}  // namespace trainperf

#endif  // TRAINPERF_PROBE_OWN_SOCKETS_H_
