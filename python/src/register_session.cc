#include <pybind11/stl.h>

#include <chrono>
#include <exception>
#include <optional>
#include <stop_token>
#include <system_error>

#include "horovod/session.h"
#include "python/src/error_map.h"
#include "python/src/gil.h"
#include "python/src/registration.h"
#include "python/src/session_slot.h"
#include "runtime/base/bytes.h"
#include "runtime/base/event.h"
#include "runtime/base/thread.h"
#include "runtime/config/runtime_config.h"
#include "starters/meeting.h"

namespace hvd::python {

namespace {

using RankLists = std::vector<std::vector<int>>;
using Environment = std::optional<std::map<std::string, std::string>>;

Result<config::RuntimeConfig> read_config(const Environment& environment) {
  if (!environment) return config::load_runtime_config(config::ProcessEnv());
  config::MapEnv::Map map(environment->begin(), environment->end());
  return config::load_runtime_config(config::MapEnv(std::move(map)));
}

// Finds the job first, where another starter began it; `meeting` is that of an earlier session, and then this one's.
Result<std::unique_ptr<Session>> find_and_start(config::RuntimeConfig config, const RankLists& process_sets,
                                                const std::stop_token& stop,
                                                std::shared_ptr<starters::Meeting>& meeting) try {
  if (!config.started_by) return Session::start(config, stop, process_sets);
  if (meeting == nullptr) {
    HVD_ASSIGN_OR_RETURN(meeting, starters::Meeting::hold(config, stop));
  }
  meeting->apply(config);
  auto session = Session::start(config, stop, process_sets, &meeting->secret());
  if (session.is_ok()) meeting->everybody_is_here();
  return session;
} catch (const std::system_error& e) {  // of the meeting, as in Session::start
  return Status::from_errno("what finding the job needs", e.code().value());
} catch (const std::exception& e) {
  return Status::from_exception(e).annotate("what finding the job needs");
}

// Runs Session::start on a thread of its own, so that this one can look at signals: joining a job may take as long as
// the slowest rank needs to come up.
Result<std::unique_ptr<Session>> start_interruptibly(const config::RuntimeConfig& config, const RankLists& process_sets,
                                                     std::shared_ptr<starters::Meeting>& meeting) {
  std::optional<Result<std::unique_ptr<Session>>> result;
  Event finished;
  std::stop_source stop;
  std::jthread starter;
  try {
    starter = start_thread("hvd-init", [&](const std::stop_token&) {
      result.emplace(find_and_start(config, process_sets, stop.get_token(), meeting));
      finished.set();
    });
  } catch (const std::system_error& e) {
    return Status::from_errno("a thread for it", e.code().value());
  }
  try {
    wait_interruptibly([&](std::chrono::milliseconds slice) {
      if (GilWait::is_ending()) stop.request_stop();  // a daemon thread's, and the process ends
      return finished.wait_for(slice);
    });
  } catch (...) {
    stop.request_stop();
    {
      pybind11::gil_scoped_release release;
      starter.join();
      result.reset();
    }
    throw;
  }
  starter.join();
  return std::move(*result);
}

void init(const Environment& environment, const RankLists& process_sets, std::uint64_t progress) {
  if (session_slot().get() != nullptr) return;
  if (session_slot().is_child_of_rank()) {
    raise_value_error(Status::precondition(
        "hvd.init(): this process was forked from one that had called it, in whose place it would join; call init() in "
        "the child alone, or spawn the child with an environment of its own"));
  }
  auto config = read_config(environment);
  if (!config.is_ok()) raise_value_error(config.status());
  config.value().progress = progress;
  std::shared_ptr<starters::Meeting> meeting = session_slot().meeting();
  auto session = start_interruptibly(config.value(), process_sets, meeting);
  if (!session.is_ok()) raise_value_error(session.status().annotate("hvd.init()"));
  session_slot().set_meeting(std::move(meeting));
  session_slot().set(std::move(session).value());
}

// At the end of the process, after its last session: nobody joins with it any more.
void leave_job() {
  const std::shared_ptr<starters::Meeting> meeting = session_slot().meeting();
  if (meeting == nullptr) return;
  session_slot().set_meeting(nullptr);
  const pybind11::gil_scoped_release release;
  meeting->leave();
}

// ValueError for everything but a job that broke: scripts expect that, and elastic code must tell the two apart.
void check_change(const Status& status) {
  if (status.code() == StatusCode::kPeerLost) raise_if_error(status);
  if (!status.is_ok()) raise_value_error(status);
}

// Waits until all ranks have asked for the same change.
std::int64_t wait_for_change(const Result<HandlePtr>& handle) {
  check_change(handle.status());
  wait_interruptibly([&](std::chrono::milliseconds slice) { return handle.value()->wait_for(slice); });
  check_change(handle.value()->status());
  return handle.value()->value();
}

std::int64_t add_process_set(std::vector<int> ranks) {
  return wait_for_change(session_slot().require_topology()->add_process_set(std::move(ranks)));
}

void remove_process_set(std::int32_t id) { wait_for_change(session_slot().require_topology()->remove_process_set(id)); }

// Both wait for the disk.
void start_timeline(const std::string& file, bool mark_cycles) {
  const std::shared_ptr<Session> session = session_slot().require_topology();
  const WithoutGil without_gil;
  session->start_timeline(file, mark_cycles);
}

void stop_timeline() {
  const std::shared_ptr<Session> session = session_slot().require_topology();
  const WithoutGil without_gil;
  session->stop_timeline();
}

void announce_failure(const std::string& why) {
  const std::shared_ptr<Session> session = session_slot().get();
  if (session == nullptr) return;
  pybind11::gil_scoped_release release;
  session->announce_failure(why);
}

void announce_exit() {
  const std::shared_ptr<Session> session = session_slot().get();
  if (session == nullptr) return;
  pybind11::gil_scoped_release release;
  session->announce_exit();
}

ByteSpan bytes_of(const pybind11::buffer_info& info) {
  if (info.ndim != 1 || info.itemsize != 1 || info.strides[0] != 1) {
    raise_value_error(Status::invalid_argument("expected a buffer of contiguous bytes"));
  }
  return {static_cast<const std::uint8_t*>(info.ptr), static_cast<std::size_t>(info.size)};
}

pybind11::bytes seal_payload(const std::string& purpose, const pybind11::buffer& payload) {
  const std::shared_ptr<Session> session = session_slot().require_running();
  const pybind11::buffer_info info = payload.request();
  const ByteSpan bytes = bytes_of(info);
  std::vector<std::uint8_t> seal;
  {
    const WithoutGil without_gil;
    seal = session->seal_payload(purpose, bytes);
  }
  return {reinterpret_cast<const char*>(seal.data()), seal.size()};
}

std::size_t open_payload(int sender, const std::string& purpose, const pybind11::buffer& sealed) {
  const std::shared_ptr<Session> session = session_slot().require_running();
  const pybind11::buffer_info info = sealed.request();
  const ByteSpan bytes = bytes_of(info);
  const auto opened = [&] {
    const WithoutGil without_gil;
    return session->open_payload(sender, purpose, bytes);
  }();
  raise_if_error(opened.status());
  return opened.value();
}

std::vector<std::pair<std::int64_t, int>> take_host_updates() {
  std::vector<std::pair<std::int64_t, int>> updates;
  const std::shared_ptr<Session> session = session_slot().get();
  if (session == nullptr) return updates;
  for (const HostUpdate& update : session->take_host_updates()) updates.emplace_back(update.time_ms, update.change);
  return updates;
}

void shutdown() {
  std::shared_ptr<Session> session = session_slot().take();
  if (session == nullptr) return;
  {
    const WithoutGil without_gil;
    session->shutdown();
    session.reset();
  }
  release_dropped_objects();
}

// At the end of the process, after shutdown(): what daemon threads waited for has ended.
void let_waits_return() {
  const pybind11::gil_scoped_release release;
  GilWait::let_all_return(std::chrono::seconds(1));
}

template <typename Field>
void def_topology(pybind11::module_& module, const char* name, Field JobTopology::* field) {
  module.def(name, [field] { return session_slot().topology().*field; });
}

}  // namespace

void register_session(pybind11::module_& module) {
  module.def("init", &init, pybind11::arg("environment") = pybind11::none(),
             pybind11::arg("process_sets") = RankLists(), pybind11::arg("progress") = 0);
  module.def("shutdown", &shutdown);
  module.def("start_timeline", &start_timeline, pybind11::arg("file"), pybind11::arg("mark_cycles"));
  module.def("stop_timeline", &stop_timeline);
  module.def("announce_failure", &announce_failure, pybind11::arg("why"));
  module.def("announce_exit", &announce_exit);
  module.def("leave_job", &leave_job);
  module.def("let_waits_return", &let_waits_return);
  module.def("may_leave_later", [] {
    const auto config = read_config({});
    const pybind11::gil_scoped_release release;
    return config.is_ok() && may_leave_later(config.value());
  });
  module.def("is_initialized", [] { return session_slot().get() != nullptr; });
  module.def("is_child_of_rank", [] { return session_slot().is_child_of_rank(); });
  def_topology(module, "rank", &JobTopology::rank);
  def_topology(module, "size", &JobTopology::size);
  def_topology(module, "local_rank", &JobTopology::local_rank);
  def_topology(module, "local_size", &JobTopology::local_size);
  def_topology(module, "cross_rank", &JobTopology::cross_rank);
  def_topology(module, "cross_size", &JobTopology::cross_size);
  def_topology(module, "is_homogeneous", &JobTopology::is_homogeneous);
  def_topology(module, "epoch", &JobTopology::epoch);
  module.def("take_host_updates", &take_host_updates);
  module.def("joins", [] {
    const auto session = session_slot().get();
    return session == nullptr ? std::uint64_t{0} : session->joins();
  });
  module.def("process_sets", [] { return session_slot().require_topology()->process_sets(); });
  module.def("pending_operations", [] { return session_slot().require_topology()->pending(); });
  module.def(
      "process_set_size", [](std::int32_t id) { return session_slot().require_topology()->process_set_size(id); },
      pybind11::arg("process_set"));
  module.def("seal_payload", &seal_payload, pybind11::arg("purpose"), pybind11::arg("payload"));
  module.def("open_payload", &open_payload, pybind11::arg("sender"), pybind11::arg("purpose"), pybind11::arg("sealed"));
  module.def("add_process_set", &add_process_set, pybind11::arg("ranks"));
  module.def("remove_process_set", &remove_process_set, pybind11::arg("process_set"));
}

}  // namespace hvd::python
