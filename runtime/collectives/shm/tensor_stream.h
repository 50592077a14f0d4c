#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include "runtime/collectives/shm/parts.h"

namespace hvd::collectives::shm {

// Tensors that are moved or reduced one after another as if they were one: what lies where in that one. Nothing is
// owned.
class TensorStream {
 public:
  // `input` is null where nothing is read, `output` where nothing is written.
  void add(const void* input, void* output, std::size_t bytes) {
    if (bytes == 0) return;
    tensors_.push_back({static_cast<const std::byte*>(input), static_cast<std::byte*>(output), size_});
    size_ += bytes;
  }
  std::size_t size() const { return size_; }
  // How many of them are not empty.
  std::size_t tensors() const { return tensors_.size(); }
  // Whether what is written at one place of the stream is read or written at no other: outputs overlap nothing, but for
  // an input in place.
  bool is_disjoint() const;

  // f(input, output, where in the range, bytes) for each tensor that has something in it.
  template <typename F>
  void visit(Part range, F f) const {
    auto tensor = std::ranges::upper_bound(tensors_, range.begin, {}, &Tensor::begin);
    for (std::size_t at = 0; at < range.size;) {
      const std::size_t end = tensor == tensors_.end() ? size_ : tensor->begin;
      const Tensor& here = *std::prev(tensor);
      const std::size_t inside = range.begin + at - here.begin;
      const std::size_t bytes = std::min(range.size - at, end - here.begin - inside);
      f(here.input == nullptr ? nullptr : here.input + inside, here.output == nullptr ? nullptr : here.output + inside,
        at, bytes);
      at += bytes;
      ++tensor;
    }
  }
  // The inputs to `to`.
  void read(Part range, std::byte* to) const {
    visit(range, [to](const std::byte* input, std::byte*, std::size_t at, std::size_t bytes) {
      copy_bytes(to + at, input, bytes);
    });
  }
  // `from` to the outputs, of a result of so many bytes in all.
  void write(Part range, const std::byte* from, std::size_t result_bytes) const {
    visit(range, [=](const std::byte* input, std::byte* output, std::size_t at, std::size_t bytes) {
      put(input, output, from + at, bytes, result_bytes);
    });
  }
  // One of those pieces.
  static void put(const std::byte* input, std::byte* output, const std::byte* from, std::size_t bytes,
                  std::size_t result_bytes) {
    if (input == output) return copy_bytes(output, from, bytes);  // it has been read
    copy_result(output, from, bytes, result_bytes);
  }

 private:
  struct Tensor {
    const std::byte* input;
    std::byte* output;
    std::size_t begin;
  };
  std::vector<Tensor> tensors_;
  std::size_t size_ = 0;
};

}  // namespace hvd::collectives::shm
