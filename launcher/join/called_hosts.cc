#include "launcher/join/called_hosts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "launcher/hosts/host_list.h"
#include "launcher/hosts/host_spec.h"

namespace hvd::launcher {
namespace {

std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kShown ? text + " and " + std::to_string(names.size() - kShown) + " more" : text;
}

}  // namespace

HostSpec spec_of(const CalledHost& host, int slots) {
  HostSpec spec;
  spec.name = host.name;
  spec.slots = slots;
  spec.node = host.node;
  return spec;
}

std::string CalledHosts::ask(const JoinRequest& request, const std::string& address) {
  std::string refusal = refusal_of(request);
  if (refusal.empty()) hosts_[request.name] = {.host = {request.name, request.node, address}};
  return refusal;
}

std::string CalledHosts::refusal_of(const JoinRequest& request) const {
  if (request.version != HVD_VERSION) {
    return "this host has version " + request.version + ", the launcher " + HVD_VERSION +
           ": install the same version on all hosts";
  }
  if (const Status status = check_host_name(request.name); !status.is_ok()) return status.message();
  const Status node = request.node.empty() ? Status::ok() : check_host_name(request.node);
  if (!node.is_ok()) return node.message();
  if (has_ended_) return "the job has ended";
  const auto found = hosts_.find(request.name);
  if (found == hosts_.end()) return count_refusal();
  const std::string start = "a host of the name " + request.name + " has joined already";
  if (is_closed()) return start + ", and the job has begun";
  return start + ", from " + found->second.host.address + "; --host-name gives this one another name";
}

std::string CalledHosts::count_refusal() const {
  const std::size_t most = is_elastic_ ? kMaxHosts : needed_;
  return hosts_.size() < most ? "" : "the job has its " + std::to_string(most) + " hosts already";
}

bool CalledHosts::take(const std::string& name) {
  const auto found = hosts_.find(name);
  return found != hosts_.end() && !std::exchange(found->second.is_taken, true);
}

void CalledHosts::left(const std::string& name) {
  if (!is_closed()) hosts_.erase(name);
}

bool CalledHosts::let_go(const std::string& name) {
  const auto found = hosts_.find(name);
  if (is_closed() || found == hosts_.end() || !found->second.is_taken) return false;
  hosts_.erase(found);
  return true;
}

void CalledHosts::not_proven(const std::string& address) {
  ++unproven_;
  last_unproven_ = address;
}

std::vector<CalledHost> CalledHosts::hosts() const {
  std::vector<CalledHost> hosts;
  hosts.reserve(hosts_.size());
  for (const auto& [name, entry] : hosts_) hosts.push_back(entry.host);
  std::ranges::sort(hosts, [](const CalledHost& a, const CalledHost& b) { return comes_before(a.name, b.name); });
  put_nodes_together(hosts);
  return hosts;
}

std::string CalledHosts::progress() const {
  std::vector<std::string> names;
  names.reserve(hosts_.size());
  for (const auto& [name, entry] : hosts_) names.push_back(name);
  std::ranges::sort(names, comes_before);
  const std::string who = names.empty() ? "" : " (" + names_text(names) + ")";
  std::string text = std::to_string(names.size()) + " of " + std::to_string(needed_) + " hosts have joined" + who;
  if (unproven_ > 0) {
    text += "; " + std::to_string(unproven_) + (unproven_ == 1 ? " connection" : " connections") +
            " did not have the token, the last from " + last_unproven_;
  }
  return text;
}

}  // namespace hvd::launcher
