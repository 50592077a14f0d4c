#pragma once

#include <string>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/topology/capabilities.h"
#include "runtime/topology/membership.h"

namespace hvd::topology {

// What a rank publishes about itself when it joins: opaque to the store. A value. Grammar:
// docs/design/job-bootstrap.md.
struct RankRow {
  struct Option {
    std::string name;
    std::string value;
    bool operator==(const Option&) const = default;
  };
  std::string host;             // the same bytes on the ranks of one host, and on no others
  std::vector<Option> options;  // that must be the same on all ranks
  Capabilities capabilities{};  // that need not be
  std::string memory_socket;    // the name under which it hands memory over; empty without that capability
  Bytes addresses;              // the transport's part

  Bytes encode() const;
  static Result<RankRow> decode(ByteSpan bytes);
};

// What all ranks know of each other: a value that is the same on every rank.
struct Agreement {
  HostMap hosts;
  CapabilityMap capabilities;
  bool operator==(const Agreement&) const = default;
};

// From the rows of all ranks in rank order. kInvalidArgument names the first option that differs, with both ranks and
// both values. Pure.
Result<Agreement> agree(const std::vector<RankRow>& rows);

// The conclusion, or why there is none, as rank 0 stores it for the others.
Bytes encode_agreement(const Result<Agreement>& agreed);
Result<Agreement> decode_agreement(ByteSpan bytes, int size);

}  // namespace hvd::topology
