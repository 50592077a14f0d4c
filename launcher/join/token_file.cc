#include "launcher/join/token_file.h"

#include <cstdint>
#include <limits>
#include <string_view>

#include "runtime/base/fd.h"
#include "runtime/config/parse_value.h"
#include "runtime/crypto/secret_file.h"

namespace hvd::launcher {

Result<crypto::Secret> read_token(const std::string& path) {
  constexpr std::string_view kDescriptors = "/dev/fd/";
  if (!path.starts_with(kDescriptors)) return crypto::read_secret_file(path);
  const auto number =
      config::parse_integer(std::string_view(path).substr(kDescriptors.size()), 3, std::numeric_limits<int>::max());
  if (!number.is_ok()) return number.status().annotate(path);
  const Fd fd(static_cast<int>(number.value()));
  auto token = crypto::read_secret_from(fd);
  if (!token.is_ok()) return token.status().annotate(path);
  return token;
}

}  // namespace hvd::launcher
