#include "launcher/inspect/stack_service.h"

#include <utility>

namespace hvd::launcher {

StackService::StackService(MainLoop& loop, std::function<std::set<int>()> ask)
    : ask_(std::move(ask)), patience_(loop.get(), [this] { answer(); }) {}

void StackService::ask(JobSocket::Reply reply) {
  waiting_.push_back(std::move(reply));
  if (waiting_.size() > 1) return;  // the answer is under way
  asked_ = ask_();
  asked_.empty() ? answer() : patience_.start(kPatience);
}

void StackService::stacks(int rank, const std::string& who, const std::string& text) {
  if (waiting_.empty() || size_ > kMaxText) return;
  std::string& whole = texts_[rank];
  whole = who + ": " + text + "\n";
  size_ += whole.size();
}

void StackService::agent_answered(int agent) {
  if (asked_.erase(agent) > 0 && asked_.empty()) answer();
}

void StackService::answer() {
  patience_.stop();
  std::string text;
  for (const auto& [rank, one] : texts_) text += one;
  if (!asked_.empty()) text += std::to_string(asked_.size()) + " hosts have not answered\n";
  if (text.empty()) text = "no rank runs\n";
  for (const JobSocket::Reply& reply : std::exchange(waiting_, {})) reply(text, asked_.empty());
  asked_.clear();
  texts_.clear();
  size_ = 0;
}

}  // namespace hvd::launcher
