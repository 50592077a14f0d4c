#include "runtime/collectives/shm/hand_over.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/socket_io.h"
#include "runtime/collectives/shm/arena.h"
#include "runtime/collectives/shm/hand_over_stream.h"
#include "runtime/crypto/hash.h"

namespace hvd::collectives {
namespace {

using Nonce = ShmSegment::Nonce;

constexpr std::string_view kPrefix = "hvd-shm-";
// For one connection to say who it is, and to map the memory: it says so at once, and nobody else is heard meanwhile.
constexpr Millis kStepLimit{5000};
// A member that has agreed waits so much longer than the leader waits for the last member.
constexpr Millis kVerdictGrace{5000};

Deadline earlier(const Deadline& deadline, Millis limit) {
  return Deadline::at(std::min(deadline.when(), SteadyClock::now() + limit));
}

// The role keeps a proof of one side from being one of the other's.
crypto::Digest proof(const crypto::Secret& key, std::string_view role, int rank, ByteSpan nonce) {
  ByteWriter who;
  who.put(static_cast<std::uint32_t>(rank));
  return crypto::hmac_sha256(key, {as_bytes("hvd:shm:"), as_bytes(role), as_bytes("|"), who.bytes(), nonce});
}

// hello = u32 rank, nonce, proof of both. The answer's proof is over the same nonce.
constexpr std::size_t kHelloBytes = 4 + sizeof(Nonce) + sizeof(crypto::Digest);

// The first rank of a host.
class Leader {
 public:
  Leader(const HandOverSocket& socket, const HandOverOptions& options, std::shared_ptr<ShmSegment> segment, Fd memory)
      : socket_(socket), options_(options), segment_(std::move(segment)), memory_(std::move(memory)) {
    const Nonce nonce = crypto::random_nonce<Nonce>();
    std::ranges::copy(nonce, segment_->proof(-1).begin());
  }

  // Empty when all members have mapped the memory, else why not. Fails when the wait was ended.
  Result<std::string> gather();
  void conclude(const std::string& why_not) const {
    for (const auto& [rank, member] : members_) {
      // A member that has gone will be missed by others.
      (void)member.send_outcome(why_not, Deadline::after(kStepLimit));
    }
  }

 private:
  Result<HandOverStream> accept() const;
  // A process that has shown who it is, and what shows it who we are.
  struct Member {
    int rank;
    crypto::Digest answer;
  };

  // An error for a stranger.
  Result<Member> introduce(const HandOverStream& stream) const;
  Status offer(const HandOverStream& stream, const Member& member) const;
  Status hear(const HandOverStream& stream, int rank) const;
  int place(int rank) const {
    return static_cast<int>(std::ranges::find(options_.ranks, rank) - options_.ranks.begin());
  }

  const HandOverSocket& socket_;
  const HandOverOptions& options_;
  std::shared_ptr<ShmSegment> segment_;
  Fd memory_;
  std::map<int, HandOverStream> members_;
};

Result<std::string> Leader::gather() {
  while (members_.size() + 1 < options_.ranks.size()) {
    auto stream = accept();
    if (stream.status().code() == StatusCode::kTimeout) break;
    if (stream.status().code() == StatusCode::kAborted) return stream.status();
    if (!stream.is_ok()) return stream.status().message();
    const auto member = introduce(stream.value());
    if (member.status().code() == StatusCode::kAborted) return member.status();
    if (!member.is_ok()) continue;  // a stranger gets nothing
    const int rank = member.value().rank;
    Status agreed = offer(stream.value(), member.value());
    if (agreed.is_ok()) agreed = hear(stream.value(), rank);
    if (agreed.code() == StatusCode::kAborted) return agreed;
    members_.insert_or_assign(rank, std::move(stream).value());
    if (!agreed.is_ok()) return "rank " + std::to_string(rank) + ": " + agreed.message();
  }
  for (const int rank : options_.ranks) {
    if (rank != options_.rank && members_.count(rank) == 0) return "rank " + std::to_string(rank) + " did not come";
  }
  return std::string();
}

Result<HandOverStream> Leader::accept() const {
  for (;;) {
    HVD_RETURN_IF_ERROR(wait_for_socket(socket_.fd(), POLLIN, options_.deadline, options_.wake_fd));
    Fd fd(::accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid() && is_of_own_user(fd.get())) return HandOverStream(std::move(fd), options_.wake_fd);
    const bool is_passing = fd.valid() || errno == EINTR || errno == ECONNABORTED || errno == EAGAIN;
    if (!is_passing) return Status::from_errno("accept of the ranks of this host", errno);
  }
}

Result<Leader::Member> Leader::introduce(const HandOverStream& stream) const {
  const Deadline deadline = earlier(options_.deadline, kStepLimit);
  std::array<std::uint8_t, kHelloBytes> hello{};
  HVD_RETURN_IF_ERROR(stream.receive(hello, deadline));
  ByteReader in(hello);
  const auto rank = static_cast<int>(in.get<std::uint32_t>());
  const ByteSpan nonce = in.take(sizeof(Nonce));
  const bool is_known = place(rank) < static_cast<int>(options_.ranks.size()) && rank != options_.rank;
  const crypto::Digest expected = proof(options_.key, "member", rank, nonce);
  if (!crypto::constant_time_equal(expected, in.take(sizeof(expected))) || !is_known || members_.count(rank) != 0) {
    return Status::precondition("it is no rank of this host");
  }
  return Member{rank, proof(options_.key, "leader", rank, nonce)};
}

// When this fails, the member is there all the same: nobody waits for it any longer.
Status Leader::offer(const HandOverStream& stream, const Member& member) const {
  HVD_FAILPOINT_RETURN("shm.offer");
  return stream.send_descriptor(member.answer, memory_.get());
}

// What the member says has to follow from what stands in the memory, and what it wrote has to stand there.
Status Leader::hear(const HandOverStream& stream, int rank) const {
  const Deadline deadline = earlier(options_.deadline, kStepLimit);
  HVD_ASSIGN_OR_RETURN(const std::string why_not, stream.receive_outcome(deadline));
  if (!why_not.empty()) return Status::internal(why_not);
  const crypto::Digest written = proof(options_.key, "mapped", rank, segment_->proof(-1));
  if (crypto::constant_time_equal(written, segment_->proof(place(rank)))) return Status::ok();
  return Status::internal("it has mapped other memory");
}

Result<Fd> connect_to_leader(const std::string& name, const HandOverOptions& options) {
  HVD_ASSIGN_OR_RETURN(Fd fd, connect_to(AbstractAddress(name), options.deadline, options.wake_fd));
  if (!is_of_own_user(fd.get())) return Status::precondition("another user listens there");
  return fd;
}

int own_place(const HandOverOptions& options) {
  return static_cast<int>(std::ranges::find(options.ranks, options.rank) - options.ranks.begin());
}

// A member's memory, once the leader can see it there.
Result<std::shared_ptr<ShmSegment>> map_of_leader(const HandOverStream& stream, const HandOverOptions& options) {
  const Nonce nonce = crypto::random_nonce<Nonce>();
  ByteWriter hello;
  hello.put(static_cast<std::uint32_t>(options.rank));
  hello.put_raw(nonce);
  hello.put_raw(proof(options.key, "member", options.rank, nonce));
  HVD_RETURN_IF_ERROR(stream.send(hello.bytes(), options.deadline));
  HVD_FAILPOINT_RETURN("shm.take");
  crypto::Digest answer{};
  HVD_ASSIGN_OR_RETURN(const Fd memory, stream.receive_descriptor(answer, options.deadline));
  if (!crypto::constant_time_equal(answer, proof(options.key, "leader", options.rank, nonce))) {
    return Status::precondition("what listens there does not have the job's key");
  }
  HVD_ASSIGN_OR_RETURN(auto segment, ShmSegment::map(memory, static_cast<int>(options.ranks.size())));
  const crypto::Digest written = proof(options.key, "mapped", options.rank, segment->proof(-1));
  std::ranges::copy(written, segment->proof(own_place(options)).begin());
  return segment;
}

SharedMemory with_arena(std::shared_ptr<ShmSegment> segment, const HandOverOptions& options) {
  auto arena = ShmArena::make(segment, own_place(options));
  return {std::move(segment), "", std::move(arena)};
}

}  // namespace

Result<HandOverSocket> HandOverSocket::open() {
  HVD_RETURN_IF_ERROR(ShmSegment::probe());
  std::array<std::uint8_t, 16> raw;
  crypto::random_bytes(raw);
  std::string name = std::string(kPrefix) + to_hex(raw);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::from_errno("socket", errno);
  const AbstractAddress address(name);
  if (::bind(fd.get(), address.get(), address.size()) != 0) {
    return Status::from_errno("bind of the socket for shared memory", errno);
  }
  if (::listen(fd.get(), ShmSegment::kMaxMembers) != 0) return Status::from_errno("listen", errno);
  return HandOverSocket(std::move(name), std::move(fd));
}

Result<SharedMemory> hand_over(const HandOverSocket& socket, const HandOverOptions& options) {
  const auto members = static_cast<int>(options.ranks.size());
  auto created = ShmSegment::create(members, ShmSegment::usual_arena_bytes(members));
  if (!created.is_ok()) created = ShmSegment::create(members);  // arenas are much to map
  // Others find that nobody listens any more.
  if (!created.is_ok()) return SharedMemory{nullptr, created.status().message()};
  auto& [segment, memory] = created.value();
  Leader leader(socket, options, segment, std::move(memory));
  HVD_ASSIGN_OR_RETURN(std::string why_not, leader.gather());
  leader.conclude(why_not);
  if (!why_not.empty()) return SharedMemory{nullptr, std::move(why_not)};
  return with_arena(std::move(segment), options);
}

Result<SharedMemory> take_over(const std::string& leader, const HandOverOptions& options) {
  const std::string who = "rank " + std::to_string(options.ranks.front());
  auto fd = connect_to_leader(leader, options);
  if (fd.status().code() == StatusCode::kAborted) return fd.status();
  if (!fd.is_ok()) return SharedMemory{nullptr, "socket of " + who + ": " + fd.status().message()};
  const HandOverStream stream(std::move(fd).value(), options.wake_fd);
  auto segment = map_of_leader(stream, options);
  if (segment.status().code() == StatusCode::kAborted) return segment.status();
  const std::string why_not = segment.status().message();
  const Status sent = stream.send_outcome(why_not, options.deadline);
  if (!segment.is_ok()) return SharedMemory{nullptr, who + ": " + why_not};
  HVD_FAILPOINT_RETURN("shm.verdict");
  const auto verdict = stream.receive_outcome(Deadline::at(options.deadline.when() + kVerdictGrace));
  if (verdict.is_ok() && !verdict.value().empty()) return SharedMemory{nullptr, verdict.value()};
  if (sent.code() == StatusCode::kAborted) return sent;
  // Without this rank's yes there is none for anybody.
  if (!sent.is_ok()) return SharedMemory{nullptr, who + " waited no longer: " + sent.message()};
  if (!verdict.is_ok()) {
    return verdict.status().annotate("shared memory: " + who + " did not say whether the ranks of this host share it");
  }
  return with_arena(std::move(segment).value(), options);
}

}  // namespace hvd::collectives
