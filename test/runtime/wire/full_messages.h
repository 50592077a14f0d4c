#pragma once

#include "runtime/wire/messages.h"

// Messages in which every field says something.
namespace hvd::wire {

inline Request full_request() {
  Request r;
  r.rank = 5;
  r.process_set = 2;
  r.op = OpType::kBroadcast;
  r.dtype = DataType::kBfloat16;
  r.reduce_op = ReduceOp::kProduct;
  r.device = 3;
  r.root_rank = 7;
  r.prescale = 0.1;
  r.postscale = -1e300;
  r.shape = {2, 0, std::int64_t{1} << 40};
  r.name = "allreduce.layer/weight:0";
  r.group_key = 0xfedcba9876543210;
  r.group_size = 4;
  return r;
}

// An allgather of ranks whose first dimensions differ.
inline MergedRequest merged_request() {
  Request first = full_request();
  first.rank = 2;
  first.op = OpType::kAllgather;
  first.shape = {6, 3};
  MergedRequest merged(first);
  merged.ranks = {{2, 3, 6}, {5, 1, 0}, {7, 20, 0}};
  return merged;
}

inline Report full_report() {
  Report report;
  report.stale_bits = {CacheBit{4}};
  Request odd = full_request();
  odd.shape.clear();
  odd.name = std::string("\0\xff", 2);
  report.requests = {full_request(), odd, merged_request()};
  report.ready_bits = {CacheBit{1}, CacheBit{2}, CacheBit{3}, CacheBit{9}, CacheBit{~std::uint64_t{0} - 5}};
  report.ready_tensors = {{CacheBit{4}, "abcd"}, {CacheBit{5}, "efgh"}, {CacheBit{6}, std::string(256, '\0')}};
  report.joins = {{0, 3}, {2, 1}};
  report.set_changes = {SetChange{1, SetChange::Kind::kStatic, 0, {}, {digest_of({0, 1}), digest_of({2})}},
                        SetChange{4, SetChange::Kind::kAdd, 0, {{0, 3}}, {}},
                        SetChange{1, SetChange::Kind::kRemove, 3, {}, {}}};
  report.set_changes[2].ranks = {{1, 5, 0}, {8, 1, 0}};
  report.shutdown_ranks = {8, 2};
  report.lost_ranks = {{6, "connection reset"}};
  report.waits.resize(3);
  report.waits[0] = {Wait::Kind::kSubmitted, 2, 0, OpType::kJoin, "join", 0, 17, 0, {3, 8}, {}, ""};
  report.waits[1] = {Wait::Kind::kOverdue, 0, 7, OpType::kAlltoall, "a2a", 5, 1ULL << 40, 61000, {0}, {1, 2},
                     "started a2a"};
  report.waits[2].kind = Wait::Kind::kMoving;
  report.waits[2].ranks = {4, 5};
  return report;
}

inline Response full_response() {
  Response r;
  r.process_set = 1;
  r.op = OpType::kAllgather;
  r.dtype = DataType::kInt16;
  r.reduce_op = ReduceOp::kMin;
  r.root_rank = 4;
  r.prescale = 2;
  r.postscale = 3;
  r.shape = {5, 6};
  r.name = "g";
  r.group_key = 1;
  r.group_size = 1;
  r.on_gpu = true;
  r.devices_key = 99;
  r.first_dims = {5, 0, 7};
  r.bit = CacheBit{12};
  return r;
}

inline Decision full_decision() {
  Decision d;
  d.sequence = 17;
  d.limits = {123, 16, true};
  Response error = full_response();
  error.bit = CacheBit::kNone;
  error.joined = {2, 9};
  error.error = StatusCode::kPrecondition;
  error.error_message = "they differ";
  SetDecision sets;
  sets.kind = SetChange::Kind::kStatic;
  sets.entries = {{1, 1, false, {}}, {0, 0, true, {}}};  // every rank knows what it gave to init()
  SetDecision removed;
  removed.kind = SetChange::Kind::kRemove;
  removed.entries = {{1, 0, false, {}}};
  removed.error = StatusCode::kInvalidArgument;
  removed.error_message = "no";
  d.items = {CacheHit{CacheBit{3}},
             CacheHit{CacheBit{4}},
             CacheHit{CacheBit{2}},
             Evict{CacheBit{5}},
             Evict{CacheBit{6}},
             full_response(),
             error,
             sets,
             removed,
             CacheHit{CacheBit{7}},
             CacheHit{CacheBit{8}, "abcd"},
             CacheHit{CacheBit{9}, "efgh"},
             CacheHit{CacheBit{10}, "ijk"},
             WaitAnswer{1ULL << 40}};
  d.stop = Stop{Stop::Kind::kAbort, 3, "rank 3 is lost"};
  return d;
}

}  // namespace hvd::wire
