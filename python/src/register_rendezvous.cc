#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/src/error_map.h"
#include "python/src/registration.h"
#include "rendezvous/server/server.h"
#include "runtime/base/fork_mark.h"
#include "runtime/crypto/secret_file.h"

namespace hvd::python {
namespace {

// A rendezvous server and the file with its secret, as a Python object. Its address outlives stop(). Python calls it
// with the GIL.
class RendezvousServer {
 public:
  static std::unique_ptr<RendezvousServer> start(int num_proc, std::vector<std::string> listen, std::uint16_t port,
                                                 const std::optional<std::string>& secret_file,
                                                 const std::string& directory, bool tls) {
    auto file = secret_file ? crypto::SecretFile::open(*secret_file) : crypto::SecretFile::create(directory);
    if (!file.is_ok()) raise_value_error(file.status());
    auto server = rendezvous::Server::start({.secret = file.value().secret(),
                                             .plan = rendezvous::StaticPlan::of_size(num_proc),
                                             .listen_addresses = std::move(listen),
                                             .tls = tls,
                                             .ports = {port, port}});
    if (!server.is_ok()) raise_value_error(server.status());
    return std::unique_ptr<RendezvousServer>(new RendezvousServer(std::move(server).value(), std::move(file).value()));
  }

  // In a forked child the server's thread does not exist, and the file is the parent's: both are left alone.
  ~RendezvousServer() {
    if (parts_ != nullptr && !owner_.same_process()) [[maybe_unused]]
      Parts* left_behind = parts_.release();
  }

  void stop() {
    if (!owner_.same_process()) return;
    std::unique_ptr<Parts> ending = std::move(parts_);  // with the GIL, for another thread may be in stop() too
    const pybind11::gil_scoped_release release;
    ending.reset();
  }

  const std::string& address() const { return address_; }
  std::uint16_t port() const { return port_; }
  const std::string& secret_file() const { return path_; }

 private:
  struct Parts {
    crypto::SecretFile file;
    std::unique_ptr<rendezvous::Server> server;  // ends before the file is removed
  };
  RendezvousServer(std::unique_ptr<rendezvous::Server> server, crypto::SecretFile file)
      : address_(server->address()),
        port_(server->port()),
        path_(file.path()),
        parts_(std::make_unique<Parts>(Parts{std::move(file), std::move(server)})) {}

  const std::string address_;
  const std::uint16_t port_;
  const std::string path_;
  const ForkMark owner_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace

void register_rendezvous(pybind11::module_& module) {
  using pybind11::arg;
  pybind11::class_<RendezvousServer>(module, "RendezvousServer")
      .def(pybind11::init(&RendezvousServer::start), arg("num_proc"), arg("listen"), arg("port"), arg("secret_file"),
           arg("directory"), arg("tls"))
      .def("stop", &RendezvousServer::stop)
      .def_property_readonly("address", &RendezvousServer::address)
      .def_property_readonly("port", &RendezvousServer::port)
      .def_property_readonly("secret_file", &RendezvousServer::secret_file);
}

}  // namespace hvd::python
