#pragma once

#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace hvd {

// A list that is mostly of one, which then needs no memory of its own.
template <typename T>
class OneOrMany {
 public:
  explicit OneOrMany(T&& one) : values_(std::move(one)) {}
  explicit OneOrMany(std::vector<T>&& many) : values_(std::move(many)) {}
  explicit OneOrMany(std::span<const T> copied) {
    if (copied.size() == 1) {
      values_ = copied.front();
    } else {
      values_.template emplace<std::vector<T>>(copied.begin(), copied.end());
    }
  }

  std::span<T> all() {
    if (auto* const one = std::get_if<T>(&values_)) return {one, 1};
    return std::get<std::vector<T>>(values_);
  }
  std::span<const T> all() const {
    if (const auto* const one = std::get_if<T>(&values_)) return {one, 1};
    return std::get<std::vector<T>>(values_);
  }

 private:
  std::variant<T, std::vector<T>> values_;
};

}  // namespace hvd
