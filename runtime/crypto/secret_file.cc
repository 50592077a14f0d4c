#include "runtime/crypto/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/base/wipe.h"

namespace hvd::crypto {
namespace {

Status check_secret_file(const Fd& fd) {
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return Status::from_errno("fstat", errno);
  if (!S_ISREG(info.st_mode)) return Status::invalid_argument("not a regular file");
  if (info.st_uid != geteuid()) {
    return Status::invalid_argument("belongs to uid " + std::to_string(info.st_uid) + ", expected the own uid " +
                                    std::to_string(geteuid()));
  }
  if ((info.st_mode & 077) != 0) {
    std::array<char, 8> mode{};
    std::snprintf(mode.data(), mode.size(), "%04o", info.st_mode & 07777);
    return Status::invalid_argument("has mode " + std::string(mode.data()) +
                                    ", expected no permission for group and others (chmod 600)");
  }
  return Status::ok();
}

Result<Secret> parse_secret(ByteSpan text) {
  constexpr std::size_t kDigits = 2 * kSecretSize;
  if (text.size() == kDigits + 1 && text.back() == '\n') text = text.first(kDigits);
  WipedBuffer<kSecretSize> secret;
  bool good = text.size() == kDigits;
  for (std::size_t i = 0; good && i < kDigits; ++i) {
    const char c = static_cast<char>(text[i]);
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    good = digit >= 0;
    secret.bytes[i / 2] = static_cast<std::uint8_t>(secret.bytes[i / 2] * 16 + digit);
  }
  if (!good) return Status::invalid_argument("holds something other than 64 hex digits and at most one newline");
  return Secret::from_bytes(secret.bytes);
}

Result<Secret> read_secret(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer. O_NOFOLLOW: nobody may point us at
  // another file.
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid() && errno == ELOOP) return Status::invalid_argument("a symbolic link, expected a regular file");
  if (!fd.valid()) return Status::invalid_argument(strerrordesc_np(errno));
  HVD_RETURN_IF_ERROR(check_secret_file(fd));
  return read_secret_from(fd);
}

// Of a name that nobody can have foreseen; mkostemp() makes it with mode 0600.
Result<std::string> write_secret(const std::string& directory, const Secret& secret) {
  std::string path = directory + "/hvd-secret-XXXXXX";
  const Fd fd(mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) return Status::from_errno("a secret file in " + directory, errno);
  std::string text = to_hex(secret.bytes());
  const Status written = write_all(fd.get(), text.data(), text.size());
  wipe(text);
  if (written.is_ok()) return path;
  unlink(path.c_str());
  return written.annotate(path);
}

}  // namespace

Result<Secret> read_secret_from(const Fd& fd) {
  WipedBuffer<2 * kSecretSize + 2> text;  // one more than what is legal, to notice what is too long
  std::size_t size = 0;
  while (size < text.bytes.size()) {
    const ssize_t got = read(fd.get(), text.bytes.data() + size, text.bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno("read", errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return parse_secret(ByteSpan(text.bytes.data(), size));
}

Result<Secret> read_secret_file(const std::string& path) {
  auto secret = read_secret(path);
  if (!secret.is_ok()) return secret.status().annotate(path);
  return secret;
}

Result<SecretFile> SecretFile::create(const std::string& directory) {
  const Secret secret = Secret::random();
  HVD_ASSIGN_OR_RETURN(std::string path, write_secret(directory, secret));
  return SecretFile(std::move(path), secret, true);
}

Result<SecretFile> SecretFile::open(const std::string& path) {
  HVD_ASSIGN_OR_RETURN(const Secret secret, read_secret_file(path));
  return SecretFile(path, secret, false);
}

SecretFile::SecretFile(std::string path, const Secret& secret, bool is_own)
    : path_(std::move(path)), secret_(secret), is_own_(is_own) {}

SecretFile::SecretFile(SecretFile&& other) noexcept
    : path_(std::move(other.path_)), secret_(other.secret_), is_own_(std::exchange(other.is_own_, false)) {}

SecretFile::~SecretFile() {
  if (is_own_) unlink(path_.c_str());
}

}  // namespace hvd::crypto
