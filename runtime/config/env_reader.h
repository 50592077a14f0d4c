#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd::config {

// Where configuration reads variables from. Implementations are immutable in use and safe to read from one thread.
class EnvReader {
 public:
  virtual ~EnvReader() = default;
  // The value, or nothing when the variable is not set. A variable set to "" is set.
  virtual std::optional<std::string> get(std::string_view name) const = 0;
  // The names of all variables, sorted.
  virtual std::vector<std::string> names() const = 0;
};

// The environment of this process: the only getenv of the product. Reads are not synchronised with a setenv of another
// thread, so it is read once, when a session or a launch begins.
class ProcessEnv final : public EnvReader {
 public:
  std::optional<std::string> get(std::string_view name) const override;
  std::vector<std::string> names() const override;
};

// A fixed set of variables: tests, and the environment that a launcher composes for its ranks.
class MapEnv final : public EnvReader {
 public:
  using Map = std::map<std::string, std::string, std::less<>>;
  MapEnv() = default;
  explicit MapEnv(Map variables) : variables_(std::move(variables)) {}

  std::optional<std::string> get(std::string_view name) const override;
  std::vector<std::string> names() const override;

 private:
  Map variables_;
};

}  // namespace hvd::config
