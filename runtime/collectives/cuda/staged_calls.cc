#include "runtime/collectives/cuda/staged_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/event.h"

namespace hvd::collectives::cuda {

namespace {

CallTraits traits_of(const CollectiveCall& call) {
  // No size: what is staged comes with sizes that choices for host memory were not made for.
  return {call.op, call.dtype, call.reduce_op, MemoryKind::kHost, 0};
}

// Large enough that what a copy and a collective cost besides their bytes does not count, also in a ring of many ranks.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::size_t kPieceBytesPerRank = std::size_t{256} << 10;

// How something ended on another thread.
struct Ending {
  hvd::Event event;
  Status status;
};

}  // namespace

CollectiveBackend& StagedCalls::host_for(const CollectiveCall& call) const {
  for (CollectiveBackend* const host : hosts_) {
    if (host->why_not(traits_of(call)).empty()) return *host;
  }
  return *hosts_.back();
}

Status StagedCalls::run_on_host(const CollectiveCall& call) {
  const auto ending = std::make_shared<Ending>();
  host_for(call).start(call, [ending](Status status) {
    ending->status = std::move(status);
    ending->event.set();
  });
  ending->event.wait();  // an abort ends the call
  return ending->status;
}

Result<std::shared_ptr<Stream>> StagedCalls::stream_on(int device) {
  std::shared_ptr<Stream>& stream = streams_[device];
  if (stream == nullptr) {
    HVD_ASSIGN_OR_RETURN(auto opened, devices_.get(device));
    HVD_ASSIGN_OR_RETURN(stream, Stream::make(std::move(opened)));
  }
  return stream;
}

void StagedCalls::start(const CollectiveCall& call, Completion done) {
  std::shared_ptr<Stream> stream;
  if (call.use.device != kCpuDevice) {
    auto made = stream_on(call.use.device);
    if (!made.is_ok()) return done(made.status());
    stream = std::move(made).value();
  }
  const Status status = run(stream.get(), call, done);
  if (!done) return;
  if (stream == nullptr || status.is_ok()) return done(status);
  end_after(*stream, status, call, std::move(done));
}

// The memory that streams still use outlives this, and so do they: the driver would wait for the GPU.
StagedCalls::~StagedCalls() {
  for (auto& [device, stream] : streams_) {
    auto end = stream->record();
    if (!end.is_ok()) continue;
    const Result<bool> come = end.value()->has_come();
    if (come.is_ok() && !come.value()) devices_.watch().keep(std::move(end).value(), {std::move(stream)});
  }
}

// What is in the stream still uses the tensors: who failed may not give them back before it has run.
void StagedCalls::end_after(Stream& stream, const Status& why, const CollectiveCall& call, Completion done) {
  auto end = stream.record();
  if (!end.is_ok()) end = stream.record();
  if (!end.is_ok()) {
    EventWatch::leave(call.use.owners_now());
    return done(why);
  }
  devices_.watch().watch(this, {.event = std::move(end).value(),
                                .done = [why, done = std::move(done)](const Status&) { done(why); },
                                .owners = call.use.owners_now()});
  fail_late_waits();
  devices_.watch().fail(this, why);
}

// Takes `done` where the call goes on without this thread. While a piece is reduced, those after it are brought in, and
// the one before it goes back. All members make the same pieces.
Status StagedCalls::run(Stream* stream, const CollectiveCall& call, Completion& done) {
  const PackPlan plan = plan_packing(call, set_size_, set_rank_);
  HVD_ASSIGN_OR_RETURN(std::byte* const base,
                       stream != nullptr ? stream->pinned_scratch(plan.bytes) : reserve(plan.bytes));
  const std::vector<PackPlan> pieces =
      plan.pieces(std::max(kPieceBytes, static_cast<std::size_t>(set_size_) * kPieceBytesPerRank));
  std::vector<EventPtr> brought_in;
  if (stream != nullptr) {
    HVD_ASSIGN_OR_RETURN(brought_in, bring_in(*stream, call, pieces, base));
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (stream != nullptr) HVD_RETURN_IF_ERROR(wait_for(std::move(brought_in[i])));
    for (const PackPlan::Copy& copy : pieces[i].in) {
      if (copy.tensor == nullptr) std::memset(base + copy.offset, 0, copy.bytes);
    }
    HVD_RETURN_IF_ERROR(run_on_host(pieces[i].at(base)));
    if (stream == nullptr) continue;
    for (const PackPlan::Copy& copy : pieces[i].out) {
      HVD_RETURN_IF_ERROR(stream->copy(copy.tensor, base + copy.offset, copy.bytes));
    }
  }
  if (stream == nullptr || plan.out.empty()) return Status::ok();
  HVD_ASSIGN_OR_RETURN(EventPtr end, stream->record());
  if (call.use.enqueued) call.use.enqueued(end);
  devices_.watch().watch(
      this, {.event = std::move(end), .done = std::exchange(done, nullptr), .owners = call.use.owners_now()});
  fail_late_waits();
  return Status::ok();
}

Result<std::byte*> StagedCalls::reserve(std::size_t bytes) {
  if (bytes > zeros_capacity_ || zeros_ == nullptr) {
    zeros_ = host_memory().allocate(bytes);
    zeros_capacity_ = zeros_ != nullptr ? bytes : 0;
    if (zeros_ == nullptr) return Status::internal("no memory for " + std::to_string(bytes) + " bytes of zeros");
  }
  return static_cast<std::byte*>(zeros_.get());
}

// What this rank's earlier calls still copy from the staging memory comes before in the stream, also where nothing is
// brought in.
Result<std::vector<EventPtr>> StagedCalls::bring_in(Stream& stream, const CollectiveCall& call,
                                                    const std::vector<PackPlan>& pieces, std::byte* base) {
  for (const EventPtr& ready : call.use.ready) HVD_RETURN_IF_ERROR(stream.wait_for(*ready));
  std::vector<EventPtr> events;
  for (const PackPlan& piece : pieces) {
    for (const PackPlan::Copy& copy : piece.in) {
      if (copy.tensor != nullptr) HVD_RETURN_IF_ERROR(stream.copy(base + copy.offset, copy.tensor, copy.bytes));
    }
    HVD_ASSIGN_OR_RETURN(EventPtr in, stream.record());
    events.push_back(std::move(in));
  }
  return events;
}

Status StagedCalls::wait_for(EventPtr event, EventWatch::Trouble trouble) {
  const auto ending = std::make_shared<Ending>();
  const auto end = [ending](Status status) {
    ending->status = std::move(status);
    ending->event.set();
  };
  devices_.watch().watch(this, {.event = std::move(event), .done = end, .trouble = std::move(trouble)});
  fail_late_waits();
  waits_for_gpu_ = true;
  ending->event.wait();
  waits_for_gpu_ = false;
  return ending->status;
}

void StagedCalls::fail(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (!failure_) {
      failure_ = why;
      failed_at_ = SteadyClock::now();
    }
  }
  devices_.fail(this, why);
}

void StagedCalls::fail_late_waits() {
  const MutexLock lock(mutex_);
  if (failure_) devices_.watch().fail(this, *failure_, failed_at_);
}

}  // namespace hvd::collectives::cuda
