#include "launcher/join/sealed_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string_view>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/internet_address.h"
#include "runtime/base/wipe.h"
#include "runtime/config/parse_value.h"
#include "runtime/crypto/secret_file.h"

namespace hvd::launcher {
namespace {

// "address port" of one end of the connection, as LeaseWatch reads it; "" where there is none.
std::string end_text(int fd, int (*name_of)(int, sockaddr*, socklen_t*)) {
  InternetAddress end;
  return name_of(fd, end.get(), &end.size) == 0 ? end.ip() + " " + std::to_string(end.port()) : "";
}

}  // namespace

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

SealedLink::SealedLink(MainLoop& loop, Side side, const crypto::Secret& token, Callbacks callbacks)
    : side_(side),
      token_(token),
      callbacks_(std::move(callbacks)),
      loop_(loop),
      own_nonce_(kJoinNonceBytes),
      greeting_(side == Side::kLauncher ? GreetingReader::From::kHost : GreetingReader::From::kLauncher) {
  crypto::random_bytes(own_nonce_);
}

Result<std::unique_ptr<SealedLink>> SealedLink::open(MainLoop& loop, Fd fd, Side side, const crypto::Secret& token,
                                                     Callbacks callbacks) {
  std::unique_ptr<SealedLink> link(new SealedLink(loop, side, token, std::move(callbacks)));
  HVD_RETURN_IF_ERROR(link->start(std::move(fd)));
  return link;
}

Status SealedLink::start(Fd fd) {
  HVD_FAILPOINT_RETURN("seal.start");
  const int yes = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));  // frames are small, and waited for
  watch_ = std::make_unique<LeaseWatch>(
      loop_, end_text(fd.get(), &::getpeername) + " " + end_text(fd.get(), &::getsockname), std::nullopt,
      LeaseWatch::Callbacks{.send_sign =
                                [this] {
                                  if (output_ && sealer_ && queued() == 0) output_->write(sealer_->seal({}));
                                },
                            .on_lost = [this] { lose("the network between the hosts is gone"); }});
  socket_ = fd.get();
  HVD_ASSIGN_OR_RETURN(input_,
                       PipeReader::open(loop_, std::move(fd),
                                        {.on_data = [this](ByteSpan bytes) { received(bytes); },
                                         .on_end = [this] { lose("the other end has closed the connection"); }}));
  if (side_ == Side::kLauncher) return Status::ok();
  HVD_RETURN_IF_ERROR(open_output());
  greet();
  return Status::ok();
}

Status SealedLink::open_output() {
  Fd second(::fcntl(socket_, F_DUPFD_CLOEXEC, 3));
  if (!second.valid()) return Status::from_errno("a second descriptor of a connection", errno);
  HVD_ASSIGN_OR_RETURN(output_,
                       PipeWriter::open(loop_, std::move(second),
                                        {.on_progress = [this] { written(); },
                                         .on_error = [this](const Status& status) { lose(status.message()); }}));
  return Status::ok();
}

void SealedLink::greet() { output_->write(encode_greeting(token_, own_nonce_)); }

// What the launcher says to who has another token: a host of ours finds out by it, and does not try again. It is less
// than any socket takes at once, and nothing waits for it.
void SealedLink::turn_away() {
  static_cast<void>(::send(socket_, own_nonce_.data(), own_nonce_.size(), MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE));
  const Bytes record = sealer_->seal({});
  static_cast<void>(::send(socket_, record.data(), record.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  has_other_token_ = true;
  lose("the greeting was not made with the token");
}

void SealedLink::received(ByteSpan bytes) {
  HVD_FAILPOINT("seal.received");
  if (!end_.empty() || closing_) return;
  if (opener_) {
    opener_->feed(bytes);
  } else {
    if (!take_greeting(bytes)) return;
  }
  deliver();
}

bool SealedLink::take_greeting(ByteSpan bytes) {
  const auto complete = greeting_.feed(bytes);
  if (!complete.is_ok()) lose(complete.status().message());
  if (!complete.is_ok() || !complete.value()) return false;
  agree(greeting_.nonce());
  if (side_ == Side::kLauncher) {
    if (greeting_.is_proven(token_)) {
      introduce();
    } else {
      turn_away();
    }
    if (!end_.empty()) return false;
  }
  opener_->feed(greeting_.rest());
  return true;
}

void SealedLink::introduce() {
  if (callbacks_.on_introduced) callbacks_.on_introduced();
  if (const Status status = open_output(); !status.is_ok()) return lose(status.message());
  output_->write(own_nonce_);
  output_->write(sealer_->seal({}));  // shows that we have the token: the host says nothing before
}

void SealedLink::agree(ByteSpan nonce_of_other) {
  const bool is_host = side_ == Side::kHost;
  const JoinKeys keys(token_, is_host ? ByteSpan(own_nonce_) : nonce_of_other,
                      is_host ? nonce_of_other : ByteSpan(own_nonce_));
  sealer_.emplace(is_host ? keys.to_launcher : keys.to_host);
  opener_.emplace(is_host ? keys.to_host : keys.to_launcher);
}

void SealedLink::deliver() {
  while (end_.empty() && !closing_) {
    auto next = opener_->next();
    if (!next.is_ok()) {
      has_other_token_ = !proven_;
      return lose(next.status().message());
    }
    if (!next.value()) return;
    if (!std::exchange(proven_, true)) callbacks_.on_proven();
    Bytes& record = *next.value();
    if (record.empty()) continue;
    callbacks_.on_record(record);
    wipe(record);
  }
}

void SealedLink::write(ByteSpan bytes) {
  if (!end_.empty() || closing_) return;
  while (!bytes.empty()) {
    const std::size_t size = std::min(bytes.size(), crypto::kMaxRecordBytes);
    output_->write(sealer_->seal(bytes.first(size)));
    bytes = bytes.subspan(size);
  }
}

void SealedLink::written() {
  if (closing_ && queued() == 0) return close();
  if (callbacks_.on_progress) callbacks_.on_progress();
}

void SealedLink::close() {
  closing_ = true;
  if (watch_) watch_->stop();
  if (input_) input_->close();
  if (output_) output_->close();
}

void SealedLink::close_when_written() {
  closing_ = true;
  if (queued() == 0) close();
}

void SealedLink::lose(const std::string& why) {
  if (!end_.empty()) return;
  end_ = why;
  const bool told = closing_;
  close();
  if (!told && callbacks_.on_end) callbacks_.on_end(end_);
}

}  // namespace hvd::launcher
