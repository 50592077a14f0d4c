#include "runtime/crypto/sealed_records.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::crypto;

namespace {

Bytes bytes_of(std::string_view text) {
  const ByteSpan span = as_bytes(text);
  return {span.begin(), span.end()};
}

// The text of the next record; "(none)" when there is none yet, "(error)" for an error.
std::string opened(RecordOpener& opener) {
  const auto next = opener.next();
  if (!next.is_ok()) return "(error)";
  return next.value() ? std::string(as_text(*next.value())) : "(none)";
}

const Secret& key() {
  static const Secret one = Secret::random();
  return one;
}

}  // namespace

TEST_CASE("records come out as they went in, wherever the stream is cut", "[unit][crypto]") {
  RecordSealer sealer(key());
  Bytes stream;
  const std::string large(kMaxRecordBytes, 'x');
  for (const std::string& text : {std::string("first"), std::string(), large}) {
    const Bytes record = sealer.seal(as_bytes(text));
    CHECK(record.size() == text.size() + 20);
    CHECK((text.empty() || as_text(record).find(text) == std::string::npos));
    stream.insert(stream.end(), record.begin(), record.end());
  }
  RecordOpener opener(key());
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < stream.size(); at += 1000) {
    opener.feed(ByteSpan(stream).subspan(at, std::min<std::size_t>(1000, stream.size() - at)));
    for (std::string text = opened(opener); text != "(none)"; text = opened(opener)) texts.push_back(text);
  }
  CHECK(texts == std::vector<std::string>{"first", "", large});
}

TEST_CASE("a record that was changed, repeated, left out or made with another key is an error for good",
          "[unit][crypto]") {
  RecordSealer sealer(key());
  const Bytes first = sealer.seal(bytes_of("first"));
  const Bytes second = sealer.seal(bytes_of("second"));
  SECTION("changed, each byte of it") {
    for (std::size_t at = 0; at < first.size(); ++at) {
      Bytes changed = first;
      changed[at] ^= 1;
      changed.resize(changed.size() + kMaxRecordBytes);  // should it be the size: the bytes for it
      RecordOpener opener(key());
      opener.feed(changed);
      INFO("byte " << at);
      CHECK(opened(opener) != "first");
      CHECK(opened(opener) == "(error)");
    }
  }
  SECTION("repeated") {
    RecordOpener opener(key());
    opener.feed(first);
    opener.feed(first);
    CHECK(opened(opener) == "first");
    CHECK(opened(opener) == "(error)");
    opener.feed(second);
    CHECK(opened(opener) == "(error)");
  }
  SECTION("left out") {
    RecordOpener opener(key());
    opener.feed(second);
    CHECK(opened(opener) == "(error)");
  }
  SECTION("made with another key") {
    RecordOpener opener(Secret::random());
    opener.feed(first);
    CHECK(opened(opener) == "(error)");
  }
  SECTION("larger than any") {
    RecordOpener opener(key());
    opener.feed(Bytes{1, 0, 1, 0});
    CHECK(opened(opener) == "(error)");
  }
}
