#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/status.h"

namespace hvd::launcher {

// --prefix-template: what stands before a line that a rank prints. A text with fields in braces, as in
// "{rank}@{host} "; {{ and }} are the braces themselves. A value; pure.
class PrefixTemplate {
 public:
  static constexpr std::size_t kMaxLength = 256;

  // What the fields stand for.
  struct Fields {
    int rank = 0;
    int local_rank = 0;
    std::string_view host = {};
    std::string_view stream = {};  // stdout or stderr
    std::string_view time = {};    // of the line
  };

  // Errors name what is wrong, and for a field that is none all that there are: "{x} is no field: expected …".
  static Result<PrefixTemplate> parse(std::string_view text);

  std::string expand(const Fields& fields) const;
  // Whether it says itself where the time stands.
  bool has_time() const;

 private:
  enum class Field { kRank, kLocalRank, kHost, kStream, kTime };
  static Result<Field> field_of(std::string_view name);
  static std::string text_of(Field field, const Fields& fields);

  std::vector<std::variant<std::string, Field>> parts_;
};

}  // namespace hvd::launcher
