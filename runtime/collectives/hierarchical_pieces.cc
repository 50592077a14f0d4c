// Calls host by host, in pieces: while one is between hosts, the steps inside them are done of the next and of the
// last.
#include <algorithm>
#include <exception>
#include <system_error>

#include "runtime/base/event.h"
#include "runtime/base/thread.h"
#include "runtime/base/work_queue.h"
#include "runtime/collectives/hierarchical_backend.h"

namespace hvd::collectives {
namespace {

// Of a step: what it throws, such as for want of memory, is an error like others.
Status result_of(const std::function<Status()>& step) {
  try {
    return step();
  } catch (const std::exception& e) {
    return Status::from_exception(e);
  }
}

}  // namespace

// A piece between hosts.
struct HierarchicalBackend::Across {
  std::function<Status()> run{};
  bool is_beside = false;  // it runs on the other thread; until it has ended, that one has the result
  Event has_ended{};
  Status result{};
};

// Runs what goes between hosts, piece after piece, while the lane's thread does the steps inside this one. Owned by the
// backend; its pieces end by themselves or by an abort of the backend. After a failure it runs none: what other members
// receive might be taken for another piece.
class HierarchicalBackend::AcrossThread {
 public:
  AcrossThread() : thread_(start_thread("hvd-across", [this](const std::stop_token&) { run(); })) {}
  ~AcrossThread() { pieces_.close(); }
  AcrossThread(const AcrossThread&) = delete;
  AcrossThread& operator=(const AcrossThread&) = delete;

  // The piece and its memory stay until it has ended.
  void push(Across& piece) { pieces_.push(&piece); }

 private:
  void run() {
    Status status;
    while (const std::optional<Across*> piece = pieces_.pop()) {
      if (status.is_ok()) status = result_of((*piece)->run);
      (*piece)->result = status;
      (*piece)->has_ended.set();
    }
  }

  WorkQueue<Across*> pieces_;
  std::jthread thread_;  // last: it uses everything above
};

HierarchicalBackend::HierarchicalBackend(HostGroups groups) : groups_(std::move(groups)) {}

HierarchicalBackend::~HierarchicalBackend() = default;

// Owners have enough of each for what a collective costs besides its bytes not to count.
std::int64_t HierarchicalBackend::pieces_of(std::uint64_t bytes, std::size_t sharers) const {
  const std::uint64_t smallest = groups_.owner_bytes * sharers * static_cast<std::uint64_t>(groups_.slices);
  return static_cast<std::int64_t>(std::max<std::uint64_t>(1, bytes / smallest));
}

Status HierarchicalBackend::in_pieces(std::size_t pieces, const Steps& steps) {
  std::deque<Across> across(pieces);
  Status result = result_of([&] { return run_steps(steps, across); });
  for (Across& piece : across) {
    if (piece.is_beside) piece.has_ended.wait();
  }
  return result;
}

// All members do the same steps in the same order, each of which needs only those before it on others.
Status HierarchicalBackend::run_steps(const Steps& steps, std::deque<Across>& pieces) {
  for (std::size_t i = 0; i <= pieces.size(); ++i) {
    if (i < pieces.size()) {
      HVD_RETURN_IF_ERROR(steps.before(i));
      begin_across(steps, pieces, i);
    }
    if (i == 0) continue;
    Across& last = pieces[i - 1];
    if (last.is_beside) last.has_ended.wait();
    HVD_RETURN_IF_ERROR(last.result);
    HVD_RETURN_IF_ERROR(steps.after(i - 1));
  }
  return Status::ok();
}

// On this thread where there is nothing to do meanwhile, or where the system gives no other: others need not know.
void HierarchicalBackend::begin_across(const Steps& steps, std::deque<Across>& pieces, std::size_t piece) {
  if (groups_.across == nullptr) return;
  if (pieces.size() > 1 && across_thread_ == nullptr) {
    try {
      across_thread_ = std::make_unique<AcrossThread>();
    } catch (const std::system_error&) {
    }
  }
  Across& one = pieces[piece];
  one.run = [&steps, piece] { return steps.across(piece); };
  if (pieces.size() > 1 && across_thread_ != nullptr) {
    across_thread_->push(one);
    one.is_beside = true;
  } else {
    one.result = one.run();
  }
}

}  // namespace hvd::collectives
