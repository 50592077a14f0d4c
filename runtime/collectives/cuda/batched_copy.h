#pragma once

#include <cstdint>
#include <cstring>

#include "horovod/types.h"

#ifdef __CUDACC__
#define HVD_ON_GPU __host__ __device__
#define HVD_UNROLLED _Pragma("unroll")
#else
#define HVD_UNROLLED
#endif

// What our kernels do, thread by thread: compiled by nvcc for GPUs (kernels.cu), and for the host by the tests' driver.
// A block does a piece of one copy, so that a list of large and small tensors keeps all multiprocessors busy to its
// end.
namespace hvd::collectives::cuda {

// From tensors into staging memory or back: what lies apart on one side lies side by side on the other.
struct Copy {
  const void* from = nullptr;  // null: zeros
  void* to = nullptr;
  std::uint64_t bytes = 0;
};

// The argument of a launch, which may have 4 KiB.
struct CopyBatch {
  static constexpr unsigned kMost = 144;
  static constexpr std::uint64_t kBytesPerBlock = 32768;
  Copy copies[kMost];
  std::uint32_t block_end[kMost];  // of each copy: what is behind its last block
  // For hvd_scaled_copy: each element times `factor`, then divided by `divisor` as integers are, as kernels::Scaling.
  double factor = 1.0;
  std::int32_t divisor = 1;
  DataType dtype = DataType::kFloat32;
  std::uint32_t count = 0;
};
static_assert(sizeof(CopyBatch) <= 4096);

namespace {

#include "runtime/collectives/kernels/element_math.inc"

struct alignas(16) SixteenBytes {
  std::uint64_t low;
  std::uint64_t high;
};

// What block `block` of the launch does of it.
HVD_ON_GPU inline Copy part_of(const CopyBatch& batch, std::uint32_t block) {
  std::uint32_t low = 0;
  for (std::uint32_t high = batch.count - 1; low < high;) {
    const std::uint32_t middle = (low + high) / 2;
    if (batch.block_end[middle] > block) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const Copy& copy = batch.copies[low];
  const std::uint64_t begin = (block - (low > 0 ? batch.block_end[low - 1] : 0)) * CopyBatch::kBytesPerBlock;
  const auto* const from = static_cast<const std::uint8_t*>(copy.from);
  const std::uint64_t rest = copy.bytes - begin;
  return {from != nullptr ? from + begin : nullptr, static_cast<std::uint8_t*>(copy.to) + begin,
          rest < CopyBatch::kBytesPerBlock ? rest : CopyBatch::kBytesPerBlock};
}

// Thread `thread` of `threads` of a copy. Four words are under way at a time.
template <typename Word>
HVD_ON_GPU inline void copy_words(const Copy& copy, std::uint64_t thread, std::uint64_t threads) {
  const std::uint64_t words = copy.bytes / sizeof(Word);
  const auto* const from = static_cast<const Word*>(copy.from);
  auto* const to = static_cast<Word*>(copy.to);
  std::uint64_t i = thread;
  for (; from != nullptr && i + 3 * threads < words; i += 4 * threads) {
    const Word a = from[i];
    const Word b = from[i + threads];
    const Word c = from[i + 2 * threads];
    const Word d = from[i + 3 * threads];
    to[i] = a;
    to[i + threads] = b;
    to[i + 2 * threads] = c;
    to[i + 3 * threads] = d;
  }
  for (; i < words; i += threads) to[i] = from != nullptr ? from[i] : Word{};
  const auto* const last_from = static_cast<const std::uint8_t*>(copy.from);
  auto* const last_to = static_cast<std::uint8_t*>(copy.to);
  for (i = words * sizeof(Word) + thread; i < copy.bytes; i += threads) {
    last_to[i] = last_from != nullptr ? last_from[i] : std::uint8_t{0};
  }
}

HVD_ON_GPU inline std::uint64_t places_of(const Copy& copy) {
  return reinterpret_cast<std::uintptr_t>(copy.from) | reinterpret_cast<std::uintptr_t>(copy.to);
}

HVD_ON_GPU inline void copy_part(const Copy& copy, std::uint64_t thread, std::uint64_t threads) {
  if (places_of(copy) % 16 == 0) return copy_words<SixteenBytes>(copy, thread, threads);
  if (places_of(copy) % 4 == 0) return copy_words<std::uint32_t>(copy, thread, threads);
  copy_words<std::uint8_t>(copy, thread, threads);
}

template <typename T>
struct ScaledInteger {
  using Bits = T;
  HVD_ON_GPU static T of(T value, const CopyBatch& batch) {
    if (batch.factor != 1.0) {  // which copies exactly
      value = static_cast<T>(static_cast<std::uint64_t>(truncate(static_cast<double>(value) * batch.factor)));
    }
    return static_cast<T>(static_cast<std::int64_t>(value) / batch.divisor);
  }
};
template <typename T>
struct ScaledFloat {
  using Bits = T;
  HVD_ON_GPU static T of(T value, const CopyBatch& batch) { return value * static_cast<T>(batch.factor); }
};
template <typename T, float to_float(T), T of_float(float)>
struct ScaledNarrow {
  using Bits = T;
  HVD_ON_GPU static T of(T value, const CopyBatch& batch) {
    return of_float(to_float(value) * static_cast<float>(batch.factor));
  }
};
using ScaledFloat16 = ScaledNarrow<std::uint16_t, widen_float16, narrow_float16>;
using ScaledBfloat16 = ScaledNarrow<std::uint16_t, widen_bfloat16, narrow_bfloat16>;
using ScaledE4m3fn = ScaledNarrow<std::uint8_t, widen_e4m3fn, narrow_e4m3fn>;
using ScaledE5m2 = ScaledNarrow<std::uint8_t, widen_e5m2, narrow_e5m2>;

// All elements of a word.
template <typename Scaled>
HVD_ON_GPU inline SixteenBytes scaled_word(const SixteenBytes& word, const CopyBatch& batch) {
  using Bits = typename Scaled::Bits;
  constexpr std::size_t kCount = sizeof(SixteenBytes) / sizeof(Bits);
  Bits elements[kCount];
  std::memcpy(elements, &word, sizeof word);
  HVD_UNROLLED
  for (std::size_t i = 0; i < kCount; ++i) elements[i] = Scaled::of(elements[i], batch);
  SixteenBytes result;
  std::memcpy(&result, elements, sizeof result);
  return result;
}

// Two words are under way at a time: four would take too many registers.
template <typename Scaled>
HVD_ON_GPU inline void scale_elements(const CopyBatch& batch, const Copy& copy, std::uint64_t thread,
                                      std::uint64_t threads) {
  using Bits = typename Scaled::Bits;
  std::uint64_t words = 0;
  if (copy.from != nullptr && places_of(copy) % 16 == 0) {
    words = copy.bytes / sizeof(SixteenBytes);
    const auto* const from = static_cast<const SixteenBytes*>(copy.from);
    auto* const to = static_cast<SixteenBytes*>(copy.to);
    std::uint64_t i = thread;
    for (; i + threads < words; i += 2 * threads) {
      const SixteenBytes a = from[i];
      const SixteenBytes b = from[i + threads];
      to[i] = scaled_word<Scaled>(a, batch);
      to[i + threads] = scaled_word<Scaled>(b, batch);
    }
    if (i < words) to[i] = scaled_word<Scaled>(from[i], batch);
  }
  const auto* const from = static_cast<const Bits*>(copy.from);
  auto* const to = static_cast<Bits*>(copy.to);
  const std::uint64_t n = copy.bytes / sizeof(Bits);
  for (std::uint64_t i = words * sizeof(SixteenBytes) / sizeof(Bits) + thread; i < n; i += threads) {
    to[i] = from != nullptr ? Scaled::of(from[i], batch) : Bits{};
  }
}

// Requires: kernels::can_scale() and NCCL knows the type. `from` may be `to`.
HVD_ON_GPU inline void scale_part(const CopyBatch& batch, const Copy& copy, std::uint64_t thread,
                                  std::uint64_t threads) {
  switch (batch.dtype) {
    case DataType::kUint8: return scale_elements<ScaledInteger<std::uint8_t>>(batch, copy, thread, threads);
    case DataType::kInt8: return scale_elements<ScaledInteger<std::int8_t>>(batch, copy, thread, threads);
    case DataType::kInt32: return scale_elements<ScaledInteger<std::int32_t>>(batch, copy, thread, threads);
    case DataType::kInt64: return scale_elements<ScaledInteger<std::int64_t>>(batch, copy, thread, threads);
    case DataType::kFloat16: return scale_elements<ScaledFloat16>(batch, copy, thread, threads);
    case DataType::kBfloat16: return scale_elements<ScaledBfloat16>(batch, copy, thread, threads);
    case DataType::kFloat8E4m3fn: return scale_elements<ScaledE4m3fn>(batch, copy, thread, threads);
    case DataType::kFloat8E5m2: return scale_elements<ScaledE5m2>(batch, copy, thread, threads);
    case DataType::kFloat64: return scale_elements<ScaledFloat<double>>(batch, copy, thread, threads);
    default: return scale_elements<ScaledFloat<float>>(batch, copy, thread, threads);
  }
}

}  // namespace

}  // namespace hvd::collectives::cuda
