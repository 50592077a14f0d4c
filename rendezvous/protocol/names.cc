#include "rendezvous/protocol/names.h"

#include <charconv>

#include "rendezvous/protocol/limits.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kEpochPrefix = "epoch.";

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

Status check_name(std::string_view what, std::string_view name, std::size_t max_size, std::string_view punctuation) {
  if (name.empty() || name.size() > max_size) {
    return Status::invalid_argument(std::string(what) + " \"" + printable(name) + "\" has " +
                                    std::to_string(name.size()) + " characters, not 1.." + std::to_string(max_size));
  }
  for (char c : name) {
    if (!is_alphanumeric(c) && punctuation.find(c) == std::string_view::npos) {
      return Status::invalid_argument(std::string(what) + " \"" + printable(name) +
                                      "\" has a character other than A-Z, a-z, 0-9 and " + std::string(punctuation));
    }
  }
  return Status::ok();
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out(text.substr(0, 80));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > out.size() ? out + "..." : out;
}

std::string scope_of_epoch(std::uint64_t epoch) { return std::string(kEpochPrefix) + std::to_string(epoch); }

std::string scope_of_epoch(std::uint64_t epoch, std::string_view name) {
  return scope_of_epoch(epoch).append(".").append(name);
}

std::optional<std::uint64_t> epoch_of_scope(std::string_view scope) {
  if (!scope.starts_with(kEpochPrefix)) return std::nullopt;
  std::string_view digits = scope.substr(kEpochPrefix.size());
  digits = digits.substr(0, digits.find('.'));
  std::uint64_t epoch = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), epoch);
  // Only the canonical spelling: "epoch.07" would be a second name for what epoch 7 drops. Epoch 0
  // never is current.
  if (error != std::errc() || end != digits.data() + digits.size() || digits != std::to_string(epoch)) return 0;
  return epoch;
}

bool is_row_scope(std::string_view scope) {
  return scope.starts_with(kEpochPrefix) && scope.find('.', kEpochPrefix.size()) == std::string_view::npos;
}

Status check_scope(std::string_view scope) { return check_name("scope", scope, kMaxScopeBytes, "._-"); }
Status check_key(std::string_view key) { return check_name("key", key, kMaxKeyBytes, "._:/-"); }

}  // namespace hvd::rendezvous
