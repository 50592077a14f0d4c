#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "rendezvous/server/sockets.h"

namespace hvd::rendezvous {

// The sockets that the server listens on. Loop-confined once one of them was started.
class Acceptors {
 public:
  struct Owner {
    std::function<void(boost::asio::ip::tcp::socket)> admit;
    // There is no descriptor for the next connection: whether one was given back.
    std::function<bool()> make_room;
    // None was, and the connection stays in the backlog for a while.
    std::function<void()> on_pause;
  };

  Acceptors(boost::asio::io_context& io, Owner owner);
  // They accept from start() on, those that come later at once.
  Status add(ListenSockets& sockets);
  void start();
  // For all processes that have the sockets: one that was forked from this one would keep them open.
  void shut_down();

 private:
  struct Listener {
    boost::asio::ip::tcp::acceptor acceptor;
    boost::asio::steady_timer pause;
    bool is_v6;
  };
  void wait(Listener& listener);
  void accept_some(Listener& listener);
  void pause(Listener& listener);
  void admit(Fd fd, bool is_v6);

  boost::asio::io_context& io_;
  const Owner owner_;
  bool started_ = false;
  std::vector<std::unique_ptr<Listener>> listeners_;
};

}  // namespace hvd::rendezvous
