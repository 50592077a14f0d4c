#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

// The texts of PMI-1 and PMI-2, in which process managers and the processes that they start talk: for each request and
// answer `key=value` words, of which `cmd` says what it is. In PMI-1 they are a line, with blanks between them; in
// PMI-2 a block, whose size stands before it in six characters, and each word ends with a semicolon. Pure.
namespace hvd::starters {

inline constexpr std::size_t kMaxPmiLine = 4096;  // or block
inline constexpr std::size_t kPmiBlockHead = 6;

using PmiWords = std::vector<std::pair<std::string_view, std::string_view>>;

// An answer. A word without '=' belongs to the value before it, with its blank: texts of errors have such. Bytes that
// may be hostile: control characters, a first word without '=', a word twice, and a line that is too long are errors.
class PmiLine {
 public:
  PmiLine() = default;
  PmiLine(PmiLine&&) = default;
  PmiLine& operator=(PmiLine&&) = default;
  ~PmiLine();  // wipes its words: one may be the secret
  // `line`: without its end.
  static Result<PmiLine> parse(std::string_view line);
  // `block`: without its size. A semicolon in a value stands there twice.
  static Result<PmiLine> parse_block(std::string_view block);
  // "" when it is not there.
  const std::string& operator[](std::string_view key) const;

 private:
  Status add(std::string_view word, std::string** value);

  std::map<std::string, std::string, std::less<>> words_;
};

// A request, with its end: whoever is done with it wipes it. Requires: keys and values without blanks and ends of
// lines.
std::string pmi_request(const PmiWords& words);
// The same for PMI-2, with its size. Requires: no semicolons.
std::string pmi_block(const PmiWords& words);
// Of the six characters before a block.
Result<std::size_t> pmi_block_size(std::string_view head);

}  // namespace hvd::starters
