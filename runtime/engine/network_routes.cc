#include <string>

#include "horovod/routes.h"
#include "runtime/base/log.h"
#include "runtime/engine/network.h"

namespace hvd {
namespace engine {
namespace {

constexpr const char* kRoutesScope = "routes";
constexpr Millis kAddressLimit{5000};
constexpr Millis kTrialsLimit{40000};     // for all of them
constexpr Millis kOthersPatience{60000};  // for the others' beginning, and for their end
constexpr Millis kServerPatience{60000};
constexpr int kMostPorts = 4096;  // as many slots as a host may have

}  // namespace

// One rank counts, so that the store is asked once for each rank, and not by each about each.
Status Network::wait_for_all(const std::string& point, Deadline deadline) {
  const std::string scope = rendezvous::scope_of_epoch(epoch_, kRoutesScope);
  const Bytes here{1};
  if (numbers_.rank == 0) {
    for (int rank = 1; rank < numbers_.size; ++rank) {
      HVD_RETURN_IF_ERROR(client_.wait(scope, point + std::to_string(rank), deadline).status());
    }
    return client_.put(scope, point, here, deadline);
  }
  HVD_RETURN_IF_ERROR(client_.put(scope, point + std::to_string(numbers_.rank), here, deadline));
  return client_.wait(scope, point, deadline).status();
}

// A rank is tried when it listens for its session, and listens until nobody tries it any more.
Status Network::try_routes(const std::function<void(const std::vector<RouteTry>&)>& tell) {
  HVD_RETURN_IF_ERROR(open_fabric());
  HVD_RETURN_IF_ERROR(wait_for_all("open", Deadline::after(kOthersPatience)));
  HVD_ASSIGN_OR_RETURN(const auto tries, fabric_->try_routes(kAddressLimit, Deadline::after(kTrialsLimit)));
  tell(tries);
  return wait_for_all("tried", Deadline::after(kOthersPatience));
}

}  // namespace engine

Result<int> count_free_ports(const config::RuntimeConfig& config) {
  configure_log({config.log_level, config.log_hide_time, config.size > 1 ? config.rank : -1});
  if (config.ports.is_any()) return Status::precondition("there is no range of ports to count: HOROVOD_PORT_RANGE");
  return engine::Network::count_free_ports(config, engine::kMostPorts, Deadline::after(engine::kServerPatience));
}

Status try_routes(const config::RuntimeConfig& config, const std::function<void(const std::vector<RouteTry>&)>& tell) {
  configure_log({config.log_level, config.log_hide_time, config.size > 1 ? config.rank : -1});
  if (config.size < 2) return Status::precondition("routes are tried by a job of several ranks");
  HVD_ASSIGN_OR_RETURN(const auto network, engine::Network::join(config, {}));
  return network->try_routes(tell);
}

}  // namespace hvd
