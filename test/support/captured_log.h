#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>

#include "runtime/base/fd.h"
#include "runtime/base/log.h"

namespace hvd::test {

// What is logged while it lives.
class CapturedLog {
 public:
  CapturedLog() : file_(std::tmpfile(), &std::fclose), before_(::dup(2)) { ::dup2(::fileno(file_.get()), 2); }
  ~CapturedLog() {
    configure_log({});
    ::dup2(before_.get(), 2);
  }
  std::string text() const {
    std::string text(1 << 16, '\0');
    std::rewind(file_.get());
    text.resize(std::fread(text.data(), 1, text.size(), file_.get()));
    return text;
  }
  std::ptrdiff_t count(const std::string& part) const {
    const std::string all = text();
    std::ptrdiff_t found = 0;
    for (std::size_t at = all.find(part); at != std::string::npos; at = all.find(part, at + 1)) ++found;
    return found;
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  Fd before_;
};

}  // namespace hvd::test
