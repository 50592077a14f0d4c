// What all processes of this host share: it is made when the launch frame comes, and kept for the start frames.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "launcher/agent/agent.h"
#include "launcher/agent/host_topology.h"
#include "runtime/base/failpoint.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {
namespace {

// Why ranks cannot start there; "" when they can.
std::string problem_of(const std::string& directory) {
  struct stat info = {};
  const bool is_found = ::stat(directory.c_str(), &info) == 0;
  if (is_found && S_ISDIR(info.st_mode) && ::access(directory.c_str(), X_OK) == 0) return "";
  const bool is_missing = is_found ? !S_ISDIR(info.st_mode) : errno == ENOENT || errno == ENOTDIR;
  if (is_missing) return "there is no directory " + directory + " there";
  return Status::from_errno("cannot enter the directory " + directory + " there", errno).message();
}

// "local rank 0: cpus 0-3, GPU 0; local rank 1: ..."
std::string text_of(const BindingConfig& config, const std::vector<SlotBinding>& bindings) {
  const std::string who = config.grows ? "share " : "local rank ";  // which slots take as they come
  std::string text;
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    text += (i == 0 ? "" : "; ") + who + std::to_string(i) + ": " + binding_text(bindings[i]);
  }
  return text;
}

// Of ranks that --bind gpu could not place: "local rank 0, local rank 1"; or nothing.
std::string unplaced_text(const BindingConfig& config, const std::vector<SlotBinding>& bindings) {
  std::string text;
  for (std::size_t i = 0; config.bind == Bind::kGpu && i < bindings.size(); ++i) {
    if (bindings[i].cpus.empty()) text += (text.empty() ? "local rank " : ", local rank ") + std::to_string(i);
  }
  return text;
}

// "4", or "4 to 6" where the ranks are bound to unequal shares.
std::string threads_text(int unbound, const std::vector<SlotBinding>& bindings) {
  int least = 0;
  int most = 0;
  for (const SlotBinding& binding : bindings) {
    const int threads = binding.threads > 0 ? binding.threads : unbound;
    least = least == 0 ? threads : std::min(least, threads);
    most = std::max(most, threads);
  }
  return least == most ? std::to_string(most) : std::to_string(least) + " to " + std::to_string(most);
}

}  // namespace

Status Agent::launch(LaunchMessage message) {
  HVD_FAILPOINT_RETURN("agent.launch");
  if (launch_) return Status::precondition("an agent got a second launch frame");
  relay_.keep(message);
  std::error_code ignored;
  if (const std::string problem = problem_of(message.cwd); !problem.empty()) {
    if (message.needs_cwd) return Status::precondition("--wdir: " + problem);
    const std::string here = std::filesystem::current_path(ignored).string();
    send(FrameType::kNotice,
         TextMessage{(message.cwd.empty() ? "horovodrun's own directory has been removed" : problem) +
                     "; ranks start in " + (here.empty() ? "it" : here)});
    message.cwd.clear();
  }
  facts_ = facts_of_this_host();
  kills_before_ = memory_kills_of_this_host();
  HVD_ASSIGN_OR_RETURN(environment_, host_environment(config::ProcessEnv(), message.env, message.slots, facts_));
  launch_ = std::move(message);
  watch_lease();
  launch_->env.clear();  // they are in environment_
  probe_ = std::make_unique<RendezvousProbe>(loop_, launch_->rendezvous_addresses, launch_->rendezvous_port,
                                             [this](const Result<std::string>& address) { probed(address); });
  probe_->start();
  return Status::ok();
}

void Agent::probed(const Result<std::string>& address) {
  HVD_FAILPOINT("agent.probed");
  if (!leased_ || sweeper_.active()) return;  // nothing is to start any more
  if (!address.is_ok()) return fail(address.status());
  open_slots(address.value());
}

void Agent::open_slots(const std::string& address) {
  auto bindings = bind_slots(launch_->binding, launch_->slots, environment_.variables);
  if (!bindings.is_ok()) return fail(bindings.status());
  for (SlotBinding& one : bindings.value()) {
    if (facts_.has_quota && environment_.threads) one.threads = std::min(one.threads, *environment_.threads);
  }
  if (launch_->tells_binding && launch_->binding.any())
    send(FrameType::kNotice, TextMessage{text_of(launch_->binding, bindings.value())});
  if (const std::string unplaced = unplaced_text(launch_->binding, bindings.value()); !unplaced.empty()) {
    send(FrameType::kNotice, TextMessage{"--bind gpu: nothing tells which cores are near the GPU of " + unplaced +
                                         ", which may run on any; --bind core gives each rank cores of its own"});
  }
  if (environment_.threads && launch_->announces_threads) {
    send(FrameType::kNotice,
         TextMessage{"OMP_NUM_THREADS=" + threads_text(*environment_.threads, bindings.value()) + " for each of its " +
                     std::to_string(launch_->slots) + " ranks, their share of " + std::to_string(facts_.cores) +
                     (facts_.cores == 1 ? " core" : " cores") + "; set OMP_NUM_THREADS to choose another number"});
  }
  // The variables, which may hold the user's tokens, stay in memory as long as a slot may be started.
  slots_.open({.job_secret = launch_->secret,
               .command = std::move(launch_->command),
               .cwd = launch_->cwd,
               .ignored_signals = launch_->ignored_signals,
               .environment = std::move(environment_),
               .bindings = std::move(bindings).value(),
               .one_for_each = launch_->binding.needs_gpus(),
               .rendezvous_address = address,
               .rendezvous_port = launch_->rendezvous_port},
              launch_->slots);
}

}  // namespace hvd::launcher
