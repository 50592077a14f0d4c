#include "rendezvous/protocol/bodies.h"

#include "rendezvous/protocol/names.h"
#include "runtime/base/fields.h"

namespace hvd::rendezvous {
namespace {

void version(auto& io) {
  std::uint8_t version = kProtocolVersion;
  io.number(version);
  if (version != kProtocolVersion) {
    io.fail("protocol version " + std::to_string(version) + ", expected " + std::to_string(kProtocolVersion));
  }
}

void wait(FieldWriter& io, Millis value) { io.number(static_cast<std::uint32_t>(value.count())); }
void wait(FieldReader& io, Millis& value) {
  value = Millis(io.in.get<std::uint32_t>());
  if (value > kMaxLongPoll) io.fail("wait of " + std::to_string(value.count()) + " ms");
}

}  // namespace

void fields(auto& io, Is<RankNumbers> auto& numbers) {
  io.number(numbers.rank);
  io.number(numbers.size);
  io.number(numbers.local_rank);
  io.number(numbers.local_size);
  io.number(numbers.cross_rank);
  io.number(numbers.cross_size);
}
void fields(auto& io, Is<JoinBody> auto& body) {
  version(io);
  io.number(body.seat.process.slot);
  io.number(body.seat.process.number);
  io.raw(body.seat.token);
  fields(io, body.environment);
  io.number(body.progress);
  io.raw(body.nonce);
  wait(io, body.wait);
  io.bytes(body.row, kMaxRowBytes);
}
void fields(auto& io, Is<JoinAnswer> auto& answer) {
  io.number(answer.epoch);
  fields(io, answer.numbers);
}
void fields(auto& io, Is<NotYetBody> auto& body) {
  io.text(body.missing, kMaxBodyBytes);
  io.number(body.first_slot);
}
void fields(auto& io, Is<GetManyBody> auto& body) {
  io.text(body.scope, kMaxScopeBytes);
  io.list(body.keys, kMaxKeysPerRequest, sizeof(std::uint32_t), [&io](auto& key) { io.text(key, kMaxKeyBytes); });
}
void fields(auto& io, Is<HostNewsBody> auto& body) {
  constexpr int kAllChanges = 3;
  io.number(body.time_ms);
  io.choice("change", body.change, kAllChanges);
}

Bytes encode_session(const Nonce& nonce) {
  FieldWriter io;
  version(io);
  io.raw(nonce);
  return io.out.take();
}

Result<Nonce> decode_session(ByteSpan bytes) {
  FieldReader io(bytes);
  Nonce nonce{};
  version(io);
  io.raw(nonce);
  HVD_RETURN_IF_ERROR(io.in.finish("session request"));
  return nonce;
}

Result<Nonce> decode_session_answer(ByteSpan bytes) {
  FieldReader io(bytes);
  Nonce nonce{};
  io.raw(nonce);
  HVD_RETURN_IF_ERROR(io.in.finish("session answer"));
  return nonce;
}

Bytes encode_join(const JoinBody& body) { return encode_fields(body); }
Result<JoinBody> decode_join(ByteSpan bytes) { return decode_fields<JoinBody>(bytes, "join request"); }
Bytes encode_join_answer(const JoinAnswer& answer) { return encode_fields(answer); }
Result<JoinAnswer> decode_join_answer(ByteSpan bytes) { return decode_fields<JoinAnswer>(bytes, "join answer"); }
Bytes encode_not_yet(const NotYetBody& body) { return encode_fields(body); }
Result<NotYetBody> decode_not_yet(ByteSpan bytes) { return decode_fields<NotYetBody>(bytes, "join answer"); }
Bytes encode_host_news(const HostNewsBody& body) { return encode_fields(body); }
Result<HostNewsBody> decode_host_news(ByteSpan bytes) { return decode_fields<HostNewsBody>(bytes, "news of hosts"); }
Bytes encode_get_many(const GetManyBody& body) { return encode_fields(body); }
Result<GetManyBody> decode_get_many(ByteSpan bytes) {
  HVD_ASSIGN_OR_RETURN(GetManyBody body, decode_fields<GetManyBody>(bytes, "mget request"));
  HVD_RETURN_IF_ERROR(check_scope(body.scope));
  for (const std::string& key : body.keys) HVD_RETURN_IF_ERROR(check_key(key));
  return body;
}

Bytes encode_values(const std::vector<std::optional<ByteSpan>>& values) {
  ByteWriter writer;
  writer.put<std::uint32_t>(static_cast<std::uint32_t>(values.size()));
  for (const auto& value : values) {
    writer.put<std::uint8_t>(value ? 1 : 0);
    writer.put_bytes(value.value_or(ByteSpan{}));
  }
  return writer.take();
}

Result<std::vector<std::optional<Bytes>>> decode_values(ByteSpan bytes) {
  ByteReader reader(bytes);
  std::vector<std::optional<Bytes>> values;
  const std::uint32_t count = reader.get_count(kMaxKeysPerRequest, kValueOverhead);
  for (std::uint32_t i = 0; i < count && !reader.failed(); ++i) {
    const auto present = reader.get<std::uint8_t>();
    const ByteSpan value = reader.get_bytes(present == 1 ? kMaxValueBytes : 0);
    if (present > 1) reader.fail("presence byte " + std::to_string(present));
    values.push_back(present == 1 ? std::optional(Bytes(value.begin(), value.end())) : std::nullopt);
  }
  HVD_RETURN_IF_ERROR(reader.finish("mget answer"));
  return values;
}

Bytes encode_error(const Status& status) {
  ByteWriter writer;
  writer.put<std::uint8_t>(static_cast<std::uint8_t>(status.code()));
  writer.put_string(std::string_view(status.message()).substr(0, kMaxErrorTextBytes));
  return writer.take();
}

Status decode_error(ByteSpan bytes) {
  ByteReader reader(bytes);
  const auto code = reader.get<std::uint8_t>();
  std::string message = reader.get_string(kMaxErrorTextBytes);
  if (code == 0 || code > static_cast<std::uint8_t>(StatusCode::kInternal)) {
    reader.fail("error code " + std::to_string(code));
  }
  if (const Status bad = reader.finish("error answer"); !bad.is_ok()) return Status::internal(bad.message());
  return Status(static_cast<StatusCode>(code), std::move(message));
}

}  // namespace hvd::rendezvous
