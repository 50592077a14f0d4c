#include "horovod/session.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/log.h"
#include "runtime/collectives/gloo/gloo_backend.h"
#include "runtime/collectives/nccl/library.h"
#include "runtime/collectives/shm/arena.h"
#include "runtime/crypto/payload_seals.h"
#include "runtime/engine/backends.h"
#include "runtime/engine/device_memory.h"
#include "runtime/engine/engine_loop.h"
#include "runtime/engine/network.h"

// The composition root of a rank: the only place that names concrete parts and connects them.
namespace hvd {

namespace {

// How long leaving a job may take before the rank goes without a goodbye; when its user has interrupted init(), others
// may not even be there.
constexpr Millis kShutdownLimit{10000};
constexpr Millis kInterruptedLimit{1000};
constexpr Millis kInterruptSlice{100};

std::shared_ptr<PagePool> make_pages(const config::RuntimeConfig& config) {
  PagePool::Limits limits;
  limits.idle_bytes = static_cast<std::size_t>(config.idle_output_bytes);
  return PagePool::make(limits);
}

class SessionImpl final : public Session {
 public:
  SessionImpl(const config::RuntimeConfig& config, std::unique_ptr<engine::Network> network)
      : config_(config),
        membership_(network ? network->membership() : engine::membership_alone(config)),
        pages_(make_pages(config)),
        devices_(std::make_shared<collectives::cuda::Devices>(config.cuda_driver)),
        arena_(network ? network->shared_memory().arena : nullptr),
        network_(std::move(network)),
        seals_(network_ ? network_->object_key() : crypto::Secret::random(), membership_.rank()),
        table_(membership_.rank(), topology::initial_sets(membership_.size()), recorder_),
        small_(std::make_shared<engine::SmallExchange>(
            membership_.rank(), table_, [this](const topology::ProcessSet& set) { return network_->make_slots(set); },
            engine::SmallExchange::Engine{[this] { engine_.notify(); },
                                          [this](const std::string& why) { engine_.fail(why); }})),
        set_changes_(membership_.size()),
        engine_(
            engine::make_engine_options(config, membership_, pages_), table_, *small_, set_changes_, recorder_,
            [this](const topology::ProcessSet& set) { return make_backends(set); },
            [this](const wire::Stop& reason) { on_stop(reason); }) {}

  ~SessionImpl() override { shutdown(); }

  // Connects the control tree. On failure the session is only good for destruction.
  Status connect(Deadline deadline, const std::stop_token& stop) {
    const std::stop_callback cancel(stop, [this] {
      if (network_ != nullptr) network_->abort(Status::aborted("interrupted"));
    });
    HVD_FAILPOINT_RETURN("session.connect");
    std::unique_ptr<transport::ControlLinks> links;
    if (network_ != nullptr) {
      HVD_ASSIGN_OR_RETURN(
          links, network_->fabric().connect_control(
                     engine_.loop().uv(), [this](std::function<void()> fn) { engine_.loop().post(std::move(fn)); },
                     engine_.tree().parent(membership_.rank()), engine_.tree().children(membership_.rank()), engine_,
                     deadline));
    }
    engine_.attach(std::move(links));
    connected_ = true;
    return Status::ok();
  }

  void begun() {
    if (network_ != nullptr) network_->begun();
  }

  const JobTopology& topology() const override { return membership_.numbers(); }

  // Registers the lists given to start(). Every rank does this first of all, also without lists: that is how ranks find
  // out that others gave some.
  Status register_static(std::vector<std::vector<int>> lists, Deadline deadline, const std::stop_token& stop) {
    HVD_FAILPOINT_RETURN("session.sets");
    wire::SetChange change;
    change.kind = wire::SetChange::Kind::kStatic;
    change.rank_lists = std::move(lists);
    const Result<HandlePtr> requested = request(std::move(change));
    if (!requested.is_ok()) {  // a list is wrong, or another rank has ended the session
      const bool is_wrong = requested.status().code() == StatusCode::kInvalidArgument;
      return is_wrong ? requested.status() : registered(requested.status());
    }
    const HandlePtr& handle = requested.value();
    while (!handle->done()) {
      if (deadline.expired()) return Status::timeout("not every rank came to register its process sets");
      if (stop.stop_requested()) {
        shutdown_limit_ = kInterruptedLimit;
        return Status::aborted("interrupted");
      }
      handle->wait_for(std::min(deadline.remaining(), kInterruptSlice));
    }
    return registered(handle->status());
  }

  static Status registered(const Status& status) {
    return status.annotate("registering the process sets given to init()");
  }

  std::map<std::int32_t, std::vector<int>> process_sets() const override {
    std::map<std::int32_t, std::vector<int>> ranks;
    const topology::ProcessSets sets = table_.sets();
    for (const topology::ProcessSetPtr& set : sets->sets()) ranks[set->id] = set->ranks;
    return ranks;
  }

  int process_set_size(std::int32_t id) const override {
    const topology::ProcessSets sets = table_.sets();
    const topology::ProcessSet* const set = sets->find(id);
    return set == nullptr ? 0 : set->size();
  }

  std::uint64_t joins() const override { return table_.joins(); }

  Result<HandlePtr> add_process_set(std::vector<int> ranks) override {
    wire::SetChange change;
    change.kind = wire::SetChange::Kind::kAdd;
    change.rank_lists.push_back(std::move(ranks));
    return request(std::move(change));
  }

  Result<HandlePtr> remove_process_set(std::int32_t id) override {
    HVD_RETURN_IF_ERROR(table_.close_set(id));
    small_->leave(id);
    wire::SetChange change;
    change.kind = wire::SetChange::Kind::kRemove;
    change.set_id = id;
    return request(std::move(change));
  }

  Result<HandlePtr> enqueue(Operation operation) override {
    HVD_RETURN_IF_ERROR(engine::mark_ready(*devices_, {&operation, 1}, may_precede_gpu_));
    return small_->add(std::move(operation));
  }

  Result<std::vector<HandlePtr>> enqueue_group(std::vector<Operation> operations) override {
    HVD_RETURN_IF_ERROR(engine::mark_ready(*devices_, operations, may_precede_gpu_));
    return small_->add_group(std::move(operations));
  }

  std::vector<std::string> pending() const override { return table_.pending(); }
  ControlTraffic control_traffic() const override { return engine_.traffic(); }

  std::shared_ptr<PagePool> pages() const override { return pages_; }
  std::shared_ptr<void> allocate_shared(std::size_t bytes) override {
    return arena_ == nullptr ? nullptr : arena_->take(bytes);
  }

  Result<std::shared_ptr<void>> allocate_on_gpu(int device, std::size_t bytes) override {
    HVD_ASSIGN_OR_RETURN(const auto gpu, devices_->get(device));
    return gpu->allocate(std::max(bytes, std::size_t{1}));
  }

  std::vector<std::uint8_t> seal_payload(std::string_view purpose, std::span<const std::uint8_t> payload) override {
    return seals_.seal(purpose, payload);
  }

  Result<std::size_t> open_payload(int sender, std::string_view purpose,
                                   std::span<const std::uint8_t> sealed) override {
    return seals_.open(sender, purpose, sealed);
  }

  std::vector<HostUpdate> take_host_updates() override {
    return network_ == nullptr ? std::vector<HostUpdate>() : network_->take_host_updates();
  }

  void start_timeline(const std::string& file, bool mark_cycles) override {
    std::lock_guard lock(shutdown_mutex_);
    if (membership_.rank() == 0 && !shut_down_) recorder_.timeline().start(file, mark_cycles);
  }
  void stop_timeline() override { recorder_.timeline().stop(); }

  void announce_failure(const std::string& why) override {
    std::lock_guard lock(shutdown_mutex_);
    if (!is_alone_in_leaving()) return;
    // The launcher first: no rank that hears of it from this one may end before the launcher knows which failed first.
    network_->notify_agent(rendezvous::AgentNotice::kFailing);
    engine_.fail(why);
  }

  void announce_exit() override {
    std::lock_guard lock(shutdown_mutex_);
    if (is_alone_in_leaving()) network_->notify_agent(rendezvous::AgentNotice::kLeaving);
  }

  void shutdown() override {
    std::lock_guard lock(shutdown_mutex_);
    if (std::exchange(shut_down_, true)) return;
    HVD_FAILPOINT("end.shutdown");
    const ControlTraffic traffic = engine_.traffic();
    HVD_LOG(kInfo, "session ends", log_field("control_messages", traffic.messages_sent + traffic.messages_received),
            log_field("control_bytes", traffic.bytes_sent + traffic.bytes_received));
    const Deadline deadline = Deadline::after(shutdown_limit_);
    const wire::Stop local{wire::Stop::Kind::kShutdown, membership_.rank(), "shut down"};
    if (connected_) {
      engine_.request_shutdown();
      wait_for_stop(deadline);
    }
    if (!engine_.stopped().is_set()) {
      engine_.force_stop(local);
      engine_.stopped().wait();
    }
    HVD_FAILPOINT("end.stopped");
    engine_.finish(deadline, [this] {
      if (network_ != nullptr) network_->abort(Status::timeout("the session was shut down"));
    });
    network_.reset();
    recorder_.timeline().stop();
    pages_->close();
    if (connected_) engine::report_work(config_, table_.work());
  }

  void abandon_after_fork() override {
    // Only a flag changes: the threads of the parent do not exist in this process and no lock of theirs is taken.
    shut_down_ = true;
  }

 private:
  std::shared_ptr<collectives::BackendList> make_backends(const topology::ProcessSet& set) {
    return set.size() > 1 ? network_->make_backends(set, devices_)
                          : engine::make_local_backends(config_, set, devices_);
  }

  // The session goes on for the others, as far as this rank knows.
  bool is_alone_in_leaving() const {
    return !shut_down_ && connected_ && network_ != nullptr && !engine_.stopping().is_set();
  }

  void log_stop(const wire::Stop& reason) const {
    // A rank that prints a traceback need not be quoted by all others; their pending operations fail with this text.
    const bool has_traceback = reason.message.find(": uncaught exception ") != std::string::npos;
    const bool is_own = reason.rank == membership_.rank() && reason.kind != wire::Stop::Kind::kStall;
    if (has_traceback || is_own) {
      HVD_LOG(kInfo, reason.message);
    } else {
      HVD_LOG(kError, reason.message);
    }
  }

  Result<HandlePtr> request(wire::SetChange change) {
    HVD_ASSIGN_OR_RETURN(auto handle, set_changes_.add(std::move(change)));
    engine_.notify();
    return handle;
  }

  void wait_for_stop(Deadline deadline) {
    while (!engine_.stopped().is_set() && !deadline.expired()) engine_.stopped().wait_for(deadline.remaining());
  }

  void on_stop(const wire::Stop& reason) {
    if (reason.kind == wire::Stop::Kind::kShutdown) return;
    log_stop(reason);
    if (network_ != nullptr) network_->abort(reason.status());
  }

  const config::RuntimeConfig config_;
  const topology::Membership membership_;
  const std::shared_ptr<PagePool> pages_;
  const std::shared_ptr<collectives::cuda::Devices> devices_;
  // Only where it is asked for: after a peer's loss nothing may be made of what is left of its collective, and saved.
  const bool may_precede_gpu_ = config_.async_completion;
  recorder::FlightRecorder recorder_{!config_.disable_nvtx_ranges};
  const std::shared_ptr<collectives::ShmArena> arena_;  // null when the ranks of this host share nothing
  std::unique_ptr<engine::Network> network_;
  crypto::PayloadSeals seals_;
  engine::OperationTable table_;
  const std::shared_ptr<engine::SmallExchange> small_;
  engine::SetChanges set_changes_;
  engine::EngineLoop engine_;
  std::mutex shutdown_mutex_;
  bool connected_ = false;
  bool shut_down_ = false;
  Millis shutdown_limit_ = kShutdownLimit;
};

// Of an elastic job's session, when peers are lost while it starts.
constexpr int kMaxStarts = 20;

bool may_begin_anew(const config::RuntimeConfig& config, const Status& failed, const std::stop_token& stop) {
  const StatusCode code = failed.code();
  return config.elastic && !stop.stop_requested() &&
         (code == StatusCode::kPeerLost || code == StatusCode::kTimeout || code == StatusCode::kAborted);
}

// HOROVOD_TIMELINE: not now.
constexpr std::string_view kStartedByCall = "DYNAMIC";

// With the network of one epoch.
Result<std::unique_ptr<Session>> begin(const config::RuntimeConfig& config, std::unique_ptr<engine::Network> network,
                                       const std::stop_token& stop, std::vector<std::vector<int>> process_sets) {
  const Deadline deadline = Deadline::after(config.gloo_timeout);
  auto session = std::make_unique<SessionImpl>(config, std::move(network));
  const JobTopology& own = session->topology();
  configure_log({config.log_level, config.log_hide_time, own.size > 1 ? own.rank : -1});
  if (!config.timeline.empty() && config.timeline != kStartedByCall) {
    session->start_timeline(config.timeline, config.timeline_mark_cycles);
  }
  HVD_RETURN_IF_ERROR(session->connect(deadline, stop));
  HVD_RETURN_IF_ERROR(session->register_static(std::move(process_sets), deadline, stop));
  HVD_FAILPOINT_RETURN("session.begun");
  session->begun();
  HVD_LOG(kInfo, "session started", log_field("rank", own.rank), log_field("size", own.size),
          log_field("local_rank", own.local_rank), log_field("host", config.hostname));
  return std::unique_ptr<Session>(std::move(session));
}

// With the others, once or more often.
Result<std::unique_ptr<Session>> join_and_begin(const config::RuntimeConfig& config, const std::stop_token& stop,
                                                const std::vector<std::vector<int>>& process_sets,
                                                const crypto::Secret* secret) {
  for (int starts = 1;; ++starts) {
    HVD_ASSIGN_OR_RETURN(auto network, engine::Network::join(config, stop, secret));
    const Status reached = network->reach(stop);
    auto session = reached.is_ok() ? begin(config, std::move(network), stop, process_sets)
                                   : Result<std::unique_ptr<Session>>(reached);
    if (session.is_ok() || starts == kMaxStarts || !may_begin_anew(config, session.status(), stop)) return session;
    HVD_LOG(kWarning, "init() begins anew: ", session.status().message());
  }
}

}  // namespace

Result<std::unique_ptr<Session>> Session::start(const config::RuntimeConfig& config, const std::stop_token& stop,
                                                std::vector<std::vector<int>> process_sets,
                                                const crypto::Secret* secret) try {
  configure_log({config.log_level, config.log_hide_time, config.size > 1 ? config.rank : -1});
  for (const std::string& warning : config.warnings) HVD_LOG(kWarning, warning);
  for (const std::string& error : config.errors) HVD_LOG(kError, error);
  if (!config.failpoints.empty()) HVD_RETURN_IF_ERROR(failpoint::arm(config.failpoints));
  const bool is_alone = config.size == 1 && !(config.elastic && !config.rendezvous_addr.empty());
  if (is_alone) return begin(config, nullptr, stop, std::move(process_sets));
  return join_and_begin(config, stop, process_sets, secret);
} catch (const std::system_error& e) {  // a thread, or a descriptor of one, that the system does not give
  return Status::from_errno("what a session needs", e.code().value());
} catch (const std::exception& e) {  // no memory, or OpenSSL lacks what keys need
  return Status::from_exception(e).annotate("what a session needs");
}

bool may_leave_later(const config::RuntimeConfig& config) {
  return engine::notify_agent(config, rendezvous::AgentNotice::kDraining).is_ok();
}

std::string gloo_library() { return collectives::gloo_library(); }

int nccl_version(const std::string& file) {
  const auto library = collectives::nccl::Library::load(file);
  return library.is_ok() ? library.value()->version() : 0;
}

}  // namespace hvd
