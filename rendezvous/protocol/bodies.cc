#include "rendezvous/protocol/bodies.h"

#include <algorithm>

#include "rendezvous/protocol/names.h"

namespace hvd::rendezvous {
namespace {

template <typename Array>
Array get_fixed(ByteReader& reader) {
  Array array{};
  std::ranges::copy(reader.take(array.size()), array.begin());
  return array;
}

constexpr int RankNumbers::* kNumbers[] = {&RankNumbers::rank,       &RankNumbers::size,
                                           &RankNumbers::local_rank, &RankNumbers::local_size,
                                           &RankNumbers::cross_rank, &RankNumbers::cross_size};

void put_numbers(ByteWriter& writer, const RankNumbers& numbers) {
  for (const auto number : kNumbers) writer.put<std::int32_t>(numbers.*number);
}

RankNumbers get_numbers(ByteReader& reader) {
  RankNumbers numbers;
  for (const auto number : kNumbers) numbers.*number = reader.get<std::int32_t>();
  return numbers;
}

void check_version(ByteReader& reader) {
  const auto version = reader.get<std::uint8_t>();
  if (!reader.failed() && version != kProtocolVersion) {
    reader.fail("protocol version " + std::to_string(version) + ", expected " + std::to_string(kProtocolVersion));
  }
}

}  // namespace

Bytes encode_session(const Nonce& nonce) {
  ByteWriter writer;
  writer.put<std::uint8_t>(kProtocolVersion);
  writer.put_raw(nonce);
  return writer.take();
}

Result<Nonce> decode_session(ByteSpan bytes) {
  ByteReader reader(bytes);
  check_version(reader);
  const Nonce nonce = get_fixed<Nonce>(reader);
  HVD_RETURN_IF_ERROR(reader.finish("session request"));
  return nonce;
}

Result<Nonce> decode_session_answer(ByteSpan bytes) {
  ByteReader reader(bytes);
  const Nonce nonce = get_fixed<Nonce>(reader);
  HVD_RETURN_IF_ERROR(reader.finish("session answer"));
  return nonce;
}

Bytes encode_join(const JoinBody& body) {
  ByteWriter writer;
  writer.put<std::uint8_t>(kProtocolVersion);
  writer.put<std::int32_t>(body.seat.process.slot);
  writer.put<std::uint32_t>(body.seat.process.number);
  writer.put_raw(body.seat.token);
  put_numbers(writer, body.environment);
  writer.put<std::uint64_t>(body.progress);
  writer.put_raw(body.nonce);
  writer.put<std::uint32_t>(static_cast<std::uint32_t>(body.wait.count()));
  writer.put_bytes(body.row);
  return writer.take();
}

Result<JoinBody> decode_join(ByteSpan bytes) {
  ByteReader reader(bytes);
  check_version(reader);
  JoinBody body;
  body.seat.process.slot = reader.get<std::int32_t>();
  body.seat.process.number = reader.get<std::uint32_t>();
  body.seat.token = get_fixed<SeatToken>(reader);
  body.environment = get_numbers(reader);
  body.progress = reader.get<std::uint64_t>();
  body.nonce = get_fixed<Nonce>(reader);
  body.wait = Millis(reader.get<std::uint32_t>());
  const ByteSpan row = reader.get_bytes(kMaxRowBytes);
  body.row.assign(row.begin(), row.end());
  if (body.wait > kMaxLongPoll) reader.fail("wait of " + std::to_string(body.wait.count()) + " ms");
  HVD_RETURN_IF_ERROR(reader.finish("join request"));
  return body;
}

Bytes encode_join_answer(const JoinAnswer& answer) {
  ByteWriter writer;
  writer.put<std::uint64_t>(answer.epoch);
  put_numbers(writer, answer.numbers);
  return writer.take();
}

Result<JoinAnswer> decode_join_answer(ByteSpan bytes) {
  ByteReader reader(bytes);
  JoinAnswer answer;
  answer.epoch = reader.get<std::uint64_t>();
  answer.numbers = get_numbers(reader);
  HVD_RETURN_IF_ERROR(reader.finish("join answer"));
  return answer;
}

Bytes encode_not_yet(const NotYetBody& body) {
  ByteWriter writer;
  writer.put_string(body.missing);
  writer.put<std::int32_t>(body.first_slot);
  return writer.take();
}

Result<NotYetBody> decode_not_yet(ByteSpan bytes) {
  ByteReader reader(bytes);
  NotYetBody body;
  body.missing = reader.get_string(kMaxBodyBytes);
  body.first_slot = reader.get<std::int32_t>();
  HVD_RETURN_IF_ERROR(reader.finish("join answer"));
  return body;
}

Bytes encode_get_many(const GetManyBody& body) {
  ByteWriter writer;
  writer.put_string(body.scope);
  writer.put<std::uint32_t>(static_cast<std::uint32_t>(body.keys.size()));
  for (const std::string& key : body.keys) writer.put_string(key);
  return writer.take();
}

Result<GetManyBody> decode_get_many(ByteSpan bytes) {
  ByteReader reader(bytes);
  GetManyBody body;
  body.scope = reader.get_string(kMaxScopeBytes);
  const std::uint32_t count = reader.get_count(kMaxKeysPerRequest, sizeof(std::uint32_t));
  for (std::uint32_t i = 0; i < count && !reader.failed(); ++i) body.keys.push_back(reader.get_string(kMaxKeyBytes));
  HVD_RETURN_IF_ERROR(reader.finish("mget request"));
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

Bytes encode_host_news(const HostNewsBody& body) {
  ByteWriter writer;
  writer.put<std::int64_t>(body.time_ms);
  writer.put<std::uint8_t>(static_cast<std::uint8_t>(body.change));
  return writer.take();
}

Result<HostNewsBody> decode_host_news(ByteSpan bytes) {
  constexpr int kAllChanges = 3;
  ByteReader reader(bytes);
  HostNewsBody body;
  body.time_ms = reader.get<std::int64_t>();
  body.change = reader.get<std::uint8_t>();
  if (body.change > kAllChanges) reader.fail("change " + std::to_string(body.change));
  HVD_RETURN_IF_ERROR(reader.finish("news of hosts"));
  return body;
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
