#include "launcher/plan/prefix_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/letters.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

Result<PrefixTemplate::Field> PrefixTemplate::field_of(std::string_view name) {
  constexpr auto kNames = std::to_array<std::pair<std::string_view, Field>>({{"rank", Field::kRank},
                                                                             {"local_rank", Field::kLocalRank},
                                                                             {"host", Field::kHost},
                                                                             {"stream", Field::kStream},
                                                                             {"time", Field::kTime}});
  std::string all;
  for (const auto& [known, field] : kNames) {
    if (known == name) return field;
    all += (all.empty() ? "{" : ", {") + std::string(known) + "}";
  }
  return Status::invalid_argument(config::quoted("{" + std::string(name) + "}") + " is no field: expected one of " +
                                  all + "; {{ is a brace itself");
}

Result<PrefixTemplate> PrefixTemplate::parse(std::string_view text) {
  // A prefix that ends lines, or moves the cursor, would tear those of others.
  if (has_controls(text) || text.size() > kMaxLength) {
    return Status::invalid_argument(config::quoted(text.substr(0, kMaxLength)) + ": expected at most " +
                                    std::to_string(kMaxLength) + " bytes, and no control characters");
  }
  PrefixTemplate parsed;
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c != '{' && c != '}') {
      plain += c;
    } else if (at + 1 < text.size() && text[at + 1] == c) {
      plain += c;
      ++at;
    } else {
      const std::size_t end = text.find('}', at);
      if (c == '}' || end == std::string_view::npos) {
        return Status::invalid_argument(config::quoted(text) + " has a " + c + " without its " +
                                        (c == '{' ? "}; {{ is a brace itself" : "{; }} is a brace itself"));
      }
      HVD_ASSIGN_OR_RETURN(const Field field, field_of(text.substr(at + 1, end - at - 1)));
      if (!plain.empty()) parsed.parts_.emplace_back(std::exchange(plain, {}));
      parsed.parts_.emplace_back(field);
      at = end;
    }
  }
  if (!plain.empty()) parsed.parts_.emplace_back(std::move(plain));
  return parsed;
}

std::string PrefixTemplate::text_of(Field field, const Fields& fields) {
  switch (field) {
    case Field::kRank: return std::to_string(fields.rank);
    case Field::kLocalRank: return std::to_string(fields.local_rank);
    case Field::kHost: return std::string(fields.host);
    case Field::kStream: return std::string(fields.stream);
    case Field::kTime: return std::string(fields.time);
  }
  return "";
}

std::string PrefixTemplate::expand(const Fields& fields) const {
  std::string text;
  for (const auto& part : parts_) {
    const std::string* const plain = std::get_if<std::string>(&part);
    text += plain != nullptr ? *plain : text_of(std::get<Field>(part), fields);
  }
  return text;
}

bool PrefixTemplate::has_time() const {
  return std::ranges::any_of(parts_, [](const auto& part) {
    const Field* const field = std::get_if<Field>(&part);
    return field != nullptr && *field == Field::kTime;
  });
}

}  // namespace hvd::launcher
