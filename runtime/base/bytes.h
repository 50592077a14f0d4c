#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/base/status.h"

namespace hvd {

using Bytes = std::vector<std::uint8_t>;
using ByteSpan = std::span<const std::uint8_t>;

inline ByteSpan as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
inline std::string_view as_text(ByteSpan bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Appends little-endian values to a byte vector. Strings and byte strings are u32 length + content.
class ByteWriter {
 public:
  // So much will be written: without it the bytes grow on the way, and are copied.
  void reserve(std::size_t size) { bytes_.reserve(size); }
  template <typename T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    const auto* raw = reinterpret_cast<const std::uint8_t*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));  // all supported hosts are little-endian (checked in bytes.cc)
  }
  void put_raw(ByteSpan raw) { bytes_.insert(bytes_.end(), raw.begin(), raw.end()); }
  void put_bytes(ByteSpan raw);
  void put_string(std::string_view text) { put_bytes(as_bytes(text)); }

  std::size_t size() const { return bytes_.size(); }
  const Bytes& bytes() const { return bytes_; }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

// Reads what ByteWriter wrote, from bytes that may be hostile: never past the end, never an unbounded allocation. The
// first failure sticks: later reads return zero or empty values, and status() tells what was wrong and where.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

  template <typename T>
    requires std::is_arithmetic_v<T>
  T get() {
    T value{};
    ByteSpan raw = take(sizeof(T));
    if (raw.size() == sizeof(T)) std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }
  // Exactly `size` bytes, or an empty span and a sticky error.
  ByteSpan take(std::size_t size);
  // A u32 length of at most `max_size`, then that many bytes.
  ByteSpan get_bytes(std::size_t max_size);
  std::string get_string(std::size_t max_size) { return std::string(as_text(get_bytes(max_size))); }
  // A u32 element count of at most `max_count`, each of which needs at least `min_element_size` further bytes, so that
  // a hostile count cannot make the caller reserve more than the message holds.
  std::uint32_t get_count(std::size_t max_count, std::size_t min_element_size);

  // Records a semantic error found by the caller (bad enum value, ...).
  void fail(std::string message);
  bool failed() const { return !status_.is_ok(); }
  std::size_t remaining() const { return bytes_.size() - at_; }
  // The first error; with `expect_end`, left-over bytes are an error too.
  Status finish(std::string_view what) const;

 private:
  ByteSpan bytes_;
  std::size_t at_ = 0;
  Status status_;
};

std::string to_hex(ByteSpan bytes);
Result<Bytes> from_hex(std::string_view text);

}  // namespace hvd
