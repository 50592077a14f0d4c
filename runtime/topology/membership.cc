#include "runtime/topology/membership.h"

#include <string>

namespace hvd::topology {
namespace {

Status check_pair(const char* what, int rank, int size) {
  if (size >= 1 && size <= kMaxRanks && rank >= 0 && rank < size) return Status::ok();
  return Status::invalid_argument(std::string(what) + "rank " + std::to_string(rank) + " of " + what + "size " +
                                  std::to_string(size) + ": expected 0 <= rank < size <= " + std::to_string(kMaxRanks));
}

}  // namespace

Status Membership::validate() const {
  HVD_RETURN_IF_ERROR(check_pair("", rank, size));
  HVD_RETURN_IF_ERROR(check_pair("local_", local_rank, local_size));
  HVD_RETURN_IF_ERROR(check_pair("cross_", cross_rank, cross_size));
  if (local_size > size || cross_size > size) {
    return Status::invalid_argument("local_size " + std::to_string(local_size) + " and cross_size " +
                                    std::to_string(cross_size) + " must not exceed size " + std::to_string(size));
  }
  return Status::ok();
}

}  // namespace hvd::topology
