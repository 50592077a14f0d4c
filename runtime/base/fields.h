#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"

// Both directions of a message from one function: fields(io, message) names the message's fields in wire order, a
// FieldWriter appends them, a FieldReader reads and checks them. What the function finds wrong it says by io.fail(),
// which makes the reader's message an error; a writer takes no notice, for its messages are ours.
namespace hvd {

// M is Message, or const Message where it is written.
template <typename M, typename Message>
concept Is = std::same_as<std::remove_const_t<M>, Message>;

class FieldWriter {
 public:
  template <typename T>
  void number(T value) {
    if constexpr (std::is_enum_v<T>) {
      out.put(static_cast<std::underlying_type_t<T>>(value));
    } else {
      out.put(value);
    }
  }
  void number_in(const char*, auto value, auto, auto) { out.put(value); }
  void choice(const char*, auto value, auto) { out.put(static_cast<std::uint8_t>(value)); }
  void flag(const char*, bool value) { out.put(static_cast<std::uint8_t>(value ? 1 : 0)); }
  void text(const std::string& value, std::size_t) { out.put_string(value); }
  // What is longer is cut.
  void short_text(const std::string& value, std::size_t max_size) {
    out.put_string(std::string_view(value).substr(0, max_size));
  }
  void bytes(const Bytes& value, std::size_t) { out.put_bytes(value); }
  void raw(const auto& array) { out.put_raw(array); }
  void list(const auto& values, std::size_t, std::size_t, auto each) {
    out.put(static_cast<std::uint32_t>(values.size()));
    for (const auto& value : values) each(value);
  }
  void derive(const auto&, const auto&) {}
  void fail(const auto&) {}

  ByteWriter out;
};

class FieldReader {
 public:
  explicit FieldReader(ByteSpan payload) : in(payload) {}

  template <typename T>
  void number(T& value) {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(in.get<std::underlying_type_t<T>>());
    } else {
      value = in.get<T>();
    }
  }
  template <typename T>
  void number_in(const char* what, T& value, T lowest, T highest) {
    number(value);
    if (value >= lowest && value <= highest) return;
    fail(std::string(what) + " " + std::to_string(value) + ": expected " + std::to_string(lowest) + " .. " +
         std::to_string(highest));
    value = lowest;
  }
  // A byte of 0 .. last.
  template <typename Enum>
  void choice(const char* what, Enum& value, Enum last) {
    std::uint8_t code = 0;
    number_in<std::uint8_t>(what, code, 0, static_cast<std::uint8_t>(last));
    value = static_cast<Enum>(code);
  }
  void flag(const char* what, bool& value) { choice(what, value, true); }
  void text(std::string& value, std::size_t max_size) { value = in.get_string(max_size); }
  void short_text(std::string& value, std::size_t max_size) { text(value, max_size); }
  void bytes(Bytes& value, std::size_t max_size) {
    const ByteSpan read = in.get_bytes(max_size);
    value.assign(read.begin(), read.end());
  }
  void raw(auto& array) {
    const ByteSpan read = in.take(array.size());
    std::copy(read.begin(), read.end(), array.begin());
  }
  // Of elements that take at least `min_size` bytes; the list grows as they come.
  template <typename T>
  void list(std::vector<T>& values, std::size_t max_count, std::size_t min_size, auto each) {
    auto n = in.get_count(max_count, min_size);
    if constexpr (std::is_arithmetic_v<T>) values.reserve(n);  // no more than came
    for (; n > 0 && !in.failed(); --n) each(values.emplace_back());
  }
  // What follows from other fields, and is not on the wire.
  template <typename T>
  void derive(T& value, std::type_identity_t<T> derived) {
    value = std::move(derived);
  }
  void fail(std::string message) { in.fail(std::move(message)); }

  ByteReader in;
};

// fields() stands in the message's namespace, not in an unnamed one: there it is found for its argument.
template <typename Message>
Bytes encode_fields(const Message& message) {
  FieldWriter io;
  fields(io, message);
  return io.out.take();
}

template <typename Message>
Result<Message> decode_fields(ByteSpan bytes, const char* what) {
  FieldReader io(bytes);
  Message message;
  fields(io, message);
  HVD_RETURN_IF_ERROR(io.in.finish(what));
  return message;
}

}  // namespace hvd
