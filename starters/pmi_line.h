#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

// The text of PMI-1, in which MPICH's process managers and the processes that they start talk: a line for each request
// and answer, of `key=value` words with blanks between them, of which `cmd` says what it is. Pure.
namespace hvd::starters {

inline constexpr std::size_t kMaxPmiLine = 4096;

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
  // "" when it is not there.
  const std::string& operator[](std::string_view key) const;

 private:
  std::map<std::string, std::string, std::less<>> words_;
};

// A request, with its end: whoever is done with it wipes it. Requires: keys and values without blanks and ends of
// lines.
std::string pmi_request(const std::vector<std::pair<std::string_view, std::string_view>>& words);

}  // namespace hvd::starters
