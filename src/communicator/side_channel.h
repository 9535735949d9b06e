// SideChannel: connections between the processes of a group, beside the library that moves their bytes. Over
// them a rank learns at once that another has failed, has ended, or is no more: when a process dies, however
// it does, the system closes its connections.
//
// A thread watches the connections of this rank (tcp_mesh.h). The ranks trust the network between them as the
// library does.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/base/mutex.h"
#include "src/communicator/collective.h"
#include "src/communicator/tcp_mesh.h"
#include "src/communicator/tcp_socket.h"

namespace stowage::communication {

class SideChannel {
 public:
  using Address = TcpMesh::Address;
  // Called by the watching thread.
  struct Watcher {
    std::function<void(const RankFailure&)> failed;  // a rank said so
    std::function<void(int rank)> died;
    std::function<void(int rank)> ended;  // as it said
  };

  // Listens. Throws CommunicatorError, in the name of `call`.
  explicit SideChannel(const std::string& call);
  // Tells the others that this rank has ended.
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  const Address& address() const { return mesh_.address(); }
  // Connects with all other ranks, whose addresses are given by rank, and watches from then on. Throws as
  // above.
  void connect(int rank, std::span<const Address> addresses, Watcher watcher);
  // Tells all others. What it says has left when it returns.
  void tell(const RankFailure& failure);

 private:
  struct Peer {
    int rank = 0;
    Descriptor connection;
    std::string received;  // not yet a whole message
    bool done = false;     // ended, or dead
  };

  void watch();
  void read_from(Peer& peer);
  bool take_message(Peer& peer);
  void send_all(const std::string& message);

  TcpMesh mesh_;
  int rank_ = 0;
  Watcher watcher_;
  Descriptor stop_;          // readable when the watching shall end
  std::vector<Peer> peers_;  // the watching thread's own, but for their connections
  Mutex sending_;            // one message at a time
  std::thread watching_;     // last: it uses the rest
};

}  // namespace stowage::communication
