#include "starters/pmi_channel.h"

namespace hvd::starters {
namespace {

constexpr std::string_view kKey = "horovod";

}  // namespace

Result<PmiLine> PmiChannel::ask(const PmiWords& request, std::string_view answer, const Wait& wait) {
  return socket_.ask(PmiSocket::Form::kLine, request, answer, wait.deadline, wait.wake_fd);
}

Status PmiChannel::open(const Wait& wait) {
  HVD_RETURN_IF_ERROR(
      ask({{"cmd", "init"}, {"pmi_version", "1"}, {"pmi_subversion", "1"}}, "response_to_init", wait).status());
  HVD_ASSIGN_OR_RETURN(const PmiLine space, ask({{"cmd", "get_my_kvsname"}}, "my_kvsname", wait));
  space_ = space["kvsname"];
  return space_.empty() ? Status::internal(name() + ": it has no name") : Status::ok();
}

Status PmiChannel::put(const std::string& text, const Wait& wait) {
  return ask({{"cmd", "put"}, {"kvsname", space_}, {"key", kKey}, {"value", text}}, "put_result", wait).status();
}

Status PmiChannel::pass_fence(const Wait& wait) { return ask({{"cmd", "barrier_in"}}, "barrier_out", wait).status(); }

Result<std::string> PmiChannel::get(const Wait& wait) {
  HVD_ASSIGN_OR_RETURN(const PmiLine answer,
                       ask({{"cmd", "get"}, {"kvsname", space_}, {"key", kKey}}, "get_result", wait));
  return answer["value"];
}

Result<PmiLine> Pmi2Channel::ask(const PmiWords& request, const Wait& wait) {
  const std::string answer = std::string(request.front().second) + "-response";
  return socket_.ask(PmiSocket::Form::kBlock, request, answer, wait.deadline, wait.wake_fd);
}

// The greeting is a line as of PMI-1, which says that blocks follow.
Status Pmi2Channel::open(const Wait& wait) {
  if (is_open_) return Status::ok();
  HVD_ASSIGN_OR_RETURN(
      const PmiLine answer,
      socket_.ask(PmiSocket::Form::kLine, {{"cmd", "init"}, {"pmi_version", "2"}, {"pmi_subversion", "0"}},
                  "response_to_init", wait.deadline, wait.wake_fd));
  if (answer["pmi_version"] != "2") {
    return Status::internal(name() + ": it speaks version " + answer["pmi_version"] + ", expected 2");
  }
  const std::string rank = std::to_string(rank_);
  HVD_ASSIGN_OR_RETURN(const PmiLine full,
                       ask({{"cmd", "fullinit"}, {"pmijobid", job_}, {"pmirank", rank}, {"threaded", "FALSE"}}, wait));
  if (full["rank"] != rank) {
    return Status::internal(name() + ": it takes this process for rank " + full["rank"] + ", expected " + rank);
  }
  is_open_ = true;
  return Status::ok();
}

Status Pmi2Channel::put(const std::string& text, const Wait& wait) {
  return ask({{"cmd", "kvs-put"}, {"key", kKey}, {"value", text}}, wait).status();
}

Status Pmi2Channel::pass_fence(const Wait& wait) { return ask({{"cmd", "kvs-fence"}}, wait).status(); }

Result<std::string> Pmi2Channel::get(const Wait& wait) {
  HVD_ASSIGN_OR_RETURN(const PmiLine answer,
                       ask({{"cmd", "kvs-get"}, {"jobid", job_}, {"srcid", "-1"}, {"key", kKey}}, wait));
  if (answer["found"] != "TRUE") return Status::internal(name() + ": rank 0 has put nothing there");
  return answer["value"];
}

}  // namespace hvd::starters
