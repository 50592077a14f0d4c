#include "runtime/base/bytes.h"

#include <bit>
#include <limits>

namespace hvd {

static_assert(std::endian::native == std::endian::little, "wire formats are little-endian and written by memcpy");

void ByteWriter::put_bytes(ByteSpan raw) {
  HVD_CHECK(raw.size() <= std::numeric_limits<std::uint32_t>::max(), "byte string over 4 GiB");
  put(static_cast<std::uint32_t>(raw.size()));
  put_raw(raw);
}

ByteSpan ByteReader::take(std::size_t size) {
  if (failed()) return {};
  if (size > remaining()) {
    fail("truncated: " + std::to_string(size) + " bytes wanted at offset " + std::to_string(at_) + ", " +
         std::to_string(remaining()) + " left");
    return {};
  }
  ByteSpan out = bytes_.subspan(at_, size);
  at_ += size;
  return out;
}

ByteSpan ByteReader::get_bytes(std::size_t max_size) {
  const auto size = get<std::uint32_t>();
  if (size > max_size) {
    fail("length " + std::to_string(size) + " over the limit of " + std::to_string(max_size));
    return {};
  }
  return take(size);
}

std::uint32_t ByteReader::get_count(std::size_t max_count, std::size_t min_element_size) {
  const auto count = get<std::uint32_t>();
  if (count > max_count) {
    fail("count " + std::to_string(count) + " over the limit of " + std::to_string(max_count));
    return 0;
  }
  if (min_element_size > 0 && count > remaining() / min_element_size) {
    fail("count " + std::to_string(count) + " needs more than the " + std::to_string(remaining()) + " bytes left");
    return 0;
  }
  return count;
}

void ByteReader::fail(std::string message) {
  if (!failed()) status_ = Status::invalid_argument(std::move(message));
}

Status ByteReader::finish(std::string_view what) const {
  if (failed()) return status_.annotate(what);
  if (remaining() != 0) {
    return Status::invalid_argument(std::string(what) + ": " + std::to_string(remaining()) + " bytes left over");
  }
  return Status::ok();
}

std::string to_hex(ByteSpan bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::uint8_t b : bytes) {
    text.push_back(kDigits[b >> 4]);
    text.push_back(kDigits[b & 15]);
  }
  return text;
}

Result<Bytes> from_hex(std::string_view text) {
  auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  if (text.size() % 2 != 0) return Status::invalid_argument("hex text of odd length");
  Bytes out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]);
    const int low = digit(text[i + 1]);
    if (high < 0 || low < 0) return Status::invalid_argument("not a hex digit at offset " + std::to_string(i));
    out.push_back(static_cast<std::uint8_t>(high * 16 + low));
  }
  return out;
}

}  // namespace hvd
