// What NCCL needs to be equal in the calls of all members, and leaves undefined where it is not.
#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "test/support/fake_gpu/fake_communicator.h"

namespace fake_nccl {

namespace {

using Words = std::vector<std::string>;

std::string reduction_in_words(const Work& work) {
  constexpr const char* kNames[kFirstOwnReduction] = {"sum", "product", "max", "min", "average"};
  if (work.reduction < kFirstOwnReduction) return kNames[work.reduction];
  // Members number their own as they like. NCCL would take other factors on each; the fake computes with one.
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "sum with the factor 0x";
  for (auto byte = work.factor.rbegin(); byte != work.factor.rend(); ++byte) {
    text += kDigits[std::to_integer<int>(*byte) / 16];
    text += kDigits[std::to_integer<int>(*byte) % 16];
  }
  return text;
}

std::string registered_in_words(const char* what, const Registered& where) {
  if (!where.is_registered) return "";
  const std::string memory = where.window == 0 ? "registered memory" : "window " + std::to_string(where.window);
  return std::string(", ") + what + " at " + std::to_string(where.offset) + " of " + memory;
}

std::string elements_in_words(const Work& work) {
  return std::to_string(work.count) + " elements of type " + std::to_string(work.type);
}

// All that has to be equal, and nothing else.
std::string in_words(const Work& work) {
  std::string text = std::string(work.kind) + " of " + elements_in_words(work);
  if (work.reduces()) text += ", " + reduction_in_words(work);
  if (work.has_root()) text += ", root " + std::to_string(work.root);
  if (!work.is("broadcast")) text += registered_in_words("input", work.input_in);
  if (!work.is("reduce")) text += registered_in_words("output", work.output_in);
  return text;
}

// Those that say the same are named together: what fewer members say before what the most say.
std::string who_says_what(const Words& said) {
  std::map<std::string, Words> who;
  for (std::size_t rank = 0; rank < said.size(); ++rank) who[said[rank]].push_back(std::to_string(rank));
  if (who.size() == 1) return "";
  std::vector<std::pair<std::string, Words>> sorted(who.begin(), who.end());
  const auto order = [&](const auto& one) {  // of as many, whoever differs from the first member
    return std::pair(one.second.size(), one.first == said.front());
  };
  std::ranges::sort(sorted, std::less<>(), order);
  std::string text = "members make different calls";
  for (const auto& [words, ranks] : sorted) {
    text += text.ends_with("calls") ? ": member" : "; member";
    text += (ranks.size() == 1 ? " " : "s ") + ranks.front();
    for (std::size_t i = 1; i < ranks.size(); ++i) text += (i + 1 < ranks.size() ? ", " : " and ") + ranks[i];
    text += (ranks.size() == 1 ? " makes " : " make ") + words;
  }
  return text;
}

std::string why_collectives_differ(const std::vector<Call>& calls) {
  std::vector<Words> said(calls.size());
  std::size_t most = 0;
  for (std::size_t r = 0; r < calls.size(); ++r) {
    for (const Work& work : calls[r]) {
      if (work.is_collective()) said[r].push_back(in_words(work));
    }
    most = std::max(most, said[r].size());
  }
  for (std::size_t i = 0; i < most; ++i) {
    Words here;
    for (const Words& of_member : said) here.push_back(i < of_member.size() ? of_member[i] : "no further call");
    if (std::string text = who_says_what(here); !text.empty()) return text;
  }
  return "";
}

// What a member sends to a peer, or receives from it, in its order.
Words between(const Call& call, const char* kind, std::size_t peer) {
  Words all;
  for (const Work& work : call) {
    if (work.is(kind) && static_cast<std::size_t>(work.root) == peer) all.push_back(elements_in_words(work));
  }
  return all;
}

std::string why_messages_differ(const std::vector<Call>& calls) {
  for (std::size_t from = 0; from < calls.size(); ++from) {
    for (std::size_t to = 0; to < calls.size(); ++to) {
      const Words sent = between(calls[from], "send", to);
      const Words received = between(calls[to], "receive", from);
      for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
        const std::string out = i < sent.size() ? sent[i] : "nothing";
        const std::string in = i < received.size() ? received[i] : "nothing";
        if (out == in) continue;
        return "member " + std::to_string(from) + " sends " + out + " to member " + std::to_string(to) +
               ", which receives " + in;
      }
    }
  }
  return "";
}

}  // namespace

std::string why_calls_differ(const std::vector<Call>& calls) {
  const std::string text = why_collectives_differ(calls);
  return text.empty() ? why_messages_differ(calls) : text;
}

}  // namespace fake_nccl
