#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "horovod/routes.h"
#include "python/src/error_map.h"
#include "python/src/registration.h"
#include "runtime/config/runtime_config.h"

namespace hvd::python {
namespace {

using Try = std::tuple<int, std::string, std::string, std::string, std::int64_t, std::string>;

config::RuntimeConfig load_config() {
  auto config = config::load_runtime_config(config::ProcessEnv());
  if (!config.is_ok()) raise_value_error(config.status());
  return std::move(config).value();
}

int count_free_ports() {
  const config::RuntimeConfig config = load_config();
  const auto counted = [&] {
    const pybind11::gil_scoped_release release;
    return hvd::count_free_ports(config);
  }();
  raise_if_error(counted.status());
  return counted.value();
}

// `tell` is Python's, and called while the routes of others may still lead here.
void try_routes(const std::function<void(const std::vector<Try>&)>& tell) {
  const config::RuntimeConfig config = load_config();
  const auto tell_python = [&tell](const std::vector<RouteTry>& tries) {
    std::vector<Try> rows;
    rows.reserve(tries.size());
    for (const RouteTry& one : tries) {
      rows.emplace_back(one.rank, one.address, one.interface, route_outcome_name(one.outcome), one.round_trip.count(),
                        one.error);
    }
    const pybind11::gil_scoped_acquire gil;
    tell(rows);
  };
  const Status tried = [&] {
    const pybind11::gil_scoped_release release;
    return hvd::try_routes(config, tell_python);
  }();
  raise_if_error(tried);
}

}  // namespace

void register_routes(pybind11::module_& module) {
  module.def("count_free_ports", &count_free_ports);
  module.def("try_routes", &try_routes, pybind11::arg("tell"));
}

}  // namespace hvd::python
