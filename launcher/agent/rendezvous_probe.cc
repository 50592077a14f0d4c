#include "launcher/agent/rendezvous_probe.h"

#include <memory>
#include <utility>

#include "runtime/base/internet_address.h"

namespace hvd::launcher {

RendezvousProbe::RendezvousProbe(MainLoop& loop, std::vector<std::string> addresses, std::uint16_t port, OnDone on_done)
    : loop_(loop),
      addresses_(std::move(addresses)),
      port_(port),
      on_done_(std::move(on_done)),
      patience_(loop.get(), [this] {
        answered(Status::timeout("no answer in " + std::to_string(kPatience.count() / 1000) + " s"));
      }) {}

void RendezvousProbe::try_next() {
  if (next_ == addresses_.size()) {
    on_done_(Status::timeout("it cannot connect to the launcher's rendezvous server at " + failures_ +
                             "; is there a firewall, or should --network-interfaces name another network?"));
    return;
  }
  const Status status = connect(addresses_[next_]);
  if (!status.is_ok()) return answered(status);
  patience_.start(kPatience);
}

Status RendezvousProbe::connect(const std::string& address) {
  const auto target = InternetAddress::parse(address, port_);
  if (!target) return Status::invalid_argument("not a numeric address");
  socket_.init(this, [&](uv_tcp_t* raw) { return uv_tcp_init(loop_.get(), raw); });
  auto request = std::make_unique<uv_connect_t>();
  const int rc = uv_tcp_connect(request.get(), socket_.get(), target->get(), [](uv_connect_t* raw, int result) {
    const std::unique_ptr<uv_connect_t> owned(raw);
    auto* self = static_cast<RendezvousProbe*>(raw->handle->data);
    if (self == nullptr) return;  // given up meanwhile
    self->answered(result == 0 ? Status::ok() : Status::internal(uv_strerror(result)));
  });
  if (rc != 0) return Status::internal(uv_strerror(rc));
  static_cast<void>(request.release());  // the callback owns it
  return Status::ok();
}

void RendezvousProbe::answered(const Status& status) {
  patience_.stop();
  socket_.reset();
  const std::string address = addresses_[next_++];
  if (status.is_ok()) return on_done_(address);
  failures_ +=
      (failures_.empty() ? "" : ", ") + address + " port " + std::to_string(port_) + " (" + status.message() + ")";
  try_next();
}

}  // namespace hvd::launcher
