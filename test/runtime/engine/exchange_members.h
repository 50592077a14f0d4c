#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/collectives/shm/segment.h"
#include "runtime/engine/small_exchange.h"
#include "test/runtime/engine/session_support.h"

// Two ranks that exchange tensors, without a session: nothing happens but what a test does.
namespace hvd::test {

using Values = std::vector<float>;

// One of the tensors of a group.
struct GroupMember {
  std::string name;
  Values data;
};

inline std::vector<Operation> operations_of(std::vector<GroupMember>& group) {
  std::vector<Operation> operations;
  for (GroupMember& member : group) operations.push_back(allreduce(member.name, member.data));
  return operations;
}

inline wire::Response response_of(const std::string& name, std::uint64_t bit, std::int64_t elements) {
  wire::Response response;
  response.shape = {elements};
  response.name = name;
  response.bit = wire::CacheBit{bit};
  return response;
}

// A rank of two that share memory.
struct Member {
  Member(const std::shared_ptr<const collectives::ShmSegment>& segment, int rank)
      : slots(std::make_shared<collectives::ExchangeSlots>(segment, segment->region(0), 2, rank,
                                                           collectives::ShmArena::make(segment, rank))),
        table(rank, sets, recorder) {
    const engine::SmallExchange::Engine engine{[] {}, [this](const std::string& why) { failure = why; }};
    small = std::make_shared<engine::SmallExchange>(
        rank, table, [this](const topology::ProcessSet&) { return slots; }, engine);
  }
  ~Member() { end(); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  HandlePtr add(const std::string& name, std::vector<float>& data) { return small->add(allreduce(name, data)).value(); }
  void learn(wire::DecisionItem item) {
    wire::Decision decision;
    decision.items.push_back(std::move(item));
    small->learn(decision, *sets, *sets);
  }
  void end() {
    small->close();
    table.close(Status::aborted("it is over"));
  }

  topology::ProcessSets sets = topology::initial_sets(2);
  std::shared_ptr<collectives::ExchangeSlots> slots;
  recorder::FlightRecorder recorder;
  engine::OperationTable table;
  std::shared_ptr<engine::SmallExchange> small;
  std::string failure;
};

struct Two {
  std::shared_ptr<const collectives::ShmSegment> segment =
      collectives::ShmSegment::create(2, std::size_t{1} << 20).value().first;
  Member a{segment, 0};
  Member b{segment, 1};

  // Cached, and used since.
  void learn(const std::string& name, std::uint64_t bit, std::int64_t elements = 3) {
    for (Member* const member : {&a, &b}) {
      member->learn(response_of(name, bit, elements));
      member->learn(wire::CacheHit{wire::CacheBit{bit}});
    }
  }
};

}  // namespace hvd::test
