#include "starters/announcement.h"

#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/base/wipe.h"

namespace hvd::starters {
namespace {

constexpr std::string_view kMagic = "hvd2.";
constexpr int kMaxSize = 1 << 20;

std::string encode_all(const Announcement& announcement) {
  ByteWriter out;
  out.reserve(kMaxAnnouncementChars);  // so that no copy of the secret stays behind where it grew
  out.put(static_cast<std::uint32_t>(announcement.size));
  out.put(static_cast<std::uint8_t>(announcement.tls));
  out.put_raw(announcement.secret.bytes());
  out.put_raw(announcement.server.encode());
  Bytes bytes = out.take();
  std::string text = std::string(kMagic) + to_hex(bytes);
  wipe(bytes);
  return text;
}

Result<Announcement> decode_bytes(ByteSpan bytes) {
  ByteReader in(bytes);
  const auto size = in.get<std::uint32_t>();
  const auto tls = in.get<std::uint8_t>();
  const ByteSpan secret = in.take(crypto::kSecretSize);
  if (in.failed() || size < 2 || size > kMaxSize || tls > 1) return Status::invalid_argument("a size that no job has");
  HVD_ASSIGN_OR_RETURN(const auto own, crypto::Secret::from_bytes(secret));
  HVD_ASSIGN_OR_RETURN(auto server, transport::AddressRow::decode(in.take(in.remaining())));
  if (server.endpoints.empty()) return Status::invalid_argument("no address");
  return Announcement{.size = static_cast<int>(size), .tls = tls == 1, .secret = own, .server = std::move(server)};
}

}  // namespace

std::string encode(Announcement announcement) {
  for (;;) {
    std::string text = encode_all(announcement);
    if (text.size() <= kMaxAnnouncementChars || announcement.server.endpoints.size() <= 1) return text;
    announcement.server.endpoints.pop_back();
    wipe(text);
  }
}

Result<Announcement> decode_announcement(std::string_view text) {
  constexpr std::string_view kContext = "what rank 0 announced";
  if (!text.starts_with(kMagic) || text.size() > 2 * kMaxAnnouncementChars) {
    return Status::invalid_argument("not an announcement of this version").annotate(kContext);
  }
  auto bytes = from_hex(text.substr(kMagic.size()));
  if (!bytes.is_ok()) return Status::invalid_argument("not hexadecimal").annotate(kContext);
  auto announcement = decode_bytes(bytes.value());
  wipe(bytes.value());
  if (!announcement.is_ok()) return announcement.status().annotate(kContext);
  return announcement;
}

}  // namespace hvd::starters
