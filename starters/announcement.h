#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"
#include "runtime/transport/net/address_row.h"

namespace hvd::starters {

inline constexpr std::size_t kMaxAnnouncementChars = 1000;  // MPICH's process managers take values of 1023

// What rank 0 tells the other ranks of its job: how many they are, whether TLS is on, the job's secret, and where its
// rendezvous server listens (at least one endpoint). A value.
struct Announcement {
  int size = 0;
  bool tls = false;  // as its server has it
  crypto::Secret secret;
  transport::AddressRow server;
};

// Letters, digits and a dot: a word of any protocol. Endpoints that make it too long are left out, the last ones first.
// The text holds the secret: whoever is done with it wipes it.
std::string encode(Announcement announcement);
// Bytes that may be hostile; the error does not repeat them.
Result<Announcement> decode_announcement(std::string_view text);

}  // namespace hvd::starters
