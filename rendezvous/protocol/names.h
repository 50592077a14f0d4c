#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

// What scopes and keys may be called. A scope is 1..kMaxScopeBytes of [A-Za-z0-9._-], a
// key 1..kMaxKeyBytes of [A-Za-z0-9._:/-].
//
// Scopes `epoch.<n>` (the rows of epoch n, written by the server, read-only) and `epoch.<n>.<name>`
// (for the ranks of the epoch) exist only while epoch n is the latest of its group: a rank of an
// earlier epoch can neither read nor write them. Every other scope lives as long as the job.
namespace hvd::rendezvous {

std::string scope_of_epoch(std::uint64_t epoch);                         // "epoch.7"
std::string scope_of_epoch(std::uint64_t epoch, std::string_view name);  // "epoch.7.<name>"

// The epoch that a scope belongs to; nullopt when it belongs to none.
std::optional<std::uint64_t> epoch_of_scope(std::string_view scope);
// True for `epoch.<n>` itself.
bool is_row_scope(std::string_view scope);

// The text as it may stand in a message: what is not printable ASCII becomes '?', and it is cut to a readable length.
std::string printable(std::string_view text);

Status check_scope(std::string_view scope);
Status check_key(std::string_view key);
}  // namespace hvd::rendezvous
