#pragma once

#include <string>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

// The job secret in a file, for processes that no agent has started: 64 hex digits and at most one newline, in a
// regular file of the own uid with no permission for group and others.
namespace hvd::crypto {

// A file that is something else, or that others may reach, is kInvalidArgument; errors name the path, never its
// content. A symbolic link is not followed.
Result<Secret> read_secret_file(const std::string& path);

// The same digits from a descriptor of any kind, such as a pipe, to its end. Who gave it answers for who else reads it.
Result<Secret> read_secret_from(const Fd& fd);

// A secret and a file of mode 0600 that holds it: fresh ones, removed with this object, or the file that somebody else
// keeps. Move-only, externally synchronised.
class SecretFile {
 public:
  static Result<SecretFile> create(const std::string& directory);
  static Result<SecretFile> open(const std::string& path);
  SecretFile(SecretFile&& other) noexcept;
  SecretFile& operator=(SecretFile&&) = delete;
  ~SecretFile();

  const std::string& path() const { return path_; }
  const Secret& secret() const { return secret_; }

 private:
  SecretFile(std::string path, const Secret& secret, bool is_own);

  std::string path_;
  Secret secret_;
  bool is_own_;
};

}  // namespace hvd::crypto
