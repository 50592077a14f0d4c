#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hvd {

// While it lives, this thread computes with numbers that are too small to be normal, instead of taking them for zero.
// Frameworks' threads often do the latter (TensorFlow's all do), and threads inherit it: the same sum would have other
// bits there than on another rank's thread.
class PlainFloats {
 public:
  PlainFloats() : before_(read()) {
    if ((before_ & kFlush) != 0) write(before_ & ~kFlush);
  }
  ~PlainFloats() {
    if ((before_ & kFlush) != 0) write(before_);
  }
  PlainFloats(const PlainFloats&) = delete;
  PlainFloats& operator=(const PlainFloats&) = delete;

 private:
#if defined(__x86_64__)
  using Word = std::uint32_t;
  static constexpr Word kFlush = 0x8040;  // MXCSR: results to zero, inputs as zero
  static Word read() { return _mm_getcsr(); }
  static void write(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word kFlush = (Word{1} << 24) | (Word{1} << 19);  // FPCR: FZ, FZ16
  static Word read() {
    Word word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = std::uint32_t;
  static constexpr Word kFlush = 0;
  static Word read() { return 0; }
  static void write(Word) {}
#endif

  const Word before_;
};

}  // namespace hvd
